"""A double of Ollama: its protocol, written from its source, over a real llama-server.

The double proves nothing about a real Ollama, which these tests never use. Its responses are
validated with the types of Ollama's Python client, and their text comes from a llama-server. Ollama
handles the calls of a model in one of two ways:

    native     llama-server parses the calls; Ollama sends them in the last line
    rendered   Ollama parses the text of llama-server, and sends each call in a separate line
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.timeouts import TIMEOUT_SECONDS

CHAT = "/v1/chat/completions"
COUNT = "/v1/chat/completions/input_tokens"
WHEN = "2026-11-21T12:00:00.123456789Z"
DEFAULT_WINDOW = 4096
OPEN, CLOSE = "<tool_call>", "</tool_call>"
_KNOWN = frozenset(
    {"model", "messages", "tools", "stream", "truncate", "shift", "think", "format"}
    | {"keep_alive", "logprobs", "top_logprobs", "options"}
)
_RENAMED = {"num_predict": "max_tokens"}
_OPTIONS_OF_THE_SERVER = ("num_ctx",)  # options that llama-server gets at its start


class Path(Enum):
    """The component that parses the calls."""

    NATIVE = "native"
    RENDERED = "rendered"


class Refused(Exception):
    """A response with an error."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


@dataclass
class OllamaDouble:
    """The server; `requests` are the bodies of all chats, and `loads` the loaded windows.

    If it `is_old`, it ignores `truncate` and silently drops the oldest messages, as Ollama did
    before it had this option. If `broken` is not empty, each reply ends after its first line with
    this error.
    """

    upstream: RunningServer
    path: Path = Path.NATIVE
    capabilities: tuple[str, ...] = ("completion", "tools", "thinking")
    pulled: tuple[str, ...] = ("scripted:latest",)
    default_window: int = DEFAULT_WINDOW
    is_old: bool = False
    tells_capabilities: bool = True
    broken: str = ""
    requests: list[JsonObject] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    loaded: dict[str, int] = field(default_factory=dict)
    unloaded: list[str] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/version", self._version),
                Route("/api/tags", self._tags),
                Route("/api/ps", self._running),
                Route("/api/show", self._show, methods=["POST"]),
                Route("/api/generate", self._generate, methods=["POST"]),
                Route("/api/chat", self._chat, methods=["POST"]),
            ]
        )

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": "0.33.0"})

    async def _tags(self, _: Request) -> Response:
        listed = [
            {
                "name": name,
                "model": name,
                "modified_at": WHEN,
                "size": 1,
                "digest": "0" * 64,
                "details": {"format": "gguf", "family": "llama", "families": ["llama"]},
            }
            for name in self.pulled
        ]
        return JSONResponse({"models": listed})

    async def _running(self, _: Request) -> Response:
        listed = [
            {
                "name": name,
                "model": name,
                "size": 1,
                "size_vram": 0,
                "digest": "0" * 64,
                "expires_at": WHEN,
                "context_length": window,
            }
            for name, window in self.loaded.items()
        ]
        return JSONResponse({"models": listed})

    async def _show(self, http: Request) -> Response:
        body = await _body(http)
        try:
            self._find_model(body)
        except Refused as refused:
            return _error(refused)
        details: JsonObject = {
            "modelfile": "FROM scripted",
            "parameters": 'stop                           "<|im_end|>"',
            "template": "{{ .Prompt }}",
            "details": {"format": "gguf", "family": "llama", "families": ["llama"]},
            "model_info": {"general.architecture": "llama", "llama.context_length": 8192},
            "modified_at": WHEN,
        }
        if self.tells_capabilities:
            details["capabilities"] = [*self.capabilities]
        return JSONResponse(details)

    async def _generate(self, http: Request) -> Response:
        body = await _body(http)
        name = self._find_model(body)
        assert body.get("prompt", "") == "", "the double only loads and unloads"
        is_end = body.get("keep_alive") == 0
        if is_end:
            self.loaded.pop(name, None)
            self.unloaded.append(name)
        else:
            self._load(name, self.default_window)
        reason = "unload" if is_end else "load"
        answer: JsonObject = {"model": name, "created_at": WHEN, "response": ""}
        return JSONResponse({**answer, "done": True, "done_reason": reason})

    async def _chat(self, http: Request) -> Response:
        body = await _body(http)
        self.requests.append(body)
        lines = self._reply(body)
        try:
            first = await anext(lines)
        except Refused as refused:
            await lines.aclose()
            return _error(refused)
        return StreamingResponse(_encode_lines(first, lines), media_type="application/x-ndjson")

    async def _reply(self, body: JsonObject) -> AsyncGenerator[JsonObject, None]:
        """Yield the lines of Ollama's response; raises Refused before the first line."""
        name = self._find_model(body)
        self._check(body, name)
        options = cast("JsonObject", body.get("options", {}))
        window = options.get("num_ctx", self.default_window)
        assert isinstance(window, int)
        self._load(name, window)
        headers = {"authorization": f"Bearer {self.upstream.api_key}"}
        async with httpx.AsyncClient(
            base_url=self.upstream.base_url,
            headers=headers,
            trust_env=False,
            timeout=TIMEOUT_SECONDS,
        ) as client:
            request = await self._fit(client, _translate(body, self.path), body, window)
            async for line in self._lines(client, request):
                yield {"model": name, "created_at": WHEN, **line}

    def _find_model(self, body: JsonObject) -> str:
        name = f"{body.get('model')}"
        name = name if ":" in name else f"{name}:latest"
        if name not in self.pulled:
            raise Refused(404, f"model '{body.get('model')}' not found")
        return name

    def _check(self, body: JsonObject, name: str) -> None:
        # Ollama would ignore an unknown member, and the test would pass
        assert body.keys() <= _KNOWN, body.keys() - _KNOWN
        if body.get("tools") and "tools" not in self.capabilities:
            raise Refused(400, f"registry.ollama.ai/library/{name} does not support tools")
        if body.get("think") and "thinking" not in self.capabilities:
            raise Refused(400, f'"{name}" does not support thinking')

    def _load(self, name: str, window: int) -> None:
        if self.loaded.get(name) != window:
            self.loads.append(window)
        self.loaded[name] = window

    async def _fit(
        self, client: httpx.AsyncClient, request: JsonObject, body: JsonObject, window: int
    ) -> JsonObject:
        """Return a request that fits the window.

        If the prompt is too long, raise Refused or silently drop its oldest messages.
        """
        tokens = await _count(client, request)
        if tokens <= window:
            return request
        if body.get("truncate") is False and not self.is_old:
            problem: JsonObject = {
                "code": 400,
                "message": f"request ({tokens} tokens) exceeds the available context size "
                f"({window} tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": tokens,
                "n_ctx": window,
            }
            raise Refused(400, json.dump_text({"error": problem}))
        messages = cast("list[JsonValue]", request["messages"])
        while len(messages) > 1 and await _count(client, request) > window:
            messages = messages[1:]
            request = {**request, "messages": messages}
        return request

    async def _lines(
        self, client: httpx.AsyncClient, request: JsonObject
    ) -> AsyncGenerator[JsonObject, None]:
        reading = _Reading(self.path)
        async with client.stream("POST", CHAT, content=json.dump(request)) as answer:
            if answer.is_error:
                raise Refused(answer.status_code, (await answer.aread()).decode())
            async for raw in answer.aiter_lines():
                if not raw.startswith("data: {"):
                    continue
                chunk = cast("JsonObject", json.parse(raw.removeprefix("data: ")))
                if "error" in chunk:
                    error = cast("JsonObject", chunk["error"])
                    problem = f"map[code:{error['code']} message:{error['message']}]"
                    raise Refused(500, f"llama-server chat error: {problem}")
                for line in reading.read(chunk):
                    yield line
                    if self.broken:
                        raise Refused(500, self.broken)
        yield reading.end()


