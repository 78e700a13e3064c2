"""Starts `python -m proxy` as a fork of a process that has already imported it.

Importing Temper takes half a second of CPU time, and tests start it 150 times. The fork is a
separate process: a child of the test with its own id, environment, folder, pipes, signals and exit
code, which runs the command from its first line. A fork shows nothing about
the time of imports, and ignores variables that modules read when they are imported. Therefore a new
interpreter is started if a test sets such a variable, and on systems other than Linux.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import AnyStr, Literal, TextIO

COMMAND = (sys.executable, "-m", "proxy")
_MODULES = ("proxy", "benchmarks")  # tests rarely start others
_REPOSITORY = Path(__file__).parents[2]
_MOST_BYTES = 1 << 20
_MOST_DESCRIPTORS = 256  # a limit; the forked process has a dozen file descriptors
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
# variables that interpreters and libraries read before Temper does
_READ_AT_IMPORT = re.compile(r"(PYTHON|OTEL_|PROMETHEUS_|LC_|LD_|COV)\w*|LANG(UAGE)?|TZ")

_IMPORTED = (
    *("proxy.api.server", "proxy.api.workers", "proxy.cli.terminal", "proxy.cli.top"),
    *("proxy.doctor.checks", "proxy.doctor.report", "proxy.mcp.connecting"),
    *("proxy.serving.opening", "temper_evals.demo.demonstration"),
    *("anyio._backends._asyncio", "httpcore", "h11", "uvicorn.lifespan.on"),
)


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that modules read while they are imported."""
    return {name: text for name, text in environment.items() if _READ_AT_IMPORT.fullmatch(name)}


class Imported:
    """The process that has imported Temper; the first test that needs a fork starts it."""

    def __init__(self) -> None:
        # created at the import, before any test checks for leaked sockets
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._lock = threading.Lock()
        atexit.register(self._end)

    def can_have(self, environment: Mapping[str, str]) -> bool:
        """Return whether a fork can have this environment."""
        with self._lock:
            if self._process is None:
                self._start()
        return read_at_import(environment) == self._environment

    def fork(self, order: Mapping[str, object], descriptors: Sequence[int]) -> int:
        """Fork a program with these standard streams; return the id of the new child."""
        with self._lock, _adopting_orphans():
            socket.send_fds(self._ours, [json.dumps(order).encode()], descriptors)
            return int(self._ours.recv(_MOST_BYTES))

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        self._environment = read_at_import(environment)
        number = self._theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.quick_start", f"{number}"],
            stdin=subprocess.DEVNULL,
            pass_fds=(number,),
            env=environment,
            cwd=_REPOSITORY,
        )
        self._theirs.close()

    def _end(self) -> None:
        self._ours.close()
        self._theirs.close()
        if self._process is not None:
            self._process.wait()


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Adopt orphaned grandchildren: only a parent can wait for its child."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


_imported = Imported() if sys.platform == "linux" and __name__ != "__main__" else None


class Program(subprocess.Popen[AnyStr]):
    """A `Popen` that forks if the command is a module of Temper."""

    def _execute_child(  # the base class calls this after it has created the pipes
        self,
        args: Sequence[str],
        executable: object,
        preexec_fn: object,
        close_fds: object,
        pass_fds: object,
        cwd: "str | os.PathLike[str] | None",
        env: Mapping[str, str] | None,
        startupinfo: object,
        creationflags: object,
        shell: object,
        *others: int,
    ) -> None:
        environment = {"PYTHONIOENCODING": "utf-8", **(os.environ if env is None else env)}
        if (
            _imported is None
            or tuple(args[:2]) != COMMAND[:2]
            or args[2] not in _MODULES
            or not _imported.can_have(environment)
        ):
            super()._execute_child(  # type: ignore[misc]
                *(args, executable, preexec_fn, close_fds, pass_fds, cwd, env),
                *(startupinfo, creationflags, shell, *others),
            )
            return
        *pipes, _signals, _gid, _gids, _uid, _umask, is_leader, _group = others
        order = {
            "module": args[2],
            "arguments": [*args[3:]],
            "environment": environment,
            "folder": os.fspath(cwd or Path.cwd()),
            "is_leader": bool(is_leader),
        }
        streams = pipes[0], pipes[3], pipes[5]
        self.pid = _imported.fork(
            order, [default if given == -1 else given for default, given in enumerate(streams)]
        )
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _serve(connection: socket.socket) -> str:
    """Fork a child for each order; returns only in the child, with the module to run."""
    while True:
        order, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        if not order:
            raise SystemExit
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                connection.detach()
                return _become(json.loads(order), descriptors)
            os.write(writing, b"%d" % child)
            os._exit(0)
        os.waitpid(between, 0)  # the grandchild is now a child of the test
        connection.send(os.read(reading, 32))
        for descriptor in (*descriptors, reading, writing):
            os.close(descriptor)


def _become(order: Mapping[str, object], descriptors: Sequence[int]) -> str:
    """Take over the state of a new interpreter; return the module to run."""
    if order["is_leader"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, _MOST_DESCRIPTORS)
    arguments, environment, folder = order["arguments"], order["environment"], order["folder"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.chdir(str(folder))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(order["module"]), *arguments]
    sys.path[0] = str(folder)
    sys.stdin = _stream(0, "r")
    sys.stdout = _stream(1, "w")
    sys.stderr = _stream(2, "w")
    return str(order["module"])


def _stream(number: int, mode: Literal["r", "w"]) -> TextIO:
    """Open a standard stream as a starting interpreter does."""
    is_line_buffered = number == 2 or os.isatty(number)
    errors = "backslashreplace" if number == 2 else "strict"
    return open(number, mode, 1 if is_line_buffered else -1, "utf-8", errors, closefd=False)


def _import_temper() -> None:
    """Import the modules that the command imports, at start and when its subcommands run."""
    importlib.import_module("proxy.cli.app")
    event_loop = importlib.import_module("proxy.api.event_loop")
    event_loop.import_libraries()
    event_loop.loop_factory()
    for name in _IMPORTED:
        with suppress(ModuleNotFoundError):  # extras may not be installed
            importlib.import_module(name)
    gc.freeze()  # so that the garbage collector of a fork does not traverse all modules at exit


if __name__ == "__main__":
    at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests end this process
    _import_temper()
    module = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, at_interrupt)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
