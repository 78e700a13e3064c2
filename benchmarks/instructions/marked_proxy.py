"""The command `temper`, run so that callgrind writes down its counts at each SIGUSR1.

Callgrind is told to dump before `MARK`, a function of the C library that nothing else calls. A
client request would do the same, but needs machine code for each kind of CPU.
"""

import gc
import os
import signal
from types import FrameType

MARK = "ctermid"


def mark(_signal: int, _frame: FrameType | None) -> None:
    """Let callgrind write down its count, and that of a collection of garbage by itself.

    Otherwise chance decides between which marks the collector has its turn.
    """
    os.ctermid()
    gc.collect()
    os.ctermid()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, mark)

    from proxy.__main__ import main

    main()
