"""The response when the backend fails: a status, or an event if the stream has begun."""

import asyncio
import gzip
import logging

import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.transport import Timeouts
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes import sse
from tests.fakes.loopback import own_address
from tests.fakes.running_proxy import RunningProxy, request, temper, temper_at
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend, refuses
from tests.fakes.sockets import listening
from tests.fakes.sse import says

PLAIN = request(tools=None)
QUICK = Timeouts(connect=1, first_byte=0.02, idle=0.02)
BREAKING_OFF = Timeouts(connect=1, idle=0.1)
LOADING: JsonObject = {"message": "Loading model", "type": "unavailable_error", "code": 503}
BEGUN = sse.START + sse.text("It is")


PACKED = Script(
    (gzip.compress(b'{"error": {"code": 413, "message": "no luck", "type": "their_error"}}'),),
    413,
    headers={"content-type": "application/json", "content-encoding": "gzip"},
)


def error(status: int, **others: JsonValue) -> Script:
    plain: JsonObject = {"code": status, "message": "no luck", "type": "their_error"}
    return refuses(status, {**plain, **others})


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (error(400), 400, None),
        (PACKED, 413, None),
        (error(401), 401, None),
        (error(403), 403, None),
        (error(404), 404, None),
        (error(429), 429, None),
        (error(500), 502, "backend_error"),
        (error(500, message="Failed to parse tools: x"), 400, None),
        (error(501), 501, None),
        (error(503), 503, None),
        (error(504), 504, None),
        (error(302), 502, "backend_error"),
        (refuses(503, LOADING), 503, "model_loading"),
        (sse.event({"error": {"code": 429, "message": "no luck"}}), 429, None),
        (b"", 502, "backend_protocol_error"),
        (b"<html>Hello</html>", 502, "backend_protocol_error"),
        (b'{"choices": 5}', 502, "backend_protocol_error"),
        (b"{}", 502, "backend_protocol_error"),
        (b"data: [DONE]\n\n", 502, "backend_protocol_error"),
        (b"data: {]\n\n", 502, "backend_protocol_error"),
        (b"data: \xff\xfe\n\n", 502, "backend_protocol_error"),
    ],
)
async def test_a_backend_failure_before_the_first_byte_has_its_own_status(
    *, script: Script | bytes, status: int, code: str | None, stream: bool
) -> None:
    async with temper(script) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.status == status
    assert answer.error is not None
    assert answer.error["code"] == code
    assert answer.headers["content-type"] == "application/json"
    assert len(proxy.backend.upstream_requests) == 1


async def test_an_overflow_error_states_the_prompt_size_and_the_window_like_openai(
    *, stream: bool
) -> None:
    overflow = error(
        400,
        type="exceed_context_size_error",
        message="the request exceeds the available context size",
        n_prompt_tokens=33009,
        n_ctx=2048,
    )
    async with temper(overflow) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert answer.status == 400
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"
    assert answer.error["type"] == "invalid_request_error"
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (33009, 2048)
    assert "maximum context length is 2048 tokens" in str(answer.error["message"])
    assert "exceeds the available context size" in str(answer.error["message"])


async def test_a_retry_after_header_that_is_not_ascii_is_dropped() -> None:
    busy = refuses(429, {"message": "busy"}, headers={"retry-after": "später \u20ac"})
    async with temper(busy) as proxy:
        answer = await proxy.ask(PLAIN)
    assert answer.status == 429
    assert "retry-after" not in answer.headers


async def test_an_unreachable_backend_is_a_502(*, stream: bool) -> None:
    async with listening(ScriptedBackend(), own_address()) as gone:
        url = gone.url
    async with temper_at(url) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        models = await proxy.client.get("/v1/models")
    assert answer.status == models.status_code == 502
    assert answer.error is not None
    assert answer.error["code"] == "backend_unavailable"
    assert url in str(answer.error["message"])


