"""A fake llama-server with exactly one defect, examined by `temper doctor`."""

import asyncio
from collections.abc import AsyncGenerator
from enum import Enum

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.doctor.checks import examine
from proxy.doctor.clients import Client
from proxy.doctor.target import Finding
from proxy.settings import Settings
from tests.fakes import sse
from tests.fakes.sockets import listening

WINDOW = 16384
_ORIGIN = "access-control-allow-origin"


class Ailment(Enum):
    """A defect of the server that `temper doctor` has to report."""

    NONE = "nothing"
    LOADS_FOR_EVER = "loads its model for ever"
    SLEEPS = "sleeps, which is no defect"
    IS_A_WEB_PAGE = "answers every request with a web page"
    SMALL_WINDOW = "has a small window"
    IGNORES_TOOLS = "omits the tools from the prompt"
    NEVER_CALLS = "never makes a call"
    CALLS_LATE = "makes a call only in the second attempt"
    NEVER_LETS_GO = "keeps generating after its client has disconnected"
    CACHES_NOTHING = "caches no prompt"
    MISCOUNTS = "counts twice as many tokens"
    CUTS_IN_SILENCE = "truncates a long prompt silently"
    FAILS_ODDLY = "rejects a long prompt with an unknown error"
    OPEN_TO_PAGES = "allows requests of web pages of any origin"
    OPEN_TO_NAMES = "answers requests with any host name"
    BREAKS_OFF = "breaks off its stream"
    TELLS_TIMES = "reports its speed, which is no defect"
    SAYS_LITTLE = "generates a single token, which is no defect"
    SAYS_LITTLE_AND_TELLS_TIMES = "generates a single token, and reports its speed"
    BINDS_NOTHING = "ignores every constraint"
    WANTS_KEY = "requires an API key"
    IS_VLLM = "is a vLLM with a small window"
    IS_TEMPER = "is a Temper"


_SHORT_REPLIES = (Ailment.SAYS_LITTLE, Ailment.SAYS_LITTLE_AND_TELLS_TIMES)


