"""A FastMCP tool server over HTTP that requires a header; a separate program.

`python -P fastmcp_server.py PORT`. It runs where the extra `tool-servers` is installed.
"""

import sys

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

SECRET = "Bearer canary"


class Guard:
    """Rejects requests without the header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and sent != SECRET:
            await Response(status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def main() -> None:
    mcp = FastMCP("adder")

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def fail() -> str:
        """Fail."""
        raise ToolError("it is broken")

    def big() -> str:
        """Return five megabytes."""
        return "x" * 5_000_000

    for function in (add, fail, big):
        mcp.tool(function)
    mcp.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[1]),
        show_banner=False,
        middleware=[Middleware(Guard)],
    )


if __name__ == "__main__":
    main()
