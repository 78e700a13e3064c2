"""The differences between operating systems: signals, process trees, keyboards, limits.

The code for Windows has never been executed.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL
ENDINGS = tuple(dict.fromkeys((signal.SIGTERM, KILL)))
HAS_PSEUDO_TERMINALS = hasattr(os, "openpty")
# event loops of Windows cannot wait for the pipes between workers and their parent
HAS_WORKERS = sys.platform != "win32"
# Windows' equivalent of `start_new_session=True`: Ctrl-C in the terminal reaches only Temper
CREATION_FLAGS = 0
if sys.platform == "win32":
    CREATION_FLAGS = subprocess.CREATE_NEW_PROCESS_GROUP


def open_file_limit() -> int:
    """Return the maximum number of open files; negative if the system has no limit."""
    try:
        import resource
    except ModuleNotFoundError:
        return -1
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def keep_private(file: int) -> None:
    """Restrict access to an open file to its owner, on systems with file modes."""
    if sys.platform != "win32":
        with suppress(PermissionError):  # the file belongs to another user
            os.fchmod(file, 0o600)


def handle_signal(number: signal.Signals, act: Callable[[int], object]) -> None:
    """Call `act(number)` in the running event loop each time the signal arrives."""
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":
        loop.add_signal_handler(number, act, number)
    else:  # Python may call the handler while the loop runs other code
        signal.signal(number, lambda number, _frame: loop.call_soon_threadsafe(act, number))


def reset_signal(number: signal.Signals) -> None:
    """Undo `handle_signal`."""
    if sys.platform != "win32":
        asyncio.get_running_loop().remove_signal_handler(number)
    else:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def handle_signals(
    numbers: Sequence[signal.Signals], act: Callable[[int], object]
) -> Generator[None, None, None]:
    """Like `handle_signal`, for several signals, until the end of the block."""
    for number in numbers:
        handle_signal(number, act)
    try:
        yield
    finally:
        for number in numbers:
            reset_signal(number)


@contextmanager
def handle_keys(on_key: Callable[[bytes], object]) -> Generator[None, None, None]:
    """Call `on_key` with the bytes of each key press while the block runs in an event loop."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        with _polled_keys(lambda key: loop.call_soon_threadsafe(on_key, key)):
            yield
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, lambda: on_key(os.read(keyboard, 64)))
    block_on_terminal()
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def block_on_terminal() -> None:
    """Set the terminal to blocking mode, after uvloop has set standard input to non-blocking.

    Standard input, output and error of a terminal are the same open file. In non-blocking mode, a
    long output raises BlockingIOError.
    """
    if sys.platform != "win32":
        os.set_blocking(sys.stdin.fileno(), True)


def prepare_console() -> None:
    """Enable UTF-8 and colors in a Windows console."""
    if sys.platform == "win32":
        for number, stream in ((-11, sys.stdout), (-12, sys.stderr)):
            stream.reconfigure(encoding="utf-8", errors="replace")
            handle, mode = ctypes.windll.kernel32.GetStdHandle(number), ctypes.c_ulong()
            if ctypes.windll.kernel32.GetConsoleMode(handle, ctypes.byref(mode)):
                # ENABLE_VIRTUAL_TERMINAL_PROCESSING
                ctypes.windll.kernel32.SetConsoleMode(handle, mode.value | 4)


def kill_tree(pid: int, number: signal.Signals = KILL) -> None:
    """Send a signal to a program that was started in a new session, and to its children."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
    elif pid in _jobs:
        ctypes.windll.kernel32.TerminateJobObject(ctypes.c_void_p(_jobs[pid]), 1)


def tie_to_parent(command: Sequence[str], wrapper: str) -> tuple[str, ...]:
    """Return a command line for a program that ends when this process ends.

    `wrapper` is the file of `proxy.processes.parent_death`. A frozen program has no such file, but
    contains the module. On Windows, the command is not changed; call `tie_tree` after the start
    instead.
    """
    if sys.platform == "win32":
        return tuple(command)
    module = "proxy.processes.parent_death"
    target = ("-m", module) if getattr(sys, "frozen", False) else (wrapper,)
    return (sys.executable, "-P", "-S", *target, str(os.getpid()), *command)


# Windows: process id -> the handle of the job object that contains the process
_jobs: dict[int, int] = {}


def tie_tree(pid: int) -> Callable[[], object]:
    """Let a program and its children end when this process ends (Windows).

    Returns a function to call after the program has ended.
    """
    if sys.platform == "win32":
        kernel = ctypes.windll.kernel32
        kernel.CreateJobObjectW.restype = kernel.OpenProcess.restype = ctypes.c_void_p
        job, limits = ctypes.c_void_p(kernel.CreateJobObjectW(None, None)), _JobLimits()
        limits.flags = _KILL_ON_JOB_CLOSE
        size = ctypes.sizeof(limits)
        kernel.SetInformationJobObject(job, _EXTENDED_LIMITS, ctypes.byref(limits), size)
        process = ctypes.c_void_p(kernel.OpenProcess(_SET_QUOTA | _TERMINATE, 0, pid))
        kernel.AssignProcessToJobObject(job, process)
        kernel.CloseHandle(process)
        _jobs[pid] = job.value or 0
    return lambda: _close_job(pid)  # on other systems, `tie_to_parent` is sufficient


def _close_job(pid: int) -> None:
    job = _jobs.pop(pid, None)
    if sys.platform == "win32" and job is not None:
        ctypes.windll.kernel32.CloseHandle(ctypes.c_void_p(job))


# winnt.h
_EXTENDED_LIMITS, _KILL_ON_JOB_CLOSE, _SET_QUOTA, _TERMINATE = 9, 0x2000, 0x0100, 0x0001


class _JobLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION (winnt.h); only `flags` is used."""

    _fields_ = (
        ("times", ctypes.c_int64 * 2),
        ("flags", ctypes.c_uint32),
        ("sizes", ctypes.c_size_t * 2),
        ("processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("classes", ctypes.c_uint32 * 2),
        ("io", ctypes.c_uint64 * 6),
        ("memory", ctypes.c_size_t * 4),
    )


@contextmanager
def _polled_keys(on_key: Callable[[bytes], object]) -> Generator[None, None, None]:
    """Poll for keys in a thread, because a Windows console has no way to wait for them."""
    is_over = threading.Event()

    def poll() -> None:
        if sys.platform == "win32":
            import msvcrt

            while not is_over.wait(0.05):
                if msvcrt.kbhit():
                    on_key(msvcrt.getwch().encode())

    thread = threading.Thread(target=poll, daemon=True, name="keyboard")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
