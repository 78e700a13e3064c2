"""Runs ASGI applications on loopback inside a test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager

import uvicorn
from starlette.types import ASGIApp


class _Quiet(uvicorn.Server):
    """A server that leaves signals alone, tells when it has started, and stops without polling."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.enough = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def main_loop(self) -> None:
        await self.enough.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End without the pauses of the original, and not before every request has ended."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        await self.lifespan.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def running(app: ASGIApp) -> AsyncGenerator[str, None]:
    """Serve an application on a free port and yield its URL."""
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = _Quiet(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.enough.set()
            await task
