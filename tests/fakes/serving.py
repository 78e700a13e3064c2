"""Runs ASGI applications on loopback inside a test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager

import uvicorn
from starlette.types import ASGIApp


class _Quiet(uvicorn.Server):
    """A server that leaves signals alone and tells when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

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
            server.should_exit = True
            await task
