"""Kills a child program when Temper dies, even by kill -9.

It runs as `python -m proxy.processes.parent_death PARENT_PID PROGRAM ARGUMENTS...`, makes the
arrangement and executes the program in its place, so that the process id and the signals are those
of the program. It imports few modules, because it runs at every start.
"""

# On Linux the kernel sends the signal (PR_SET_PDEATHSIG, which survives exec). Elsewhere a forked
# watcher waits for the end of standard input, a pipe of which only Temper holds the other end,
# and then kills the program, its parent.

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def request_death_signal(parent: int) -> None:
    """Have this process killed when the process `parent`, which started it, dies."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError("prctl refused PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def start_watcher() -> None:
    """Have this process killed when its standard input ends."""
    watched = os.getpid()
    if os.fork() != 0:
        return
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # the watcher must not hold the program's output open
    os.dup2(silence, 2)
    while os.read(0, 1):
        pass
    if os.getppid() == watched:  # otherwise the program has ended, and its id may be reused
        os.kill(watched, signal.SIGKILL)
    os._exit(0)


def main() -> None:
    if sys.platform == "linux":
        request_death_signal(int(sys.argv[1]))
    else:
        start_watcher()
    try:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted
    except OSError as problem:
        sys.exit(f"cannot run {sys.argv[2]}: {problem.strerror}")


if __name__ == "__main__":
    main()
