"""An MCP server over streamable HTTP, made with the official SDK, that requires a header."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.fakes.loopback import own_address

SECRET = "Bearer canary"


@dataclass(slots=True)
class HttpToolServer:
    """The server's address and a log of its calls.

    `add` adds, `wait` waits until it is canceled, and `big` returns five megabytes.
    """

    url: str
    address: tuple[str, int]
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    is_broken: bool = False


class _Guarded:
    """Rejects requests without the header, and all requests while the server is broken."""

    def __init__(self, app: ASGIApp, server: HttpToolServer) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = dict(scope["headers"]).get(b"authorization", b"").decode()
            if sent != SECRET or self._server.is_broken:
                status = 500 if self._server.is_broken else 401
                await Response(status_code=status)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Quiet(uvicorn.Server):
    """A server that does not handle signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@contextlib.asynccontextmanager
async def tool_server_over_http(
    at: tuple[str, int] | None = None,
) -> AsyncGenerator[HttpToolServer, None]:
    """Serve until the block ends, at a unique address or at the address `at`."""
    listening = socket.create_server(at or (own_address(), 0))
    address: tuple[str, int] = listening.getsockname()
    host, port = address
    server = HttpToolServer(f"http://{host}:{port}/mcp", address)
    mcp = MCPServer("adder")

    @mcp.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @mcp.tool()
    async def wait() -> str:
        """Wait until it is cancelled."""
        server.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.cancelled.set()
        return "never"

    @mcp.tool()
    def big() -> str:
        """Return five megabytes."""
        return "x" * 5_000_000

    app = _Guarded(mcp.streamable_http_app(host=host), server)
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1)
    running = _Quiet(config)
    serving = asyncio.create_task(running.serve(sockets=[listening]))
    try:
        yield server
    finally:
        running.should_exit = True
        await serving
        listening.close()