class AilingServer:
    """A server with a defect; it counts one token per word."""

    def __init__(self, ailment: Ailment) -> None:
        self.ailment = ailment
        self.asked = 0
        self._last_prompt = ""
        self._is_busy = False
        paths = {
            "/health": self._health,
            "/props": self._properties,
            "/v1/models": self._models,
            "/slots": self._slots,
            "/metrics": self._metrics,
        }
        posted = {
            "/apply-template": self._render,
            "/v1/chat/completions/input_tokens": self._count,
            "/v1/chat/completions": self._chat,
        }
        self.app = Starlette(
            routes=[
                *(Route(path, answer) for path, answer in paths.items()),
                *(Route(path, answer, methods=["POST"]) for path, answer in posted.items()),
                Route("/{rest:path}", self._unknown, methods=["GET", "POST"]),
            ]
        )

    def _has(self, ailment: Ailment) -> bool:
        return self.ailment is ailment

    async def _health(self, _: Request) -> Response:
        if self._has(Ailment.LOADS_FOR_EVER):
            return JSONResponse({"error": {"message": "Loading model", "code": 503}}, 503)
        return JSONResponse({"status": "ok"})

    async def _properties(self, _: Request) -> Response:
        if self._has(Ailment.IS_A_WEB_PAGE):
            return _page()
        if self._has(Ailment.IS_VLLM):
            return Response(status_code=404)
        window = 4096 if self._has(Ailment.SMALL_WINDOW) else WINDOW
        settings: JsonObject = {"n_ctx": window}
        properties: JsonObject = {
            "build_info": "b1-test",
            "default_generation_settings": settings,
            "total_slots": 1,
            "is_sleeping": self._has(Ailment.SLEEPS),
        }
        return JSONResponse(properties)

    async def _models(self, request: Request) -> Response:
        if self._has(Ailment.IS_A_WEB_PAGE):
            return _page()
        if self._has(Ailment.WANTS_KEY):
            return JSONResponse({"error": "Unauthorized"}, 401)
        if self._has(Ailment.IS_VLLM):
            entry: JsonObject = {"id": "tiny", "owned_by": "vllm", "max_model_len": 2048}
            return JSONResponse({"object": "list", "data": [entry]})
        if self._has(Ailment.IS_TEMPER):
            engine: JsonObject = {"name": "llama.cpp", "lacks": []}
            return JSONResponse({"object": "list", "data": [{"id": "tiny", "engine": engine}]})
        host = request.headers["host"]
        if not host.startswith("127.0.0.1") and not self._has(Ailment.OPEN_TO_NAMES):
            return JSONResponse({"error": "forbidden"}, 403)
        is_authorized = "origin" in request.headers and self._has(Ailment.OPEN_TO_PAGES)
        headers = {_ORIGIN: request.headers["origin"]} if is_authorized else {}
        return JSONResponse({"object": "list", "data": [{"id": "tiny"}]}, headers=headers)

    async def _metrics(self, _: Request) -> Response:
        if not self._has(Ailment.IS_VLLM):
            return Response(status_code=404)
        labels = '{engine="0",model_name="tiny"}'
        running = f"vllm:num_requests_running{labels} {float(self._is_busy)}\n"
        return Response(f"# HELP vllm:x y\n{running}vllm:num_requests_waiting{labels} 0.0\n")

    async def _slots(self, _: Request) -> Response:
        return JSONResponse([{"id": 0, "is_processing": self._is_busy}])

    async def _render(self, request: Request) -> Response:
        body = await request.body()
        return JSONResponse(
            {"prompt": "Hello." if self._has(Ailment.IGNORES_TOOLS) else f"{body!r}"}
        )

    async def _count(self, request: Request) -> Response:
        words = len(_prompt(await request.body()).split())
        return JSONResponse({"input_tokens": words * (2 if self._has(Ailment.MISCOUNTS) else 1)})

    async def _chat(self, request: Request) -> Response:
        body = await request.body()
        prompt = _prompt(body)
        if len(prompt.split()) >= WINDOW and not self._has(Ailment.CUTS_IN_SILENCE):
            return self._overflow(len(prompt.split()))
        if b"ignore_eos" in body:
            return StreamingResponse(self._generate_for_ever(), media_type="text/event-stream")
        if b'"response_format"' in body and not self._has(Ailment.BINDS_NOTHING):
            message: JsonObject = {"role": "assistant", "content": '{"code": "zq7"}'}
            return JSONResponse({"choices": [{"index": 0, "message": message}]})
        if self._has(Ailment.BREAKS_OFF):
            return StreamingResponse(_partial_stream(), media_type="text/event-stream")
        return Response(self._reply(body, prompt), media_type="text/event-stream")

    def _overflow(self, tokens: int) -> Response:
        if self._has(Ailment.FAILS_ODDLY):
            return JSONResponse({"error": {"message": "too much for me", "code": 400}}, 400)
        error: JsonObject = {
            "code": 400,
            "message": f"request ({tokens} tokens) exceeds the available context size",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": tokens,
            "n_ctx": WINDOW,
        }
        return JSONResponse({"error": error}, 400)

    def _reply(self, body: bytes, prompt: str) -> bytes:
        self.asked += 1
        is_late = self._has(Ailment.CALLS_LATE) and self.asked == 1
        if b"`report`" in body and not self._has(Ailment.NEVER_CALLS) and not is_late:
            return sse.calls("report", '{"feeling": "fine"}')
        words = len(prompt.split())
        is_cached = prompt == self._last_prompt and not self._has(Ailment.CACHES_NOTHING)
        self._last_prompt = prompt
        cached = words - 1 if is_cached else 0
        details: JsonObject = {"cached_tokens": None if self._has(Ailment.IS_VLLM) else cached}
        usage: JsonObject = {
            "prompt_tokens": words,
            "completion_tokens": 1 if self.ailment in _SHORT_REPLIES else 20,
            "total_tokens": words + 20,
            "prompt_tokens_details": details,
        }
        finish = sse.part([{"finish_reason": "length", "index": 0, "delta": {}}])
        times: JsonObject = {
            "prompt_n": words,
            "prompt_per_second": 900.4,
            "predicted_per_second": 35.26,
        }
        reports_times = self.ailment in (Ailment.TELLS_TIMES, Ailment.SAYS_LITTLE_AND_TELLS_TIMES)
        extra: JsonObject = {"timings": times} if reports_times else {}
        account = sse.part([], usage=usage, **extra)
        return sse.START + sse.text("OK") + finish + account + sse.DONE

    async def _generate_for_ever(self) -> AsyncGenerator[bytes, None]:
        self._is_busy = True
        try:
            while True:
                yield sse.text("and on ")
                await asyncio.sleep(0)
        finally:
            self._is_busy = self._has(Ailment.NEVER_LETS_GO)

    async def _unknown(self, _: Request) -> Response:
        return _page() if self._has(Ailment.IS_A_WEB_PAGE) else Response(status_code=404)


async def examined(
    ailment: Ailment, settings: JsonObject | None = None, client: Client | None = None
) -> dict[str, Finding]:
    """Run all checks of the doctor against an ailing server; return findings by title."""
    async with listening(AilingServer(ailment).app) as server:
        wanted: dict[str, JsonValue] = {"backend": {"url": server.url}, **(settings or {})}
        examining = examine(Settings.model_validate(wanted), client=client)
        return {check.title: check.finding async for check in examining}


def _page() -> Response:
    return Response("<html>Hello</html>", media_type="text/html")


async def _partial_stream() -> AsyncGenerator[bytes, None]:
    yield sse.START


def _prompt(body: bytes) -> str:
    request = json.parse(body)
    assert isinstance(request, dict)
    messages = request["messages"]
    assert isinstance(messages, list)
    return "\n".join(str(message["content"]) for message in messages if isinstance(message, dict))
