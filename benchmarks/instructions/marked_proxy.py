"""The command `temper`, with a signal that makes callgrind write its counters.

Callgrind dumps before each call of `MARK`, a function of the C library that nothing else calls. A
client request of valgrind would do the same, but needs machine code for each kind of CPU.
"""

import gc
import os
import signal
from types import FrameType

MARK = "ctermid"


def mark(_signal: int, _frame: FrameType | None) -> None:
    """Dump the counters before and after a garbage collection, which gets a separate count.

    Otherwise chance would decide in which step the collector runs.
    """
    os.ctermid()
    gc.collect()
    os.ctermid()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, mark)

    from proxy.__main__ import main

    main()
