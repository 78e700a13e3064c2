"""Kills a child program when Temper dies, even if Temper was killed with `kill -9`.

    python -m proxy.processes.parent_death PARENT_PID PROGRAM ARGUMENTS...

The module replaces itself by the program (exec), so the program has the process id that Temper
knows, and receives the signals that Temper sends to it. The module imports few modules, because it
runs at every start.
"""

# On Linux the kernel sends SIGKILL (PR_SET_PDEATHSIG, which survives exec). On other systems a
# forked watcher reads standard input, a pipe whose writing end only Temper has open. When this
# input ends, the watcher kills its parent process, which is the program.

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def request_death_signal(parent: int) -> None:
    """Let the kernel kill this process when its parent process (`parent`) dies."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError("prctl refused PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def start_watcher() -> None:
    """Fork a watcher that kills this process when its standard input ends."""
    program = os.getpid()
    if os.fork() != 0:
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # otherwise the program's output pipe would stay open after the program ends
    os.dup2(null, 2)
    while os.read(0, 1):
        pass
    if os.getppid() == program:  # otherwise the program has ended, and its id may be reused
        os.kill(program, signal.SIGKILL)
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
