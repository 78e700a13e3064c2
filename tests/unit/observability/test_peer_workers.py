import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from proxy.observability.history import Counts, History, ProcessCounts, totals_of
from proxy.observability.peer_workers import (
    BoardRequest,
    BoardResponse,
    SharedCounts,
    SiblingBoards,
    WorkerIdentity,
)
from proxy.observability.record import RequestRecord
from tests.fakes.sockets import read_until_closed

RECORD = RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=502, service="one")


def counts_at(*moments: float) -> ProcessCounts:
    history = History()
    for moment in moments:
        history.count(RECORD, moment)
    return history.counts()


@pytest.fixture
def shared(tmp_path: Path) -> SharedCounts:
    return SharedCounts(WorkerIdentity(1, tmp_path))


def file_of_another_process(shared: SharedCounts, number: int = 1) -> Path:
    """Return the file of a process whose id is the id of this process plus `number`."""
    return shared.identity.folder / f"requests-{os.getpid() + number}.json"


def test_a_worker_reads_only_the_counts_of_other_workers(
    shared: SharedCounts,
) -> None:
    shared.publish(counts_at(1.0, 2.0))
    assert shared.others() == ()
    (file,) = shared.identity.folder.iterdir()
    file.rename(file_of_another_process(shared))
    assert shared.others() == (counts_at(1.0, 2.0),)


def test_counts_of_the_other_workers_are_summed_for_the_last_hour_and_since_the_start(
    shared: SharedCounts,
) -> None:
    for number, moments in ((1, (1.0, 3500.0)), (2, (3550.0, 3601.0))):
        file_of_another_process(shared, number).write_bytes(
            msgspec.json.encode(counts_at(*moments))
        )
    totals = totals_of(shared.others(), 3661.0)
    assert totals.start["one"] == totals.start[""] == Counts(requests=4, failed=4)
    assert totals.hour["one"].requests == 3


def test_unreadable_count_files_are_skipped(shared: SharedCounts) -> None:
    file_of_another_process(shared).write_bytes(b"{")
    file_of_another_process(shared, 2).mkdir()
    assert shared.others() == ()


def test_the_methods_publish_and_others_raise_no_exception_without_the_folder(
    tmp_path: Path,
) -> None:
    shared = SharedCounts(WorkerIdentity(1, tmp_path / "gone"))
    shared.publish(counts_at(1.0))
    assert shared.others() == ()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: the path of a Unix socket has at most about 100 bytes."""
    path = tempfile.mkdtemp()
    yield Path(path)
    shutil.rmtree(path)


def sockets_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


async def test_a_row_is_requested_from_the_worker_named_in_its_id(folder: Path) -> None:
    first, other = SiblingBoards(folder, "abc"), SiblingBoards(folder, "def")
    other.respond = lambda request: BoardResponse("x" * 1_000_000 + request.what + request.name)
    async with first.serving(), other.serving():
        row = await first.send(BoardRequest("row", "def-7"))
        assert row is not None
        assert row.document.endswith("xrowdef-7")
        response = await other.send(BoardRequest("row", "abc-7"))
        assert response == BoardResponse(problem="before_restart")
    assert sockets_in(folder) == []


@pytest.mark.parametrize("name", ["gone-1", "", "-1", "../x-1", "a" * 100 + "-1"])
async def test_send_returns_none_for_an_unknown_or_invalid_row_name(
    folder: Path, name: str
) -> None:
    assert await SiblingBoards(folder, "abc").send(BoardRequest("row", name)) is None


async def test_send_returns_none_if_no_worker_listens_on_the_socket(folder: Path) -> None:
    (folder / "dead.sock").touch()
    assert await SiblingBoards(folder, "abc").send(BoardRequest("row", "dead-1")) is None


async def test_an_invalid_request_closes_its_connection_but_not_the_socket(folder: Path) -> None:
    boards = SiblingBoards(folder, "abc")
    async with boards.serving():
        for sent in (b"", b"nonsense\n", b"x" * 100_000):
            reader, writer = await asyncio.open_unix_connection(folder / "abc.sock")
            writer.write(sent)
            writer.write_eof()
            assert await read_until_closed(reader) == b""
            writer.close()
        row = await SiblingBoards(folder, "def").send(BoardRequest("row", "abc-1"))
    assert row == BoardResponse(problem="before_restart")
