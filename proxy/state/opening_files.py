"""Opens the SQLite file that responses are kept in, or says in one sentence why it cannot be."""

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from proxy.errors import InvalidConfiguration

SETTING = "responses.path"

BUSY_SECONDS = 1.0
_APPLICATION, _VERSION = 0x54656D70, 1
_MOST_TRIES, _PAUSE = 40, 0.05
_SETUP = (
    "PRAGMA synchronous = NORMAL",  # a power cut may lose the last responses, and never the file
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # what is forgotten is overwritten
    "PRAGMA journal_size_limit = 1048576",
)


def open_database(
    path: Path, schema: Iterable[str], busy_seconds: float = BUSY_SECONDS
) -> sqlite3.Connection:
    """Open a file, or make it, readable for its owner only.

    A write waits `busy_seconds` for those of others, and fails then. Raises `InvalidConfiguration`
    where the file cannot be written, is damaged, or is somebody else's.
    """
    try:
        _create(path)
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
        try:
            _prepare(connection, path, schema)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise _unusable(path, f"cannot be opened: {error.strerror}") from error
    except sqlite3.OperationalError as error:  # locked, not to be written, no room
        raise _unusable(path, f"cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise _unusable(path, f"is damaged ({error}); remove it, or name another file") from error
    return connection


def examine_file(path: Path, schema: Iterable[str]) -> None:
    """Find out whether a file could be opened, without making one; raises as `open_database`."""
    if path.exists():
        with closing(open_database(path, schema)):
            return
    try:
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            pass
    except OSError as error:
        raise _unusable(path, f"cannot be made: {error.strerror}") from error


def _create(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(PermissionError):  # somebody else's file, that we may use
        os.fchmod(file, 0o600)
    os.close(file)


def _prepare(connection: sqlite3.Connection, path: Path, schema: Iterable[str]) -> None:
    if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(found.splitlines()[-1])
    # first, as somebody else may make the tables now, and the mark with them
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
    for statement in schema:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let several read while one writes; the change of the mode does not wait for others itself."""
    for tried in range(_MOST_TRIES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if tried == _MOST_TRIES - 1:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _unusable(path: Path, problem: str) -> InvalidConfiguration:
    return InvalidConfiguration(SETTING, f"{path} {problem}")