async def test_all_attempts_share_a_deadline(*, stream: bool) -> None:
    serving = ServerOptions(timeouts=StreamTimeouts(deadline=0.2))
    async with temper(says("Prose."), Script((Ending.NEVER,)), serving=serving) as proxy:
        headers = {"x-temper-text-policy": "respond"}
        answer = await proxy.ask(request(), stream=stream, headers=headers)
        await proxy.backend.upstream_requests[1].left.wait()
    assert answer.error is not None
    assert answer.error["code"] == "backend_timeout"
    assert answer.status == (200 if stream else 504)


LATE = [
    pytest.param((BEGUN,), "backend_unavailable", id="end without a reason"),
    pytest.param((BEGUN, Ending.BREAKS), "backend_unavailable", id="broken connection"),
    pytest.param((BEGUN, b"data: {]\n\n"), "backend_protocol_error", id="nonsense"),
    pytest.param((BEGUN, sse.event({"error": {"message": "x"}})), "backend_error", id="error"),
    pytest.param((BEGUN, Ending.NEVER), "backend_timeout", id="silence"),
]


@pytest.mark.parametrize(("steps", "code"), LATE)
async def test_a_failure_during_a_stream_is_an_error_event_without_done_mark(
    steps: tuple[bytes | Ending, ...], code: str
) -> None:
    async with temper(Script(steps), timeouts=BREAKING_OFF) as proxy:
        answer = await proxy.ask(PLAIN, stream=True)
    assert (answer.status, answer.text) == (200, "It is")
    assert answer.error is not None
    assert answer.error["code"] == code
    assert not answer.is_done
    assert answer.body.endswith(b"}}\n\n")


@pytest.mark.parametrize(("steps", "code"), LATE)
async def test_a_reply_that_breaks_off_is_an_error_status_if_the_response_is_not_streamed(
    steps: tuple[bytes | Ending, ...], code: str
) -> None:
    async with temper(Script(steps), timeouts=BREAKING_OFF) as proxy:
        answer = await proxy.ask(PLAIN)
    assert answer.status >= 500
    assert answer.error is not None
    assert answer.error["code"] == code


async def test_a_failed_request_is_logged_without_an_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    async with temper(error(500)) as proxy:
        await proxy.ask(PLAIN)
    (logged,) = [
        record.__dict__["request"] for record in caplog.records if record.name == "proxy.requests"
    ]
    assert (logged.status, logged.outcome, len(logged.attempts)) == (502, None, 1)
    assert logged.error == "refused"


async def in_silence(proxy: RunningProxy, gate: asyncio.Event, lines: int) -> str:
    """Read a stream while the backend is silent; open the gate after `lines` events."""
    body = {**PLAIN, "stream": True}
    seen = ""
    async with proxy.client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        async for piece in response.aiter_text():
            seen += piece
            if seen.count("\n\n") >= lines:
                gate.set()
    return seen


@pytest.mark.parametrize("before", [(), (BEGUN,)], ids=["before the reply", "within the reply"])
async def test_stream_of_a_silent_backend_has_keep_alives(before: tuple[bytes, ...]) -> None:
    gate = asyncio.Event()
    rest = sse.text(" sunny.") + sse.end()
    script = Script((*before, gate, sse.START + rest if not before else rest))
    async with temper(
        script, serving=ServerOptions(timeouts=StreamTimeouts(keep_alive=0.01))
    ) as proxy:
        seen = await in_silence(proxy, gate, 5)
    events = [line for line in seen.split("\n\n") if line]
    assert '"delta":{"role":"assistant","content":""}' in events[0]
    assert seen.count('"role"') == 1
    assert sum('"delta":{},"finish_reason":null' in event for event in events) >= 2
    assert "sunny" in seen
    assert events[-1] == "data: [DONE]"


async def test_a_failure_after_keep_alives_is_an_error_event() -> None:
    gate = asyncio.Event()
    script = Script((gate, b"<html>"))
    async with temper(
        script, serving=ServerOptions(timeouts=StreamTimeouts(keep_alive=0.01))
    ) as proxy:
        seen = await in_silence(proxy, gate, 2)
    assert '"code":"backend_protocol_error"' in seen
    assert "[DONE]" not in seen
