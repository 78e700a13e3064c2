import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.observability.sibling_boards import BoardAnswer, BoardQuestion, SiblingBoards

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: that of a socket has at most a hundred characters."""
    made = tempfile.mkdtemp()
    yield Path(made)
    shutil.rmtree(made)


def sockets_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


async def test_the_worker_whose_board_gave_the_name_is_asked(folder: Path) -> None:
    one, other = SiblingBoards(folder, "abc"), SiblingBoards(folder, "def")
    other.answer = lambda question: BoardAnswer("x" * 1_000_000 + question.what + question.name)
    async with one.answering(), other.answering():
        told = await one.ask(BoardQuestion("row", "def-7"))
        assert told is not None
        assert told.document.endswith("xrowdef-7")
        early = await other.ask(BoardQuestion("row", "abc-7"))
        assert early == BoardAnswer(problem="before_restart")
    assert sockets_in(folder) == []


@pytest.mark.parametrize("name", ["gone-1", "", "-1", "../x-1", "a" * 100 + "-1"])
async def test_where_no_worker_has_it_nobody_answers(folder: Path, name: str) -> None:
    assert await SiblingBoards(folder, "abc").ask(BoardQuestion("row", name)) is None


async def test_a_worker_that_has_died_answers_nothing(folder: Path) -> None:
    (folder / "dead.sock").touch()
    assert await SiblingBoards(folder, "abc").ask(BoardQuestion("row", "dead-1")) is None


async def test_who_breaks_off_or_says_nonsense_is_let_go(folder: Path) -> None:
    boards = SiblingBoards(folder, "abc")
    async with boards.answering():
        for sent in (b"", b"nonsense\n", b"x" * 100_000):
            reader, writer = await asyncio.open_unix_connection(folder / "abc.sock")
            writer.write(sent)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        told = await SiblingBoards(folder, "def").ask(BoardQuestion("row", "abc-1"))
    assert told == BoardAnswer(problem="before_restart")
