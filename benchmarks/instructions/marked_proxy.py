"""The command `temper`, with a signal that makes callgrind write its counters.

Callgrind writes its counters before each call of `MARK`, a function of the C library that is called
only here. A client request, valgrind's own interface for programs, would have the same effect, but
it needs machine code for each kind of CPU.
"""

import gc
import os
import signal
from types import FrameType

MARK = "ctermid"


def mark(_signal: int, _frame: FrameType | None) -> None:
    """Write the counters before and after a garbage collection.

    Otherwise, garbage would be collected in a random step, and add to the count of that step.
    """
    os.ctermid()
    gc.collect()
    os.ctermid()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, mark)

    from proxy.__main__ import main

    main()
