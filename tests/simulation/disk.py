"""The disk with Temper's files: it fails, is slow, and loses the last writes in a power cut.

SQLite writes to real files. A disk failure is simulated as an error of an SQL statement, and a
power cut as a copy of the files whose write-ahead log ends at a random byte. A read-only disk fails
only operations that write. If flushing fails, a transaction whose COMMIT fails may be stored or
not. The threads that write are replaced with callbacks in the event loop.
"""

import asyncio
import errno
import os
import random
import shutil
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent import futures
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, Unpack
from unittest.mock import patch

from proxy.state import responses_file
from tests.simulation.network import HOST
from tests.simulation.scenario import DiskTrouble

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

DiskState: TypeAlias = Literal["good"] | DiskTrouble


class _Problem(NamedTuple):
    """A disk error: the code and the text of SQLite, and the `errno` of the system."""

    code: int
    text: str
    number: int


_PROBLEMS = {
    "disk fails": _Problem(sqlite3.SQLITE_IOERR, "disk I/O error", errno.EIO),
    "disk full": _Problem(sqlite3.SQLITE_FULL, "database or disk is full", errno.ENOSPC),
    "disk read-only": _Problem(
        sqlite3.SQLITE_READONLY, "attempt to write a readonly database", errno.EROFS
    ),
    "disk not flushed": _Problem(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error", errno.EIO),
}
_READS = ("SELECT", "WITH", "PRAGMA quick_check", "PRAGMA app", "PRAGMA user", "BEGIN")
_USUAL_SECONDS, _SLOW_SECONDS = 0.01, 4.0  # durations of the slowest operation
_FAILED = 0.7  # share of the operations that fail on a disk with a problem
_os_open, _os_write, _os_fsync = os.open, os.write, os.fsync


@dataclass
class Disk:
    """The files of a run: stored responses and a recording.

    Their paths change with each crash; see `cut_power`.
    """

    folder: Path
    chance: random.Random
    state: DiskState = "good"
    occurrences: Counter[str] = field(default_factory=Counter)
    _cuts: int = 0

    @property
    def responses(self) -> Path:
        return self.folder / f"responses-{self._cuts}.db"

    @property
    def recording(self) -> Path:
        return self.folder / f"recording-{self._cuts}.jsonl"

    @property
    def caches(self) -> Path:
        """The folder of the prompt caches; a power cut does not change them."""
        return self.folder / "caches"

    @contextmanager
    def installed(self) -> Generator[None]:
        """Replace the functions that open, read and write files while the block runs."""
        with ExitStack() as stack:
            enter = stack.enter_context
            connect = partial(sqlite3.connect, factory=partial(_Connection, self))
            enter(patch.object(sqlite3, "connect", connect))
            for module in (responses_file, futures):  # a recording uses `futures`
                enter(patch.object(module, "ThreadPoolExecutor", partial(_Thread, self)))
            for name in ("open", "write", "fsync"):
                enter(patch.object(os, name, getattr(self, f"_{name}")))
            for name in ("replace", "unlink", "utime", "listdir", "scandir"):
                enter(patch.object(os, name, self._failing(getattr(os, name))))
            yield

    def cut_power(self, *, loses: bool) -> None:
        """Copy the files as they are after a crash; if `loses`, without the end of the last writes.

        The killed process still has the old files open, so the next process gets the copies.
        """
        before = self.responses, self.recording
        self._cuts += 1
        for old, new in zip(before, (self.responses, self.recording), strict=True):
            if old.exists():
                shutil.copy(old, new)
        log = before[0].with_name(f"{before[0].name}-wal")
        if log.exists():
            copied = self.responses.with_name(f"{self.responses.name}-wal")
            shutil.copy(log, copied)
            if loses:
                self._cut(copied)
        if loses and self.recording.exists():
            self._cut(self.recording)

    def seconds(self) -> float:
        """Draw the duration of an operation."""
        most = _SLOW_SECONDS if self.state == "disk slow" else _USUAL_SECONDS
        return self.chance.random() * most

    def problem(self, *, writes: bool = True) -> _Problem | None:
        """Draw whether an operation other than a flush fails."""
        if self.state == "disk not flushed" or (self.state == "disk read-only" and not writes):
            return None
        return self._draw(1.0 if self.state == "disk read-only" else _FAILED)

    def problem_of_flush(self) -> _Problem | None:
        """Draw whether a flush fails."""
        return self._draw(_FAILED) if self.state == "disk not flushed" else self.problem()

    def _draw(self, share: float) -> _Problem | None:
        if self.state in _PROBLEMS and self.chance.random() < share:
            self.occurrences["failed disk operations"] += 1
            return _PROBLEMS[self.state]
        return None

    def _cut(self, file: Path) -> None:
        self.occurrences["torn files"] += 1
        size = file.stat().st_size
        # lose up to 9,000 bytes, nothing, or the whole file
        kept = self.chance.choice((size - self.chance.randint(0, min(size, 9000)), size, 0))
        os.truncate(file, kept)

    def _open(
        self, path: "str | Path", flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and f"{path}".startswith(f"{self.folder}"):
            _fail(self.problem())
        return _os_open(path, flags, mode, dir_fd=dir_fd)

    def _failing(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Wrap a function of `os`, so that it fails for Temper's files while the disk fails."""
        writes = function not in (os.listdir, os.scandir)

        def call(*args: _P.args, **options: _P.kwargs) -> _T:
            if HOST.get().startswith("temper") and f"{args[0]}".startswith(f"{self.folder}"):
                _fail(self.problem(writes=writes))
            return function(*args, **options)

        return call

    def _fsync(self, file: int) -> None:
        if HOST.get().startswith("temper"):
            _fail(self.problem_of_flush())
        _os_fsync(file)

    def _write(self, file: int, data: bytes) -> int:
        problem = self.problem() if HOST.get().startswith("temper") else None
        if problem is None:
            return _os_write(file, data)
        is_partial = problem.number != errno.EROFS and self.chance.random() < 0.5
        length = self.chance.randint(0, len(data)) if is_partial else 0
        if not length:
            _fail(problem)
        return _os_write(file, data[:length])


def _fail(problem: _Problem | None) -> None:
    if problem is not None:
        raise OSError(problem.number, os.strerror(problem.number))


class _Connection(sqlite3.Connection):
    """A connection to a file on the simulated disk."""

    def __init__(
        self, disk: Disk, path: Path, *, timeout: float, isolation_level: None, factory: object
    ) -> None:
        del factory  # a connection always has this class
        super().__init__(
            path,
            timeout=timeout,
            isolation_level=isolation_level,
            check_same_thread=False,  # see `threads`
        )
        self._disk = disk

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        self._perhaps_fail(sql)
        return super().execute(sql, *parameters)  # type: ignore[arg-type]

    def executemany(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        self._perhaps_fail(sql)
        return super().executemany(sql, *parameters)  # type: ignore[arg-type]

    def _perhaps_fail(self, sql: str) -> None:
        if sql == "ROLLBACK":
            return
        disk = self._disk
        is_commit = sql == "COMMIT"
        writes = sql == "BEGIN IMMEDIATE" or not sql.startswith(_READS)
        problem = disk.problem_of_flush() if is_commit else disk.problem(writes=writes)
        if problem is None:
            return
        if is_commit and disk.chance.random() < 0.5:
            super().execute(sql)
        # SQLite rolls back automatically after some errors, but not after others
        if self.in_transaction and disk.chance.random() < 0.5:
            super().execute("ROLLBACK")
        error = sqlite3.OperationalError(problem.text)
        error.sqlite_errorcode = problem.code
        raise error


class _Result(Future[_T]):
    """The future of a submitted function; `result()` first runs all functions in the queue."""

    def __init__(self, thread: "_Thread") -> None:
        super().__init__()
        self._thread = thread

    def result(self, timeout: float | None = None) -> _T:
        if not self.done():
            self._thread.drain()
        return super().result(timeout)


class _Thread:
    """A `ThreadPoolExecutor(1)` without a thread: the event loop runs its functions in order."""

    def __init__(self, disk: Disk, _count: int, *, thread_name_prefix: str) -> None:
        self._disk, self._name = disk, thread_name_prefix
        self._queue: deque[Callable[[], None]] = deque()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> "_Thread":
        return self

    def __exit__(self, *_error: object) -> None:
        self.drain()

    def submit(self, function: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> "Future[_T]":
        future = _Result[_T](self)

        def run() -> None:
            try:
                future.set_result(function(*args))
            except Exception as error:  # noqa: BLE001 - goes to the caller
                future.set_exception(error)

        self._queue.append(run)
        self._loop.call_later(self._disk.seconds(), self._run_next)
        return future

    def shutdown(self) -> None:
        self.drain()

    def drain(self) -> None:
        while self._queue:
            self._run_next()

    def _run_next(self) -> None:
        if self._queue:  # `drain` may have run the function already
            self._queue.popleft()()
