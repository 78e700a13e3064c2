"""An MCP server over HTTP from before 2026, which forgets its sessions when a test says so."""

from itertools import count

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy.conversation.json import JsonObject


class ForgetfulToolServer:
    """Has one tool, `echo`; `sessions` are those that it still knows."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self._numbers = count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
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
