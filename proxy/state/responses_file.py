"""Stores responses in a SQLite file, which survives a restart and is shared by several workers.

One thread has the connection and runs all operations in order. `keep` returns at once, so it does
not block the event loop; an answer awaits `flush` before its client may refer to the response. The
reading functions block, and are called in other threads. A response that cannot be written is lost,
counted and logged; a response that cannot be read counts as missing. In both cases, the request
does not fail.
"""

import asyncio
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.errors import InvalidConfiguration, StateUnavailable
from proxy.state.memory_responses import Bounds
from proxy.state.responses_table import SCHEMA, ResponsesTable
from proxy.systems import keep_private

logger = logging.getLogger(__name__)

_FLUSH_SECONDS = 2.0  # maximum time that an answer waits for the disk
_READ_SECONDS = 10.0  # maximum time that a request waits for its previous response
_MOST_UNWRITTEN = 16 * 2**20  # maximum bytes in the queue of a slow disk
# SQLite's error code -> the reason that is counted and logged
_REASONS = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}
_OTHER, _SLOW = "unwritable", "slow"
LOSSES = (*dict.fromkeys(_REASONS.values()), _OTHER, _SLOW)

Read = TypeVar("Read")

BUSY_SECONDS = 1.0  # maximum time that a write waits for other processes
_APPLICATION, _VERSION = 0x54656D70, 1  # "Temp", in the file's header
_MOST_TRIES, _PAUSE = 40, 0.05  # 40 tries in two seconds
_SETUP = (
    "PRAGMA synchronous = NORMAL",  # a power failure may lose responses, not the file
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # deleted data is overwritten
    "PRAGMA journal_size_limit = 1048576",
)


def open_database(path: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open or create a file that only its owner can read.

    A write waits `busy_seconds` for other writers, then fails. Raises `InvalidConfiguration` if the
    file cannot be written, is damaged, or belongs to another program.
    """
    with _explain_errors(path):
        # created here, because SQLite would create it with the permissions of the umask
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        keep_private(file)
        os.close(file)
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def examine_responses(path: Path) -> None:
    """Check that a file can be opened or created, without creating it.

    Raises as `open_database` does.
    """
    if path.exists():
        open_database(path).close()
        return
    try:
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            pass
    except OSError as error:
        raise _unusable(path, f"cannot be created: {error.strerror}") from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if (result := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(result.splitlines()[-1])
    # `is_empty` is read before the application id, because another process may create the tables
    # and set the id between the two reads. In the other order, this process would see tables but no
    # id, and reject the file as that of another program.
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION and not is_empty:
        raise _unusable(path, "is the database of another program; name another file")
    if version > _VERSION:
        raise _unusable(path, "was written by a newer version of Temper; name another file")
    _use_write_ahead_log(connection)
    for statement in _SETUP:
        connection.execute(statement)
    connection.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging: processes can read while another process writes."""
    # SQLite's busy timeout does not apply to this change, so it is retried here
    for attempt in range(_MOST_TRIES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if attempt == _MOST_TRIES - 1:
                raise
            time.sleep(_PAUSE)
        else:
            return


@contextmanager
def _explain_errors(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise _unusable(path, f"cannot be opened: {error.strerror}") from error
    except sqlite3.OperationalError as error:  # locked, read-only, or full
        raise _unusable(path, f"cannot be used: {error}") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise _unusable(path, f"is damaged ({error}); remove it, or name another file") from error


def _unusable(path: Path, problem: str) -> InvalidConfiguration:
    return InvalidConfiguration("responses.path", f"{path} {problem}")


@contextmanager
def open_responses(
    path: Path,
    bounds: Bounds | None = None,
    on_loss: Callable[[str], None] = lambda _reason: None,
    *,
    busy_seconds: float = BUSY_SECONDS,
) -> Generator["ResponsesFile", None, None]:
    """Open a file, and close it after all writes; raises `InvalidConfiguration`.

    If a response is not stored, `on_loss` is called with the reason (one of `LOSSES`), in any
    thread. A write waits at most `busy_seconds` for other processes.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="responses") as thread:
        connection = thread.submit(open_database, path, busy_seconds).result()
        try:
            opening = thread.submit(ResponsesTable, connection, time.time, bounds or Bounds())
            with _explain_errors(path):  # `quick_check` does not verify indexes
                table = opening.result()
            yield ResponsesFile(path, table, thread, on_loss)
        finally:
            thread.submit(connection.close).result()


@dataclass(eq=False)
class ResponsesFile(ResponseStore):
    """Stores responses by owner; the owner is the API key of the request."""

    _path: Path
    _table: ResponsesTable
    _thread: ThreadPoolExecutor
    _on_loss: Callable[[str], None]
    _unwritten: dict[Future[None], int] = field(default_factory=dict)
    _last_loss: str = ""

    def keep(self, owner: str, response: StoredResponse) -> None:
        """Queue a response for writing; `flush` waits until it is written."""
        # a copy of the values, because the writing thread may remove entries during the sum
        if sum([*self._unwritten.values()]) + response.size > _MOST_UNWRITTEN:
            self._lose(_SLOW, "the operation takes too long")
            return
        writing = self._thread.submit(self._write, owner, response)
        self._unwritten[writing] = response.size
        writing.add_done_callback(lambda done: self._unwritten.pop(done, None))

    async def flush(self) -> None:
        """Wait, for at most two seconds, until other workers can read all stored responses."""
        if pending := [asyncio.wrap_future(writing) for writing in [*self._unwritten]]:
            await asyncio.wait(pending, timeout=_FLUSH_SECONDS)

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        return self._read(lambda: self._table.find(owner, response_id))

    def chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        return self._read(lambda: self._table.chain(owner, response_id)) or []

    def item(self, owner: str, item_id: str) -> bytes | None:
        return self._read(lambda: self._table.item(owner, item_id))

    def forget(self, owner: str, response_id: str) -> bool:
        """Delete a response; return whether it existed. Raises `StateUnavailable` if that fails."""
        return self._run(lambda: self._table.forget(owner, response_id))

    def _write(self, owner: str, response: StoredResponse) -> None:
        try:
            self._table.keep(owner, response)
        except sqlite3.Error as error:
            self._lose(_reason(error), str(error))
        else:
            self._last_loss = ""

    def _read(self, read: Callable[[], Read]) -> Read | None:
        with suppress(StateUnavailable):
            return self._run(read)
        return None

    def _run(self, operation: Callable[[], Read]) -> Read:
        """Run an operation in the connection's thread; raises `StateUnavailable`."""
        try:
            return self._thread.submit(operation).result(_READ_SECONDS)
        except sqlite3.Error as error:
            reason, detail = _reason(error), str(error)
        except TimeoutError:
            reason, detail = _SLOW, "the operation takes too long"
        logger.warning("%s cannot be used: %s", self._path, detail)
        raise StateUnavailable(f"The file of stored responses is {reason} (responses.path)")

    def _lose(self, reason: str, detail: str) -> None:
        """Count a response that was not stored; log it unless the last reason was the same."""
        self._on_loss(reason)
        if reason != self._last_loss:
            logger.warning("%s: responses are not stored (%s)", self._path, detail)
        self._last_loss = reason


def _reason(error: sqlite3.Error) -> str:
    # errors of Python's module have no code, e.g. for a text that is not UTF-8
    return _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, _OTHER)
