"""A double of Anthropic's API: a real llama-server's `/v1/messages`, with optional faults.

The double proves nothing about the real API. Every body is validated against the types of
Anthropic's SDK. The model lists and the errors are written by hand from Anthropic's documentation.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import cast

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.fakes.anthropic_types import check_count, check_request
from tests.timeouts import TIMEOUT_SECONDS

KEY = "sk-ant-made-up"
MODEL = "scripted"
WINDOW = 8192
VERSION = "2023-06-01"
LISTED: JsonObject = {
    "type": "model",
    "id": MODEL,
    "display_name": MODEL,
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
    "max_input_tokens": WINDOW,
    "max_tokens": 2048,
}


def failure(kind: str, message: str) -> JsonObject:
    """Return an error body in the format of Anthropic's API."""
    error: JsonObject = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": "req_1"}


@dataclass(frozen=True)
class Fault:
    """An error in place of a response; with status 200 it follows `events` events of a stream.

    Without a `kind` the stream is cut off without an error.
    """

    status: int = 200
    kind: str = ""
    message: str = "made up"
    headers: dict[str, str] = field(default_factory=dict)
    events: int = 4


@dataclass
class AnthropicDouble:
    """The server: `requests` are the bodies received, `faults` affect the next requests."""

    upstream: RunningServer
    requests: list[JsonObject] = field(default_factory=list)
    counted: list[JsonObject] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
            ]
        )

    async def _models(self, http: Request) -> Response:
        _check_headers(http)
        assert http.query_params["limit"] == "1000"
        listed: JsonObject = {"data": [LISTED], "has_more": False}
        return JSONResponse({**listed, "first_id": MODEL, "last_id": MODEL})

    async def _count(self, http: Request) -> Response:
        _check_headers(http)
        self.counted.append(await _body(http))
        check_count(self.counted[-1])
        async with self._client() as client:
            answer = await client.post("/v1/messages/count_tokens", json=self.counted[-1])
        return Response(answer.content, answer.status_code, media_type="application/json")

    async def _messages(self, http: Request) -> Response:
        _check_headers(http)
        body = await _body(http)
        self.requests.append(body)
        check_request(body)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and fault.status != 200:
            return JSONResponse(failure(fault.kind, fault.message), fault.status, fault.headers)
        if body["model"] != MODEL:
            return JSONResponse(failure("not_found_error", f"model: {body['model']}"), 404)
        pieces = self._pieces(body, fault)
        first = await anext(pieces)
        if first.startswith(b"{"):
            await pieces.aclose()
            return JSONResponse(_refusal(first), 400)
        return StreamingResponse(_join(first, pieces), media_type="text/event-stream")

    async def _pieces(self, body: JsonObject, fault: Fault | None) -> AsyncGenerator[bytes, None]:
        """Stream the server's events unchanged, up to the fault."""
        count = 0
        body = _without_forced_choice(body)
        async with (
            self._client() as client,
            client.stream("POST", "/v1/messages", json=body) as response,
        ):
            if response.is_error:
                yield await response.aread()
                return
            async for line in response.aiter_lines():
                count += line.startswith("event: ")
                if fault is not None and count > fault.events:
                    break
                yield line.encode() + b"\n"
        if fault is not None and fault.kind:
            error = json.dump(failure(fault.kind, fault.message))
            yield b"event: error\ndata: " + error + b"\n\n"

    def _client(self) -> httpx.AsyncClient:
        key = {"x-api-key": self.upstream.api_key}
        return httpx.AsyncClient(
            base_url=self.upstream.base_url, headers=key, trust_env=False, timeout=TIMEOUT_SECONDS
        )


def _check_headers(http: Request) -> None:
    assert http.headers["x-api-key"] == KEY
    assert http.headers["anthropic-version"] == VERSION
    assert "authorization" not in http.headers


async def _body(http: Request) -> JsonObject:
    return cast("JsonObject", json.parse(await http.body()))


def _without_forced_choice(body: JsonObject) -> JsonObject:
    """Remove a forced tool choice.

    llama-server does not force the call; it only bans the end of the text.
    """
    choice = body.get("tool_choice")
    is_forced = isinstance(choice, dict) and choice["type"] in ("any", "tool")
    return {name: body[name] for name in body if not (is_forced and name == "tool_choice")}


async def _join(first: bytes, others: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for piece in others:
        yield piece


def _refusal(body: bytes) -> JsonValue:
    """Convert an error body of llama-server into one of Anthropic's API."""
    error = cast("JsonObject", cast("JsonObject", json.parse(body))["error"])
    message = f"{error['message']}"
    if error["type"] == "exceed_context_size_error":
        message = (
            f"prompt is too long: {error['n_prompt_tokens']} tokens > {error['n_ctx']} maximum"
        )
    return failure("invalid_request_error", message)
