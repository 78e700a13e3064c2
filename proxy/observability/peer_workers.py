"""What several workers tell each other, through a folder that they share.

Each worker's counts are a small file, which is replaced as a whole. The file of a worker that has
ended stays, because its requests happened. The contents of another worker's board are requested
over a socket: a browser may reach a different worker with each click, but only one has the request.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from proxy.observability.history import ProcessCounts

_PREFIX = "requests-"


class WorkerPlace(NamedTuple):
    """Which of several workers this is, from 1, and the folder that they share."""

    number: int
    folder: Path


@dataclass(slots=True)
class SharedCounts:
    """What the other workers have counted, as seen by the one at a `place`."""

    place: WorkerPlace

    def publish(self, counted: ProcessCounts) -> None:
        file = self._own()
        fresh = file.with_suffix(".new")
        with contextlib.suppress(OSError):  # the next second brings another one
            fresh.write_bytes(msgspec.json.encode(counted))
            fresh.replace(file)

    def others(self) -> tuple[ProcessCounts, ...]:
        own = self._own()
        files = self.place.folder.glob(f"{_PREFIX}*.json")
        read = (_read(file) for file in files if file != own)
        return tuple(counted for counted in read if counted is not None)

    def _own(self) -> Path:
        return self.place.folder / f"{_PREFIX}{os.getpid()}.json"


class BoardQuestion(msgspec.Struct, frozen=True):
    """What a page asks about the request called `name`; the name begins with that of its board."""

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
    """Asks other workers and answers them with `answer`, which is set when it is known."""

    def __init__(self, folder: Path, instance: str) -> None:
        self.answer: Answer = lambda _question: BoardAnswer(problem="before_restart")
        self._folder = folder
        self._instance = instance

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        path = self._path(self._instance)
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def ask(self, question: BoardQuestion) -> BoardAnswer | None:
        """Ask the worker that has a request; None if no other worker has it."""
        path = self._path(question.instance)
        if not question.instance or not path.exists():
            return None
        try:
            async with asyncio.timeout(5.0):
                reader, writer = await asyncio.open_unix_connection(path, limit=64 * 2**20)
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


def _read(file: Path) -> ProcessCounts | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ProcessCounts)
    except (OSError, msgspec.DecodeError):
        return None
