"""Simulates another operating system for Temper: hides the modules that only POSIX has.

As a plugin: `TEMPER_TESTS_SYSTEM=win32 pytest -p tests.other_systems tests/unit/conversation`.
Third-party modules and the standard library are imported before, so they still use POSIX.
"""

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator

PACKAGES = ("proxy", "temper", "temper_evals")
POSIX_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty", "uvloop")
# attributes that only POSIX has
POSIX_NAMES = {
    os: (
        *(
            "fork",
            "forkpty",
            "fchmod",
            "getpgid",
            "getuid",
            "geteuid",
            "killpg",
            "mkfifo",
            "openpty",
        ),
        *("sched_getaffinity", "sched_setaffinity", "setsid", "sysconf", "uname", "O_NOCTTY"),
        *("set_blocking", "register_at_fork", "getloadavg", "wait4", "O_NONBLOCK", "WNOHANG"),
    ),
    signal: (
        *("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGPIPE", "SIGALRM", "SIGSTOP"),
        *("SIGWINCH", "SIGQUIT", "pthread_sigmask", "siginterrupt", "setitimer"),
    ),
}
# modules that need an extra or a system that is missing here, or that start a program at import
_NOT_TO_IMPORT = {"proxy.scaling.serve", "temper_evals.inspect"}


def modules() -> Iterator[str]:
    """Yield the names of all modules of Temper and its tools."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield name
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__") and module.name not in _NOT_TO_IMPORT:
                yield module.name


def import_all() -> list[str]:
    """Import every module of Temper, except those that need missing extras."""
    imported = []
    for name in modules():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name in POSIX_MODULES or (missing.name or "").startswith(PACKAGES):
                raise
        else:
            imported.append(name)
    return imported


def forget_all() -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]


def become(system: str) -> list[str]:
    """Simulate a system without POSIX modules; `system` is a value of `sys.platform`.

    Returns the names of the modules that could be imported before.
    """
    before = import_all()
    forget_all()
    sys.platform = system
    hidden = POSIX_MODULES if system == "win32" else ("uvloop",)
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in POSIX_NAMES.items() if system == "win32" else ():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    if system == "win32":
        subprocess.CREATE_NEW_PROCESS_GROUP = 0x200  # type: ignore[attr-defined]
    return before


def pytest_collection() -> None:
    """Change the system only now, because the startup of pytest needs the real one."""
    become(os.environ["TEMPER_TESTS_SYSTEM"])


def _is_hidden(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return True
    return False


def _try(system: str) -> None:
    """Simulate a system; report the modules that fail to import, and the hidden modules."""
    before = become(system)
    hidden = [name for name in POSIX_MODULES if _is_hidden(name)]
    lost = sorted({*before} - {*import_all()})
    sys.stdout.write(json.dumps({"system": system, "lost": lost, "hidden": hidden}) + "\n")
    sys.stdout.flush()


def _try_in_fork(system: str) -> int:
    """Try a system in a fork, because imports take seconds; return its exit status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        _try(system)
    except BaseException:  # noqa: BLE001 - the child must not return to the caller
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    import_all()
    sys.exit(bool(max(map(_try_in_fork, sys.argv[1:]))))
