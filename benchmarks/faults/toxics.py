"""Toxics: the scripted behavior of a backend on a connection, with exact bytes and pauses."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass
class Caller:
    """The backend's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)

    async def request(self) -> bytes:
        """Read one request, head and body; empty if the client disconnected."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        names = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(names.get(b"content-length", b"0")))
        self.requests.append(head + body)
        return self.requests[-1]

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def send_chunk(self, body: bytes) -> None:
        """Send a part of a chunked body; an empty part ends it."""
        await self.send(b"%x\r\n%s\r\n" % (len(body), body))

    async def wait_for_disconnect(self) -> None:
        """Wait until the other side has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionResetError:
            pass


Toxic: TypeAlias = Callable[[Caller], Awaitable[None]]


class Then(Enum):
    """What follows the last byte; NEXT keeps the connection open for another request."""

    CLOSE = "close"
    NEXT = "next"
    RESET = "reset"
    HALF_CLOSE = "half-close"
    SILENCE = "silence"


def whole(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """Encode a response with a Content-Length header."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(*parts: bytes, is_whole: bool = True) -> bytes:
    """Encode a response in chunks; without `is_whole` the final empty chunk is missing."""
    chunks = [chunk(part) for part in parts if part]
    return STREAM_HEAD + b"".join(chunks) + (LAST_CHUNK if is_whole else b"")


def chunk(part: bytes) -> bytes:
    """Encode a part of a chunked body, except the final empty chunk."""
    return b"%x\r\n%s\r\n" % (len(part), part)


def sends(raw: bytes, *, size: int | None = None, then: Then = Then.CLOSE) -> Toxic:
    """Send bytes (if `size` is given, in segments of this size), then do `then`."""

    async def play(caller: Caller) -> None:
        step = size or max(1, len(raw))
        for start in range(0, len(raw), step):
            await caller.send(raw[start : start + step])
            await asyncio.sleep(0)  # the client can read this segment before the next one is sent
        await _end(caller, then)

    return play


def paced(*pieces: bytes, seconds: float, then: Then = Then.CLOSE) -> Toxic:
    """Send pieces with a pause after each."""

    async def play(caller: Caller) -> None:
        for piece in pieces:
            await caller.send(piece)
            await asyncio.sleep(seconds)
        await _end(caller, then)

    return play


def stays(raw: bytes) -> Toxic:
    """Send bytes, then wait until the client sends a byte or closes the connection."""

    async def play(caller: Caller) -> None:
        await caller.send(raw)
        await caller.reader.read(1)

    return play


def repeats(first: bytes, piece: bytes, *, seconds: float = 0, most: int = 0) -> Toxic:
    """Send `first`, then `piece` every `seconds`, endlessly or up to `most` bytes of pieces."""

    async def play(caller: Caller) -> None:
        await caller.send(first)
        sent = 0
        while not most or sent < most:
            await caller.send(piece)
            await asyncio.sleep(seconds)
            sent += len(piece)

    return play


async def _end(caller: Caller, then: Then) -> None:
    match then:
        case Then.CLOSE:
            caller.writer.close()
        case Then.NEXT:
            pass
        case Then.RESET:
            connection: socket.socket = caller.writer.get_extra_info("socket")
            # a zero linger time makes the kernel send RST instead of FIN
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.writer.transport.abort()
        case Then.HALF_CLOSE:
            caller.writer.write_eof()
            await _wait_for_disconnect(caller)
        case Then.SILENCE:
            await _wait_for_disconnect(caller)


async def _wait_for_disconnect(caller: Caller) -> None:
    with contextlib.suppress(OSError):
        await caller.wait_for_disconnect()
