"""A backend that answers with exactly the bytes of a test, at the times of the test.

It parses only enough HTTP to recognize generation requests, which are answered with toxics. Other
requests receive fixed documents.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.faults.toxics import Caller, Toxic, whole
from tests.fakes.loopback import own_address

_GENERATIONS = (b"POST /v1/chat/completions ", b"POST /api/chat ")
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"


@dataclass
class ToxicBackend:
    """A listening backend; `over` is set when a toxic has finished or its client disconnected."""

    url: str
    toxics: tuple[Toxic, ...]
    documents: dict[str, bytes] = field(default_factory=dict)
    upstream_requests: list[bytes] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until the end of its first generation.

        The n-th generation of the backend is answered by the n-th toxic.
        """
        caller = Caller(reader, writer)
        try:
            while request := await caller.request():
                if request.startswith(_GENERATIONS):
                    self.upstream_requests.append(request)
                    assert len(self.upstream_requests) <= len(self.toxics), "too many generations"
                    try:
                        await self.toxics[len(self.upstream_requests) - 1](caller)
                    finally:
                        self.over.set()
                    return
                path = request.split(b" ", 2)[1].decode()
                known = self.documents.get(path)
                await caller.send(_NOT_FOUND if known is None else whole(known))
        except OSError:  # the client has disconnected
            pass
        finally:
            writer.close()


@asynccontextmanager
async def toxic_backend(*toxics: Toxic) -> AsyncGenerator[ToxicBackend, None]:
    """Answer the n-th generation with the n-th toxic; more generations fail the test."""
    backend = ToxicBackend("", toxics)
    serving: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving[asyncio.current_task()] = writer
        await backend.serve(reader, writer)
        del serving[asyncio.current_task()]

    server = await asyncio.start_server(serve, own_address(), 0)
    backend.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield backend
    finally:
        server.close()
        for writer in serving.values():
            writer.transport.abort()
        await asyncio.gather(*(task for task in serving if task is not None))
