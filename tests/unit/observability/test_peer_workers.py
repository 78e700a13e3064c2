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
from tests.fakes.sockets import all_that_comes

RECORD = RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=502, service="one")


def counted(*moments: float) -> ProcessCounts:
    history = History()
    for moment in moments:
        history.take(RECORD, moment)
    return history.counts()


@pytest.fixture
def shared(tmp_path: Path) -> SharedCounts:
    return SharedCounts(WorkerIdentity(1, tmp_path))


def of_another(shared: SharedCounts, number: int = 1) -> Path:
    """Return the file of another process; in a container, any low number may be our own."""
    return shared.identity.folder / f"requests-{os.getpid() + number}.json"


def test_workers_read_published_counts_and_skip_their_own(
    shared: SharedCounts,
) -> None:
    shared.publish(counted(1.0, 2.0))
    assert shared.others() == ()
    (file,) = shared.identity.folder.iterdir()
    file.rename(of_another(shared))
    assert shared.others() == (counted(1.0, 2.0),)


def test_counts_of_processes_are_summed_per_hour_and_in_total(shared: SharedCounts) -> None:
    for number, moments in ((1, (1.0, 3500.0)), (2, (3550.0, 3601.0))):
        of_another(shared, number).write_bytes(msgspec.json.encode(counted(*moments)))
    totals = totals_of(shared.others(), 3661.0)
    assert totals.start["one"] == totals.start[""] == Counts(requests=4, failed=4)
    assert totals.hour["one"].requests == 3


def test_an_unreadable_file_counts_for_nothing(shared: SharedCounts) -> None:
    of_another(shared).write_bytes(b"{")
    of_another(shared, 2).mkdir()
    assert shared.others() == ()


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    shared = SharedCounts(WorkerIdentity(1, tmp_path / "gone"))
    shared.publish(counted(1.0))
    assert shared.others() == ()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: that of a socket has at most a hundred characters."""
    made = tempfile.mkdtemp()
    yield Path(made)
    shutil.rmtree(made)


def sockets_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


async def test_the_worker_whose_board_created_the_name_is_queried(folder: Path) -> None:
    first, other = SiblingBoards(folder, "abc"), SiblingBoards(folder, "def")
    other.respond = lambda question: BoardResponse("x" * 1_000_000 + question.what + question.name)
    async with first.serving(), other.serving():
        row = await first.send(BoardRequest("row", "def-7"))
        assert row is not None
        assert row.document.endswith("xrowdef-7")
        early = await other.send(BoardRequest("row", "abc-7"))
        assert early == BoardResponse(problem="before_restart")
    assert sockets_in(folder) == []


@pytest.mark.parametrize("name", ["gone-1", "", "-1", "../x-1", "a" * 100 + "-1"])
async def test_an_unknown_name_gets_no_answer(folder: Path, name: str) -> None:
    assert await SiblingBoards(folder, "abc").send(BoardRequest("row", name)) is None


async def test_a_worker_that_has_died_answers_nothing(folder: Path) -> None:
    (folder / "dead.sock").touch()
    assert await SiblingBoards(folder, "abc").send(BoardRequest("row", "dead-1")) is None


async def test_an_invalid_peer_is_disconnected(folder: Path) -> None:
    boards = SiblingBoards(folder, "abc")
    async with boards.serving():
        for sent in (b"", b"nonsense\n", b"x" * 100_000):
            reader, writer = await asyncio.open_unix_connection(folder / "abc.sock")
            writer.write(sent)
            writer.write_eof()
            assert await all_that_comes(reader) == b""
            writer.close()
        row = await SiblingBoards(folder, "def").send(BoardRequest("row", "abc-1"))
    assert row == BoardResponse(problem="before_restart")
