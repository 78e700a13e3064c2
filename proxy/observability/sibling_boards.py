"""The boards of a server's other workers, asked through sockets in the folder that they share.

A browser may reach another worker with each click, and only one has the request that it asks for.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

_SECONDS = 5.0
_LARGEST = 64 * 1024 * 1024


class BoardQuestion(msgspec.Struct, frozen=True):
    """What a page wants of the request called `name`; the names begin with that of their board."""

    what: str
    name: str
    limit: int = 0

    @property
    def instance(self) -> str:
        """The name of the board that may answer; "" for none."""
        instance = self.name.partition("-")[0]
        return instance if instance.isascii() and instance.isalnum() and len(instance) < 32 else ""


class BoardAnswer(msgspec.Struct, frozen=True):
    """A JSON document, or the code of why there is none."""

    document: str = ""
    problem: str = ""


Answer: TypeAlias = Callable[[BoardQuestion], BoardAnswer]


class SiblingBoards:
    """Asks other workers and answers them; `answer` is how, as soon as somebody knows."""

    def __init__(self, folder: Path, instance: str) -> None:
        self.answer: Answer = lambda _question: BoardAnswer(problem="before_restart")
        self._folder = folder
        self._instance = instance

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        """Answer other workers while the block runs."""
        path = self._path(self._instance)
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def ask(self, question: BoardQuestion) -> BoardAnswer | None:
        """Ask the worker that has a request; None where no other one has it."""
        path = self._path(question.instance)
        if not question.instance or not path.exists():
            return None
        try:
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_unix_connection(path, limit=_LARGEST)
                with contextlib.closing(writer):
                    writer.write(msgspec.json.encode(question) + b"\n")
                    return msgspec.json.decode(await reader.readline(), type=BoardAnswer)
        except (OSError, TimeoutError, ValueError):  # it has just ended
            return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError):
            question = msgspec.json.decode(await reader.readline(), type=BoardQuestion)
            writer.write(msgspec.json.encode(self.answer(question)) + b"\n")
            await writer.drain()

    def _path(self, instance: str) -> Path:
        return self._folder / f"{instance}.sock"
