"""A mock of Ollama with a model that makes no errors, and Temper in front of it.

Its responses have the formats that ollama-python declares. The texts and calls are those of
`tool_loops`; some replies also have reasoning and log probabilities.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.healthy.replies import Reply, tokens
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.command import running_temper
from tests.fakes.sockets import listening_in_thread
from tests.fakes.tool_loops import MODEL, Served, reply_to

TAGGED = f"{MODEL}:latest"
BLIND = "blind:latest"
THINK, THOUGHT, ANSWER = "[[think]]", "Two and two make four.", "It is four."
FOREVER = "[[for ever]]"
BREAK, BROKEN = "[[break]]", "the model runner has stopped"
PICTURE = "iVBORw0KGgo="
_WHEN = "2026-11-21T12:00:00.123456789Z"
_COUNTS: JsonObject = {
    "total_duration": 5_123_456_789,
    "load_duration": 1_000_001,
    "prompt_eval_count": 26,
    "prompt_eval_duration": 340_123_457,
    "eval_count": 7,
    "eval_duration": 4_700_000_123,
}


class RightOllama:
    """The server; `generations` counts its replies, `managed` the model-management requests."""

    def __init__(self) -> None:
        self.generations = 0
        self.managed: list[tuple[str, JsonObject]] = []
        self.bodies: list[JsonObject] = []
        self.disconnected = asyncio.Event()
        posts = {"chat": self._chat, "generate": self._generate, "show": self._show}
        posts |= {"embed": self._embed, "embeddings": self._embed}
        posts |= dict.fromkeys(("pull", "push", "create", "copy"), self._manage)
        self.app = Starlette(
            routes=[
                Route("/", lambda _: Response("Ollama is running")),
                Route("/api/version", lambda _: JSONResponse({"version": "0.34.0"})),
                Route("/api/tags", self._tags),
                Route("/api/ps", self._running),
                Route("/api/delete", self._manage, methods=["DELETE"]),
                *(
                    Route(f"/api/{name}", handler, methods=["POST"])
                    for name, handler in posts.items()
                ),
            ]
        )

    async def _tags(self, _: Request) -> Response:
        return JSONResponse({"models": [_entry(TAGGED), _entry(BLIND)]})

    async def _running(self, _: Request) -> Response:
        loaded = {"expires_at": _WHEN, "size_vram": 5, "context_length": 8192}
        return JSONResponse({"models": [{**_entry(TAGGED), **loaded}]})

    async def _show(self, request: Request) -> Response:
        name = _with_tag(f"{(await _read(request)).get('model')}")
        if (refusal := _unknown(name)) is not None:
            return refusal
        senses = ["vision"] if name == TAGGED else []
        return JSONResponse(
            {
                "modelfile": "FROM x",
                "parameters": "num_ctx                        8192",
                "template": "{{ .Prompt }}",
                "details": _entry(name)["details"],
                "model_info": {"general.architecture": "llama", "llama.context_length": 8192},
                "capabilities": ["completion", "tools", "thinking", *senses],
                "modified_at": _WHEN,
            }
        )

    async def _embed(self, request: Request) -> Response:
        body = await _read(request)
        if "prompt" in body:
            return JSONResponse({"embedding": [0.25, 0.5]})
        texts = body["input"]
        vectors = [[0.25, 0.5]] * (len(texts) if isinstance(texts, list) else 1)
        reply: JsonObject = {"total_duration": 7, "load_duration": 1, "prompt_eval_count": 2}
        return JSONResponse({"model": body["model"], "embeddings": vectors, **reply})

    async def _manage(self, request: Request) -> Response:
        body, name = await _read(request), request.url.path.rpartition("/")[2]
        self.managed.append((name, body))
        if name in ("copy", "delete"):
            return Response()
        if body.get("stream") is False:
            return JSONResponse({"status": "success"})
        progress: list[JsonValue] = [
            {"status": "pulling manifest"},
            {"status": "pulling", "digest": "sha256:1", "total": 9, "completed": 9},
            {"status": "success"},
        ]
        lines = (json.dump(line) + b"\n" for line in progress)
        return StreamingResponse(_each(*lines), media_type="application/x-ndjson")

    async def _generate(self, request: Request) -> Response:
        body = await _read(request)
        if not body.get("prompt"):
            reason = "unload" if body.get("keep_alive") == 0 else "load"
            self.managed.append((reason, body))
            head: JsonObject = {"model": body["model"], "created_at": _WHEN, "response": ""}
            return JSONResponse({**head, "done": True, "done_reason": reason})
        messages: JsonValue = [{"role": "user", "content": body["prompt"]}]
        return self._answer({**body, "messages": messages}, is_text=True)

    async def _chat(self, request: Request) -> Response:
        return self._answer(await _read(request), is_text=False)

    def _answer(self, body: JsonObject, *, is_text: bool) -> Response:
        if (refusal := _unknown(f"{body['model']}")) is not None:
            return refusal
        self.generations += 1
        self.bodies.append(body)
        messages = cast("list[JsonValue]", body["messages"])
        if FOREVER in json.dump_text(messages):
            return StreamingResponse(self._for_ever(body), media_type="application/x-ndjson")
        lines = [*_lines(body, messages, is_text=is_text)]
        if BREAK in json.dump_text(messages):
            lines[2:] = [{"error": BROKEN}]
        if body.get("stream") is False:
            return JSONResponse(_merge_lines(lines))
        encoded = (json.dump(line) + b"\n" for line in lines)
        return StreamingResponse(_each(*encoded), media_type="application/x-ndjson")

    async def _for_ever(self, body: JsonObject) -> AsyncIterator[bytes]:
        try:
            while True:
                message: JsonObject = {"role": "assistant", "content": "and so on "}
                line: JsonObject = {"model": body["model"], "created_at": _WHEN, "done": False}
                yield json.dump({**line, "message": message}) + b"\n"
                await asyncio.sleep(0.01)
        finally:
            self.disconnected.set()


def _lines(body: JsonObject, messages: list[JsonValue], *, is_text: bool) -> Iterator[JsonObject]:
    thinks = THINK in json.dump_text(messages)
    reply = Reply(ANSWER) if thinks else reply_to(messages, f"{len(messages)}")
    head: JsonObject = {"model": body["model"], "created_at": _WHEN}

    def line_of(content: str, **more: JsonValue) -> JsonObject:
        if is_text:
            return {"response": content, **more}
        return {"message": {"role": "assistant", "content": content, **more}}

    for token in tokens(THOUGHT) if thinks and body.get("think") is not False else ():
        yield {**head, **line_of("", thinking=token), "done": False}
    for token in tokens(reply.text):
        extra: JsonObject = {}
        if body.get("logprobs"):
            extra = {"logprobs": [{"token": token, "logprob": -0.5, "bytes": [*token.encode()]}]}
        yield {**head, **line_of(token), **extra, "done": False}
    for number, call in enumerate(reply.calls):
        function: JsonObject = {
            "index": number,
            "name": call.name,
            "arguments": json.parse(call.arguments),
        }
        made: JsonValue = [{"id": f"call_{len(messages)}_{number}", "function": function}]
        yield {**head, **line_of("", tool_calls=made), "done": False}
    yield {**head, **line_of(""), "done": True, "done_reason": "stop", **_COUNTS}


def _merge_lines(lines: list[JsonObject]) -> JsonObject:
    """Merge the lines into the whole response, as Ollama does."""
    whole = {**lines[-1]}
    is_text = "response" in whole
    parts = [line if is_text else cast("JsonObject", line["message"]) for line in lines]
    word = "response" if is_text else "content"
    message: JsonObject = {word: "".join(f"{part[word]}" for part in parts)}
    if thoughts := "".join(f"{part.get('thinking', '')}" for part in parts):
        message["thinking"] = thoughts
    if calls := [
        tool_call
        for part in parts
        for tool_call in cast("list[JsonValue]", part.get("tool_calls", []))
    ]:
        message["tool_calls"] = calls
    entries = [
        entry for line in lines for entry in cast("list[JsonValue]", line.get("logprobs", []))
    ]
    whole |= {"logprobs": entries} if entries else {}
    return whole | (message if is_text else {"message": {"role": "assistant", **message}})


def _entry(name: str) -> JsonObject:
    return {
        "name": name,
        "model": name,
        "modified_at": _WHEN,
        "size": 5,
        "digest": "d" * 64,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "llama",
            "families": ["llama"],
            "parameter_size": "1.5B",
            "quantization_level": "Q4_K_M",
        },
    }


async def _each(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _read(request: Request) -> JsonObject:
    body = json.parse(await request.body())
    assert isinstance(body, dict)
    return body


def _with_tag(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _unknown(name: str) -> Response | None:
    if _with_tag(name) in (TAGGED, BLIND):
        return None
    return JSONResponse({"error": f"model '{name}' not found"}, 404)


@contextmanager
def temper_with_right_ollama(mock: RightOllama, **settings: str) -> Iterator[tuple[str, Served]]:
    """Run the mock, and Temper in front of it; yields both addresses."""
    environment = {"TEMPER_BACKEND__KIND": "ollama", **settings}
    with (
        listening_in_thread(mock.app) as direct,
        running_temper("--backend-url", direct, environment=environment) as url,
    ):
        yield direct, Served(url, lambda: mock.generations)
