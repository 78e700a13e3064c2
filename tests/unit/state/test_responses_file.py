import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from proxy.dialects.openai_responses.store import StoredResponse
from proxy.errors import InvalidConfiguration, StateUnavailable
from proxy.observability.metrics import METRICS
from proxy.state import responses_file
from proxy.state.memory_responses import Bounds
from proxy.state.responses_file import (
    LOSSES,
    ResponsesFile,
    examine_responses,
    open_database,
    open_responses,
)
from proxy.state.responses_table import ResponsesTable
from tests.timeouts import TIMEOUT_SECONDS

STORE = """INSERT INTO responses (owner, id, size, used_at, whole)
    VALUES (x'00', hex(randomblob(8)), 0, 0, ?)"""


def write_database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_a_new_database_has_mode_0600_and_can_be_reopened(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    for expected in (1, 2):
        with closing(open_database(path)) as connection:
            connection.execute(STORE, (b"{}",))
            files = [*tmp_path.iterdir()]
            assert len(files) == 3  # with the write-ahead log and its index
            assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
            assert connection.execute("SELECT count(*) FROM responses").fetchone() == (expected,)
    examine_responses(path)


def test_an_existing_file_gets_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    path.touch(0o644)
    open_database(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_examine_responses_creates_no_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    examine_responses(path)
    assert not path.exists()


def test_a_file_that_is_not_a_database_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    for use in (open_database, examine_responses):
        with pytest.raises(InvalidConfiguration) as caught:
            use(path)
        assert str(caught.value) == (
            f"responses.path: {path} is damaged (file is not a database); remove it, or name "
            "another file"
        )


def test_a_database_with_a_damaged_page_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    with closing(open_database(path)) as connection:
        connection.executemany(STORE, [("x" * 500,)] * 100)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    with pytest.raises(InvalidConfiguration, match=r"is damaged \(.+\); remove it"):
        open_database(path)


def test_a_database_whose_schema_is_not_utf_8_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    open_database(path).close()
    path.write_bytes(path.read_bytes().replace(b"autoindex", b"auto\x96ndex"))
    with pytest.raises(InvalidConfiguration, match=r"is damaged \(.+\); remove it"):
        open_database(path)


def test_the_database_of_another_program_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = write_database(tmp_path / "other.sqlite", "CREATE TABLE songs (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(InvalidConfiguration, match="is the database of another program"):
        open_database(path)
    assert path.read_bytes() == before


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    open_database(path).close()
    write_database(path, "PRAGMA user_version = 99")
    with pytest.raises(InvalidConfiguration, match="written by a newer version of Temper"):
        open_database(path)


def test_a_folder_as_responses_path_raises_invalid_configuration(tmp_path: Path) -> None:
    for use in (open_database, examine_responses):
        with pytest.raises(InvalidConfiguration, match="cannot be opened: Is a directory"):
            use(tmp_path)


def test_a_responses_path_in_a_missing_folder_raises_invalid_configuration(tmp_path: Path) -> None:
    path = tmp_path / "none" / "kept.sqlite"
    with pytest.raises(InvalidConfiguration, match="cannot be created: No such file"):
        examine_responses(path)
    with pytest.raises(InvalidConfiguration, match="cannot be opened: No such file"):
        open_database(path)


def test_a_locked_database_is_reported_as_locked_and_not_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    open_database(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InvalidConfiguration, match="cannot be used: database is locked"):
            open_database(path, 0.01)


def response(name: str, previous: str | None = None, size: int = 0) -> StoredResponse:
    items = b'{"id":"%b_in","text":"%b"}' % (name.encode(), b"x" * size)
    return StoredResponse(name, [items], [b'{"id":"%b_out"}' % name.encode()], b"{}", previous)


def keep(file: ResponsesFile, *responses: StoredResponse) -> None:
    """Store several responses, and flush after each."""

    async def answer() -> None:
        for response in responses:
            file.keep("me", response)
            await file.flush()

    asyncio.run(answer())


def open_patiently(
    path: Path, bounds: Bounds | None = None
) -> AbstractContextManager[ResponsesFile]:
    """Open a file; writes wait long enough for concurrent writers on a slow disk."""
    return open_responses(path, bounds, busy_seconds=TIMEOUT_SECONDS)


def open_for_any_thread(path: Path) -> sqlite3.Connection:
    """Open a file with a connection that any thread may use."""
    open_database(path).close()
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


@contextmanager
def open_parts(
    connection: sqlite3.Connection, lost: list[str]
) -> Iterator[tuple[ResponsesFile, ThreadPoolExecutor]]:
    """Yield a responses file and its thread; reasons of lost responses are appended to `lost`."""
    with ThreadPoolExecutor(1) as thread:
        table = ResponsesTable(connection, lambda: 1_700_000_000.0, Bounds())
        yield ResponsesFile(Path("kept.sqlite"), table, thread, lost.append), thread


@pytest.fixture(autouse=True)
def _wait_for_slow_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for longer than usual: on a busy machine the disk may be slow for seconds."""
    monkeypatch.setattr(responses_file, "_MOST_TRIES", round(TIMEOUT_SECONDS / 0.05))
    for name in ("_FLUSH_SECONDS", "_READ_SECONDS"):
        monkeypatch.setattr(responses_file, name, TIMEOUT_SECONDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept.sqlite"


def test_responses_are_found_after_the_file_was_reopened(path: Path) -> None:
    with open_responses(path) as file:
        keep(file, response("a"), response("b", "a"))
    with open_responses(path) as file:
        assert file.find("me", "b") == response("b", "a")
        assert len(file.history("me", "b") or ()) == 4
        assert len(file.inputs("me", "b") or ()) == 3
        assert file.item("me", "a_out") == b'{"id":"a_out"}'
        assert file.find("you", "b") is None
        assert file.forget("me", "b")
        assert not file.forget("me", "b")
        assert file.find("me", "b") is None


def test_two_open_files_of_the_same_path_share_responses(path: Path) -> None:
    with open_patiently(path) as first, open_patiently(path) as other:
        keep(first, response("a"))
        keep(other, response("b", "a"))
        assert len(first.history("me", "b") or ()) == len(other.history("me", "b") or ()) == 4
        assert first.forget("me", "a")
        assert other.find("me", "a") is None


def test_four_threads_can_create_the_same_file_concurrently(path: Path) -> None:
    gate = threading.Barrier(4)
    problems: list[Exception] = []

    def use(name: str) -> None:
        try:
            gate.wait()
            with open_patiently(path) as file:
                keep(file, response(name))
        except (InvalidConfiguration, sqlite3.Error) as error:
            problems.append(error)

    threads = [threading.Thread(target=use, args=(f"r{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with open_responses(path) as file:
        assert all(file.find("me", f"r{number}") for number in range(4))


def test_all_processes_that_open_a_file_share_its_limit_of_responses(path: Path) -> None:
    bounds = Bounds(responses=2)
    with open_patiently(path, bounds) as first, open_patiently(path, bounds) as other:
        keep(first, response("a"))
        keep(other, response("b"))
        keep(first, response("c"))
        assert other.find("me", "a") is None
        assert other.find("me", "b") is not None


def test_no_response_is_stored_and_one_warning_is_logged_while_the_file_is_locked(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[str] = []
    with open_responses(path, on_loss=lost.append, busy_seconds=0.01) as file:
        keep(file, response("before"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            keep(file, response("a"), response("b"))
            assert file.find("me", "before") is not None
        assert file.find("me", "a") is None
        assert lost == ["locked", "locked"]
        warning = f"{path}: responses are not stored (database is locked)"
        assert caplog.messages.count(warning) == 1
        keep(file, response("c"))
        assert file.find("me", "c") is not None


def test_a_response_that_does_not_fit_on_the_disk_is_not_stored(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[str] = []
    with closing(open_for_any_thread(path)) as connection, open_parts(connection, lost) as parts:
        file, _ = parts
        connection.execute("PRAGMA max_page_count = 20")
        keep(file, response("a", size=100_000))
        assert file.find("me", "a") is None
        keep(file, response("b"))
        assert file.find("me", "b") is not None
    assert lost == ["full"]
    assert "database or disk is full" in caplog.text


def test_no_responses_are_found_in_a_file_that_is_damaged_while_it_is_open(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[str] = []
    with open_responses(path, on_loss=lost.append) as file:
        keep(file, response("a"))
        with closing(sqlite3.connect(path)) as other:
            other.executescript("DROP TABLE items; DROP TABLE responses")
        keep(file, response("b"))
        assert file.find("me", "a") is None
        assert file.history("me", "a") is None
        with pytest.raises(StateUnavailable, match="unwritable"):
            file.forget("me", "a")
    assert "cannot be used" in caplog.text
    assert lost == ["unwritable"]


def test_responses_above_the_memory_limit_are_dropped_while_the_disk_is_slow(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[str] = []
    with closing(open_for_any_thread(path)) as connection, open_parts(connection, lost) as parts:
        file, thread = parts
        gate = threading.Event()
        thread.submit(gate.wait)
        large = [response(f"r{number}", size=6 * 2**20) for number in range(3)]
        for response_ in large:
            file.keep("me", response_)
        assert lost == ["slow"]
        gate.set()
        asyncio.run(file.flush())
        assert file.find("me", "r1") is not None
        assert file.find("me", "r2") is None
    assert "the operation takes too long" in caplog.text


def test_opening_a_damaged_file_raises_invalid_configuration(path: Path) -> None:
    path.write_bytes(b"something else" * 1000)
    with pytest.raises(InvalidConfiguration, match="is damaged"), open_responses(path):
        pytest.fail("it was opened")
    with pytest.raises(InvalidConfiguration, match="is damaged"):
        examine_responses(path)


def test_the_metric_of_unstored_responses_lists_every_reason() -> None:
    assert all(reason in METRICS["temper_unstored_responses_total"].meaning for reason in LOSSES)


def test_storing_a_response_logs_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with open_responses(path) as file:
        keep(file, response("a"))
    assert [record for record in caplog.records if record.name.startswith("proxy")] == []
