"""Connects the boards and counts of several workers through a shared folder.

Each worker writes its counts to a small file, which it replaces atomically. The file of a finished
worker stays, because its requests are part of the totals. Boards are connected by Unix sockets: a
browser may reach a different worker with each click, and the reached worker requests the row from
the worker that has it.

    -> {"what":"row","name":"5f3a1c-17","limit":0}
    <- {"document":"{...}","problem":""}
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


class WorkerIdentity(NamedTuple):
    """The number of this worker, from 1, and the folder that all workers share."""

    number: int
    folder: Path


@dataclass(slots=True)
class SharedCounts:
    """The files with the counts of all workers; `identity` identifies this worker."""

    identity: WorkerIdentity

    def publish(self, counts: ProcessCounts) -> None:
        """Replace this worker's file; an error is ignored, because the next write may succeed."""
        file = self._file()
        temporary = file.with_suffix(".new")
        with contextlib.suppress(OSError):
            temporary.write_bytes(msgspec.json.encode(counts))
            temporary.replace(file)

    def others(self) -> tuple[ProcessCounts, ...]:
        """Return the latest counts of the other workers; unreadable files are skipped."""
        this_file = self._file()
        files = self.identity.folder.glob(f"{_PREFIX}*.json")
        processes = (_read(file) for file in files if file != this_file)
        return tuple(counts for counts in processes if counts is not None)

    def _file(self) -> Path:
        # a restarted worker has the same number but new counts, so the process id names the file
        return self.identity.folder / f"{_PREFIX}{os.getpid()}.json"


class BoardRequest(msgspec.Struct, frozen=True):
    """A page's request for a row, an exchange, older rows or a cancellation.

    `what` is the operation. `name` is the name of a row, in the form `board-number`.
    """

    what: str
    name: str
    limit: int = 0

    @property
    def instance(self) -> str:
        """The name of the board with the row; "" if `name` is invalid."""
        # the name comes from a client, and the instance becomes part of a path
        instance = self.name.partition("-")[0]
        return instance if instance.isascii() and instance.isalnum() and len(instance) < 32 else ""


class BoardResponse(msgspec.Struct, frozen=True):
    """A JSON document, or the code of a problem."""

    document: str = ""
    problem: str = ""


Responder: TypeAlias = Callable[[BoardRequest], BoardResponse]


class SiblingBoards:
    """Sends requests to the boards of other workers, and answers their requests.

    The dashboard sets `respond` when it starts; before that, every row is unknown.
    """

    def __init__(self, folder: Path, instance: str) -> None:
        self.respond: Responder = lambda _request: BoardResponse(problem="before_restart")
        self._folder = folder
        self._instance = instance

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve the requests of other workers while the block runs."""
        path = self._path(self._instance)
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def send(self, request: BoardRequest) -> BoardResponse | None:
        """Send a request to the worker with the row; None if that worker does not run."""
        path = self._path(request.instance)
        if not request.instance or not path.exists():
            return None
        try:
            async with asyncio.timeout(5.0):
                # a recorded exchange is one line, far above the default limit of 64 KiB
                reader, writer = await asyncio.open_unix_connection(path, limit=64 * 2**20)
                with contextlib.closing(writer):
                    writer.write(msgspec.json.encode(request) + b"\n")
                    return msgspec.json.decode(await reader.readline(), type=BoardResponse)
        except (OSError, TimeoutError, ValueError):  # the worker has just ended
            return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError):
            request = msgspec.json.decode(await reader.readline(), type=BoardRequest)
            writer.write(msgspec.json.encode(self.respond(request)) + b"\n")
            await writer.drain()

    def _path(self, instance: str) -> Path:
        return self._folder / f"{instance}.sock"


def _read(file: Path) -> ProcessCounts | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ProcessCounts)
    except (OSError, msgspec.DecodeError):
        return None
