"""A backend on a real socket that sends exactly the bytes of a test, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from benchmarks.faults.toxics import Caller
from tests.fakes.loopback import own_address

Script: TypeAlias = Callable[[Caller], Awaitable[None]]


@dataclass
class RawBackend:
    """A listening backend."""

    address: tuple[str, int] = ("", 0)
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)


@asynccontextmanager
async def raw_backend(*scripts: Script) -> AsyncGenerator[RawBackend, None]:
    """Serve the n-th connection by the n-th script and then close it."""
    backend = RawBackend()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend.connections += 1
        try:
            await scripts[backend.connections - 1](Caller(reader, writer, backend.requests))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, own_address(), 0)
    backend.address = server.sockets[0].getsockname()
    try:
        yield backend
    finally:
        server.close()
