"""A backend that answers questions with exactly the bytes a test wrote, at the pace it wrote.

It speaks just enough HTTP to tell questions, each of which is poisoned, from all else, of which it
knows what stands in its documents.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tests.fakes.raw_backend import STREAM_HEAD, Caller

LAST_CHUNK = b"0\r\n\r\n"

_QUESTIONS = (b"POST /v1/chat/completions ", b"POST /api/chat ")
_NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"

Toxic: TypeAlias = Callable[[Caller], Awaitable[None]]


class Then(Enum):
    """What follows the last byte: an end, a reset, an end of only one direction, or nothing."""

    CLOSE = "close"
    RESET = "reset"
    HALF_CLOSE = "half-close"
    SILENCE = "silence"


@dataclass
class ToxicBackend:
    """A listening backend; `over` is set when a toxic was done, or its asker had hung up."""

    url: str
    toxics: tuple[Toxic, ...]
    documents: dict[str, bytes] = field(default_factory=dict)
    questions: list[bytes] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; the n-th question is its last and gets the n-th toxic."""
        caller = Caller(reader, writer)
        try:
            while request := await caller.request():
                if request.startswith(_QUESTIONS):
                    self.questions.append(request)
                    assert len(self.questions) <= len(self.toxics), "asked too often"
                    try:
                        await self.toxics[len(self.questions) - 1](caller)
                    finally:
                        self.over.set()
                    return
                path = request.split(b" ", 2)[1].decode()
                known = self.documents.get(path)
                await caller.send(_NOTHING if known is None else whole(known))
        except OSError:  # the asker has hung up
            pass
        finally:
            writer.close()


@asynccontextmanager
async def toxic_backend(*toxics: Toxic) -> AsyncGenerator[ToxicBackend, None]:
    """Serve the n-th question by the n-th toxic; there must be no further one."""
    backend = ToxicBackend("", toxics)
    serving: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving[asyncio.current_task()] = writer
        await backend.serve(reader, writer)
        del serving[asyncio.current_task()]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    backend.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield backend
    finally:
        server.close()
        for writer in serving.values():
            writer.transport.abort()
        await asyncio.gather(*(task for task in serving if task is not None))


def whole(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """Write a response of a known length."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(*parts: bytes, is_whole: bool = True) -> bytes:
    """Write a response in chunks, the last of which is missing unless it `is_whole`."""
    chunks = [chunk(part) for part in parts if part]
    return STREAM_HEAD + b"".join(chunks) + (LAST_CHUNK if is_whole else b"")


def chunk(part: bytes) -> bytes:
    """Write a part of a body that is not the last."""
    return b"%x\r\n%s\r\n" % (len(part), part)


def sends(raw: bytes, *, size: int | None = None, then: Then = Then.CLOSE) -> Toxic:
    """Send bytes, in segments of `size` if that is given, and go on as told."""

    async def play(caller: Caller) -> None:
        step = size or max(1, len(raw))
        for start in range(0, len(raw), step):
            await caller.send(raw[start : start + step])
            await asyncio.sleep(0)  # whoever reads gets this segment before the next
        await _end(caller, then)

    return play


def paced(*pieces: bytes, seconds: float, then: Then = Then.CLOSE) -> Toxic:
    """Send pieces with a pause behind each."""

    async def play(caller: Caller) -> None:
        for piece in pieces:
            await caller.send(piece)
            await asyncio.sleep(seconds)
        await _end(caller, then)

    return play


def stays(raw: bytes) -> Toxic:
    """Send bytes, and close the connection as soon as something comes behind the question."""

    async def play(caller: Caller) -> None:
        await caller.send(raw)
        await caller.reader.read(1)

    return play


def repeats(first: bytes, piece: bytes, *, seconds: float = 0, most: int = 0) -> Toxic:
    """Send a piece again and again, at an interval; `most` bytes at most if that is given."""

    async def play(caller: Caller) -> None:
        await caller.send(first)
        sent = 0
        while not most or sent < most:
            await caller.send(piece)
            await asyncio.sleep(seconds)
            sent += len(piece)

    return play


async def _end(caller: Caller, then: Then) -> None:
    if then is Then.RESET:
        held: socket.socket = caller.writer.get_extra_info("socket")
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.writer.transport.abort()
    elif then is not Then.CLOSE:
        if then is Then.HALF_CLOSE:
            caller.writer.write_eof()
        with contextlib.suppress(OSError):
            await caller.hang_up_seen()