class _Reading:
    """Converts the chunks of a llama-server into the lines of an Ollama."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsent_text = ""
        self._calls: dict[int, JsonObject] = {}
        self._reason = "stop"
        self._timings: JsonObject = {}

    def read(self, chunk: JsonObject) -> list[JsonObject]:
        self._timings = cast("JsonObject", chunk.get("timings", self._timings))
        lines: list[JsonObject] = []
        for choice in cast("list[JsonObject]", chunk.get("choices", [])):
            delta = cast("JsonObject", choice["delta"])
            if choice.get("finish_reason") == "length":
                self._reason = "length"
            if thoughts := delta.get("reasoning_content"):
                lines.append(_line({"content": "", "thinking": thoughts}))
            for call in cast("list[JsonObject]", delta.get("tool_calls", [])):
                self._collect(call)
            if text := delta.get("content"):
                lines += self._read_text(f"{text}", choice.get("logprobs"))
        return lines

    def end(self) -> JsonObject:
        message: JsonObject = {"role": "assistant", "content": self._unsent_text}
        if self._calls:
            message["tool_calls"] = [_call(number, call) for number, call in self._calls.items()]
        cached, read = self._timings.get("cache_n", 0), self._timings.get("prompt_n", 0)
        assert isinstance(cached, int)
        assert isinstance(read, int)
        return {
            "message": message,
            "done": True,
            "done_reason": self._reason,
            "total_duration": 1,
            "load_duration": 1,
            "prompt_eval_count": cached + read,
            "prompt_eval_cached_count": cached,
            "prompt_eval_duration": 1,
            "eval_count": self._timings.get("predicted_n", 0),
            "eval_duration": 1,
        }

    def _collect(self, fragment: JsonObject) -> None:
        call = self._calls.setdefault(cast("int", fragment["index"]), {"name": "", "text": ""})
        function = cast("JsonObject", fragment.get("function", {}))
        call["id"] = fragment.get("id") or call.get("id", "")
        call["name"] = f"{call['name']}{function.get('name') or ''}"
        call["text"] = f"{call['text']}{function.get('arguments') or ''}"

    def _read_text(self, text: str, logprobs: JsonValue) -> list[JsonObject]:
        extra: JsonObject = {}
        if isinstance(logprobs, dict):
            extra = {"logprobs": logprobs["content"]}
        if self._path is Path.NATIVE:
            return [{**_line({"content": text}), **extra}]
        self._unsent_text += text
        lines: list[JsonObject] = []
        while OPEN in self._unsent_text and CLOSE in self._unsent_text:
            before, _, rest = self._unsent_text.partition(OPEN)
            inner, _, self._unsent_text = rest.partition(CLOSE)
            try:
                made = cast("JsonObject", json.parse(inner.strip()))
            except ValueError as error:
                raise Refused(500, f"error parsing tool call: raw='{inner}'") from error
            made = {"id": "call_1", "name": made["name"], "text": json.dump_text(made["arguments"])}
            lines.append(_line({"content": before, "tool_calls": [_call(0, made)]}))
        if not any(OPEN.startswith(self._unsent_text[-size:]) for size in range(1, len(OPEN) + 1)):
            is_open = OPEN in self._unsent_text
            lines += [] if is_open else [{**_line({"content": self._unsent_text}), **extra}]
            self._unsent_text = self._unsent_text if is_open else ""
        return lines


def _line(message: JsonObject) -> JsonObject:
    return {"message": {"role": "assistant", **message}, "done": False}


def _call(number: int, made: JsonObject) -> JsonValue:
    arguments = json.parse(f"{made['text']}" or "{}")
    return {
        "id": made["id"],
        "function": {"index": number, "name": made["name"], "arguments": arguments},
    }


def _translate(body: JsonObject, path: Path) -> JsonObject:
    """Return the body that Ollama would send to its llama-server."""
    options = cast("JsonObject", body.get("options", {}))
    request: JsonObject = {
        _RENAMED.get(name, name): value
        for name, value in options.items()
        if name not in _OPTIONS_OF_THE_SERVER
    }
    request["stream"] = True
    messages = cast("list[JsonObject]", body["messages"])
    request["messages"] = [_message(message) for message in messages]
    if tools := body.get("tools"):
        request["tools"] = tools
        request["tool_choice"] = "auto" if path is Path.NATIVE else "none"
    if form := body.get("format"):
        schema: JsonObject = {"type": "json_schema", "json_schema": {"name": "x", "schema": form}}
        request["response_format"] = {"type": "json_object"} if form == "json" else schema
    if "think" in body:
        request["chat_template_kwargs"] = {"enable_thinking": bool(body["think"])}
    for name in ("logprobs", "top_logprobs"):
        if name in body:
            request[name] = body[name]
    return request


def _message(message: JsonObject) -> JsonObject:
    result: JsonObject = {
        name: message[name] for name in ("role", "content", "tool_call_id") if name in message
    }
    if "thinking" in message:
        result["reasoning_content"] = message["thinking"]
    if calls := cast("list[JsonObject]", message.get("tool_calls", [])):
        result["tool_calls"] = [
            {
                "id": call.get("id", ""),
                "type": "function",
                "function": {
                    "name": function["name"],
                    "arguments": json.dump_text(function["arguments"]),
                },
            }
            for call in calls
            if (function := cast("JsonObject", call["function"]))
        ]
    return result


async def _count(client: httpx.AsyncClient, request: JsonObject) -> int:
    counted = await client.post(COUNT, content=json.dump(request))
    return int(counted.raise_for_status().json()["input_tokens"])


async def _body(http: Request) -> JsonObject:
    value = json.parse(await http.body())
    assert isinstance(value, dict)
    return value


async def _encode_lines(
    first: JsonObject, rest: AsyncGenerator[JsonObject, None]
) -> AsyncGenerator[bytes, None]:
    yield json.dump(first) + b"\n"
    try:
        async for line in rest:
            yield json.dump(line) + b"\n"
    except Refused as refused:
        yield json.dump({"error": refused.message}) + b"\n"


def _error(refused: Refused) -> Response:
    return JSONResponse({"error": refused.message}, refused.status)
