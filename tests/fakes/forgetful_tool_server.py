"""An MCP server over HTTP from before 2026, which forgets its sessions on command."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import count

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from proxy.conversation.json import JsonObject


class ForgetfulToolServer:
    """A server with the tool `echo`; `sessions` are the ids that it has not forgotten.

    If `floods` is "GET", the answer to GET requests is an endless stream of events; if it is
    "POST", the answer to tool calls.
    """

    def __init__(self, floods: str = "") -> None:
        self.sessions: set[str] = set()
        self._floods = floods
        self._numbers = count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method == self._floods == "GET":
            return StreamingResponse(_flood(), media_type="text/event-stream")
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if message["method"] == "tools/call" and self._floods == "POST":
            return StreamingResponse(_flood(), media_type="text/event-stream")
        session = request.headers.get("mcp-session-id")
        if message["method"] == "initialize":
            session = f"session-{next(self._numbers)}"
            self.sessions.add(session)
        elif session not in self.sessions:
            return Response(status_code=404 if session else 400)
        if "id" not in message:
            return Response(status_code=202)
        result = _result(message["method"], message.get("params") or {})
        whole = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return JSONResponse(whole, headers={"mcp-session-id": session})


async def _flood() -> AsyncGenerator[bytes, None]:
    while True:
        yield b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n' * 100
        await asyncio.sleep(0)  # let other tasks run, even if the client does not read


def _result(method: str, params: JsonObject) -> JsonObject:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        case _:
            return {"content": [{"type": "text", "text": "hi"}]}
