"""ASGI applications on real sockets, in the test's event loop, without uvicorn's timers."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
from anyio.from_thread import start_blocking_portal
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from proxy.api.server import listen, url_of
from tests.timeouts import TIMEOUT_SECONDS


@asynccontextmanager
async def connected(
    address: tuple[str, int],
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    """Open a raw connection, for bytes that HTTP clients do not send."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            yield reader, writer
    finally:
        writer.close()


async def read_until_closed(reader: asyncio.StreamReader) -> bytes:
    """Read until a connection ends or is reset.

    The kernel resets a connection that is closed with unread data. `StreamReader.read()` then
    discards the received data, although this may be a complete response.
    """
    came = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := await reader.read(65536):
            came += piece
    return bytes(came)


@dataclass(frozen=True)
class Listening:
    """A server that runs during the test."""

    url: str
    state: ServerState

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """Open a raw connection, for bytes that HTTP clients do not send."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        async with connected((host, int(port))) as streams:
            yield streams

    async def settle(self) -> None:
        """Wait until no request is running; fails if that takes long."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*self.state.tasks)


@asynccontextmanager
async def listening(
    app: ASGIApp, host: str = "127.0.0.1", port: int = 0
) -> AsyncGenerator[Listening, None]:
    """Serve `app`; at the end, every request must have finished. Port 0 selects a free port.

    A server that may receive requests after its end needs a unique address, see `loopback`.
    """
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    with listen(host, port) as listener:
        await server.startup(sockets=[listener])
        running = Listening(url_of(listener), server.server_state)
        try:
            yield running
        finally:
            for inner in server.servers:
                inner.close()
            for connection in list(running.state.connections):
                connection.shutdown()
            await running.settle()


@contextmanager
def listening_in_thread(app: ASGIApp) -> Iterator[str]:
    """Serve `app` in a separate thread, for blocking clients; yields its URL."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(app)) as running,
    ):
        yield running.url
