"""A simulated model on an HTTP server with the endpoints of llama-server."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.task import calls_of
from temper_evals.simulated.clock import GENERATED_PER_SECOND, ReplyCost, Slots, tokens_in
from temper_evals.simulated.draws import draws_of
from temper_evals.simulated.model import SimulatedModel, WrittenReply
from temper_evals.simulated.profiles import Flaw, ModelProfile
from temper_evals.simulated.request import CaseFinder, find_case, read_request, render_prompt

WINDOW = 8192
SLOTS = 4
_HOST = "127.0.0.1"
_LONGEST_DELTA = 6
_UNKNOWN_CASE = WrittenReply("I know nothing of this case.")


@dataclass(slots=True)
class CaseUsage:
    """The cost of a case so far, and the flaws of its replies."""

    generations: int = 0
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    seconds: float = 0.0
    flaws: list[Flaw] = field(default_factory=list)

    def add(self, cost: ReplyCost, flaw: Flaw | None) -> None:
        self.generations += 1
        self.prompt += cost.prompt
        self.cached += cost.cached
        self.generated += cost.generated
        self.seconds += cost.seconds
        self.flaws += [] if flaw is None else [flaw]


class SimulatedServer:
    """The endpoints of one simulated model.

    The server waits `pace` seconds for each simulated second. `find` returns the case of a request;
    the default finds the name of the case in the messages.
    """

    def __init__(
        self,
        profile: ModelProfile,
        pace: float = 0.05,
        *,
        window: int = WINDOW,
        find: CaseFinder = find_case,
    ) -> None:
        self._find = find
        self._model = SimulatedModel(profile)
        self._window = window
        self._pace = pace
        self._slots = Slots(SLOTS)
        self._ledger: dict[str, CaseUsage] = {}
        self.url = ""

    def usage_of(self, case: str) -> CaseUsage:
        """Return the cost of a case so far."""
        return self._ledger.setdefault(case, CaseUsage())

    def app(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/chat/completions/input_tokens", self._count, methods=["POST"]),
            Route("/apply-template", self._render, methods=["POST"]),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/props", self._properties),
            Route("/health", self._health),
        ]
        return Starlette(routes=routes)

    async def _chat(self, request: Request) -> Response:
        body = _object(await request.body())
        prompt = render_prompt(body)
        if tokens_in(prompt) >= self._window:
            return JSONResponse(_overflow(tokens_in(prompt), self._window), status_code=400)
        seen = read_request(body, self._find)
        reply = _UNKNOWN_CASE if seen is None else self._model.reply(seen)
        messages = () if seen is None else seen.messages
        used = {str(call.get("id")) for message in messages for call in calls_of(message)}
        key = "" if seen is None else f"{seen.key} {len(messages)}"
        deltas = _deltas(reply, key, used)
        if reply.runs_away:
            deltas = [*islice(cycle(deltas), _limit(body, self._window - tokens_in(prompt)))]
            reply = replace(reply, text="".join(str(piece["content"]) for piece in deltas))
        cost = ReplyCost(tokens_in(prompt), self._slots.take(prompt), len(deltas))
        usage = CaseUsage() if seen is None else self.usage_of(seen.key)
        is_stream = body.get("stream") is True
        # a runaway reply is charged while it is streamed, because the client may stop it
        is_charged_later = is_stream and reply.runs_away
        usage.add(replace(cost, generated=0) if is_charged_later else cost, reply.flaw)
        if not is_stream:
            await asyncio.sleep(cost.seconds * self._pace)
            return JSONResponse(_completion(reply, cost, used))
        stream = self._stream(deltas, reply, cost, usage if is_charged_later else CaseUsage())
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _stream(
        self, deltas: list[JsonObject], reply: WrittenReply, cost: ReplyCost, usage: CaseUsage
    ) -> AsyncIterator[bytes]:
        """Stream eight tokens at a time, because a timer per token would cost too much CPU time.

        The tokens are added to `usage` when they are sent.
        """
        await asyncio.sleep(cost.prompt_seconds * self._pace)
        yield _event(_chunk({"role": "assistant", "content": None}))
        seconds = cost.seconds - cost.prompt_seconds
        for start in range(0, len(deltas), 8):
            group = deltas[start : start + 8]
            await asyncio.sleep(seconds * self._pace * len(group) / max(1, len(deltas)))
            usage.generated += len(group)
            usage.seconds += len(group) / GENERATED_PER_SECOND
            yield b"".join(_event(_chunk(delta)) for delta in group)
        end: JsonObject = {**_chunk({}, _reason(reply)), **_usage_and_timings(cost)}
        yield _event(end) + b"data: [DONE]\n\n"

    async def _count(self, request: Request) -> Response:
        prompt = render_prompt(_object(await request.body()))
        return JSONResponse({"input_tokens": tokens_in(prompt)})

    async def _render(self, request: Request) -> Response:
        return JSONResponse({"prompt": render_prompt(_object(await request.body()))})

    async def _tokenize(self, request: Request) -> Response:
        content = _object(await request.body()).get("content")
        parts = content if isinstance(content, list) else [content]
        tokens: list[JsonValue] = []
        for part in parts:
            # only the number of tokens matters, so every token of a text has the id 1
            tokens += [1] * tokens_in(part) if isinstance(part, str) else [part]
        return JSONResponse({"tokens": tokens})

    async def _models(self, _request: Request) -> Response:
        entry: JsonObject = {"id": "simulated", "object": "model", "owned_by": "llamacpp"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def _properties(self, _request: Request) -> Response:
        settings: JsonObject = {"n_ctx": self._window}
        known: JsonObject = {"model_alias": "simulated", "total_slots": SLOTS, "chat_template": ""}
        return JSONResponse({"default_generation_settings": settings, **known})

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})


def _object(body: bytes) -> JsonObject:
    value = json.parse(body)
    return value if isinstance(value, dict) else {}


def _limit(body: JsonObject, room: int) -> int:
    """Return the token limit of a reply: the limit in the request, or `room` if it is smaller.

    `room` is the number of tokens in the window after the prompt.
    """
    limits = (body.get(name) for name in ("max_tokens", "max_completion_tokens"))
    return min([room, *(limit for limit in limits if isinstance(limit, int) and limit > 0)])


def _reason(reply: WrittenReply) -> str:
    if reply.runs_away:
        return "length"
    return "tool_calls" if reply.calls else "stop"


def _deltas(reply: WrittenReply, key: str, used: Set[str]) -> list[JsonObject]:
    """Cut a reply into deltas of one to six characters."""
    draw = draws_of(key, reply.text, *(text for _, text in reply.calls))
    deltas: list[JsonObject] = [
        {"content": text}
        for text in _cut(reply.text, [draw.randint(1, _LONGEST_DELTA) for _ in reply.text])
    ]
    for index, (name, text) in enumerate(reply.calls):
        started: JsonObject = {"name": name, "arguments": ""}
        call_id = _new_id(draw, used)
        head: JsonObject = {"index": index, "id": call_id, "type": "function", "function": started}
        deltas.append({"tool_calls": [head]})
        for part in _cut(text, [draw.randint(1, _LONGEST_DELTA) for _ in text]):
            more: JsonObject = {"index": index, "function": {"arguments": part}}
            deltas.append({"tool_calls": [more]})
    return deltas


def _new_id(draw: random.Random, used: Set[str]) -> str:
    """Draw an id that no earlier call has, because the agent finds calls by their ids."""
    while (call_id := f"call_{draw.getrandbits(48):012x}") in used:
        pass
    return call_id


def _cut(text: str, lengths: list[int]) -> Iterator[str]:
    start = 0
    for length in lengths:
        if start >= len(text):
            return
        yield text[start : start + length]
        start += length


def _chunk(delta: JsonObject, reason: str | None = None) -> JsonObject:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "chatcmpl-simulated",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "simulated",
        "choices": [choice],
    }


def _event(value: JsonObject) -> bytes:
    return b"data: " + json.dump(value) + b"\n\n"


def _usage_and_timings(cost: ReplyCost) -> JsonObject:
    usage: JsonObject = {
        "prompt_tokens": cost.prompt,
        "completion_tokens": cost.generated,
        "total_tokens": cost.prompt + cost.generated,
        "prompt_tokens_details": {"cached_tokens": cost.cached},
    }
    timings: JsonObject = {
        "cache_n": cost.cached,
        "prompt_n": cost.prompt - cost.cached,
        "prompt_ms": 1000 * cost.prompt_seconds,
        "predicted_n": cost.generated,
        "predicted_ms": 1000 * (cost.seconds - cost.prompt_seconds),
    }
    return {"usage": usage, "timings": timings}


def _completion(reply: WrittenReply, cost: ReplyCost, used: Set[str]) -> JsonObject:
    draw = draws_of(reply.text, *(text for _, text in reply.calls))
    calls: list[JsonValue] = [
        {
            "id": _new_id(draw, used),
            "type": "function",
            "function": {"name": name, "arguments": text},
        }
        for name, text in reply.calls
    ]
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = calls
    reason = _reason(reply)
    return {
        "id": "chatcmpl-simulated",
        "object": "chat.completion",
        "created": 0,
        "model": "simulated",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        **_usage_and_timings(cost),
    }


def _overflow(tokens: int, window: int) -> JsonObject:
    error: JsonObject = {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens,
        "n_ctx": window,
    }
    return {"error": error}


class _QuietServer(uvicorn.Server):
    """A uvicorn server that ignores signals, and sets `ready` after its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class ServedApp(Protocol):
    """A served application; `serve` sets its `url`."""

    url: str

    def app(self) -> Starlette: ...


@asynccontextmanager
async def serve(server: ServedApp) -> AsyncGenerator[str, None]:
    """Serve on a free port of this machine; yields the URL."""
    config = uvicorn.Config(server.app(), log_config=None, access_log=False, ws="none")
    running = _QuietServer(config)
    with contextlib.closing(socket.create_server((_HOST, 0))) as listening:
        # with Nagle's algorithm, the kernel would hold a token back for up to 40 ms
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.create_task(running.serve(sockets=[listening]))
        await running.ready.wait()
        server.url = f"http://{_HOST}:{listening.getsockname()[1]}"
        try:
            yield server.url
        finally:
            running.should_exit = True
            await task
