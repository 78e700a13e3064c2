"""A backend on a real socket that sends exactly the bytes a test wrote, and nothing by itself."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass
class Caller:
    """One connection to the backend, seen from the backend."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: list[bytes] = field(default_factory=list)

    async def request(self) -> bytes:
        """Read one request, head and body; empty if the caller hung up instead."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        names = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(names.get(b"content-length", b"0")))
        self.asked.append(head + body)
        return self.asked[-1]

    async def send(self, raw: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(raw)
        await self.writer.drain()

    async def send_chunk(self, body: bytes) -> None:
        """Send a part of a chunked body; an empty one ends it."""
        await self.send(b"%x\r\n%s\r\n" % (len(body), body))

    async def hang_up_seen(self) -> None:
        """Wait until the other side has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionResetError:
            pass


Script: TypeAlias = Callable[[Caller], Awaitable[None]]


@dataclass
class RawBackend:
    """A listening backend."""

    url: str
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def raw_backend(*scripts: Script) -> AsyncGenerator[RawBackend, None]:
    """Serve the n-th connection by the n-th script and close it behind it."""
    backend = RawBackend("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend.connections += 1
        try:
            await scripts[backend.connections - 1](Caller(reader, writer, backend.requests))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    backend.url = f"http://127.0.0.1:{port}"
    try:
        yield backend
    finally:
        server.close()
