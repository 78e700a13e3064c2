"""What clients are told when something is wrong, with their request or behind Temper."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest

from proxy.api.app import Serving, create_app
from proxy.api.streaming import Pace
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import Connection, Timeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.http_chat import WEATHER, Answer, ask, request, says, temper, whole
from tests.fakes.questions import chunk, stream
from tests.fakes.scripted_server import Played, ScriptedServer, refusal
from tests.fakes.serving import running

QUICK = Timeouts(connect=1, first_byte=0.05, idle=0.05)


def get(
    upstream: ScriptedServer,
    body: JsonObject | bytes | None = None,
    *,
    is_stream: bool = False,
    headers: dict[str, str] | None = None,
    serving: Serving | None = None,
    timeouts: Timeouts | None = None,
) -> Answer:
    async def run() -> Answer:
        async with temper(upstream, serving, timeouts=timeouts) as client:
            content = request() if body is None else body
            return await ask(client, content, is_stream=is_stream, headers=headers)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"messages": NaN}',
        b'{"messages": 1e999}',
        b'{"model": "a", "model": "b", "messages": []}',
        b'\xef\xbb\xbf{"messages": []}',
        '{"messages": []}'.encode("utf-16"),
        b'{"messages": "\xff"}',
        b'{"messages": "\\ud800"}',
        b"[" * 100_000,
        b'{"messages": ' + b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "Hi"}]} trailing',
    ],
)
def test_a_body_that_is_no_json_object_is_the_clients_error(body: bytes) -> None:
    answer = get(ScriptedServer(), body)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"]
    assert answer.error["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [5]}, "messages.0"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": 1}]}]}, "messages.0.content.0.type"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "zoo", "function": {"name": "a"}}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        ({"tools": [WEATHER, WEATHER]}, "tools.1.function.name"),
        ({"tool_choice": "zoo"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"stream": "yes"}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"stop": [1]}, "stop.0"),
        ({"seed": "x"}, "seed"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"response_format": {"type": "poem"}}, "response_format.type"),
        ({"logit_bias": []}, "logit_bias"),
        ({"temper": 1}, "temper"),
    ],
)
def test_a_wrong_field_is_named(change: JsonObject, param: str) -> None:
    answer = get(ScriptedServer(), json.dump({**request(), **change}))
    assert answer.status == 400
    assert str(answer.error["param"]).startswith(param)


def test_a_picture_from_elsewhere_is_never_fetched() -> None:
    url: JsonObject = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}
    message: JsonObject = {"role": "user", "content": [url]}
    answer = get(ScriptedServer(), request(messages=[message]))
    assert answer.status == 400
    assert "image_url" in str(answer.error["param"])


@pytest.mark.parametrize(
    ("header", "value"), [("x-temper-text-policy", "poem"), ("x-temper-guardrails", "maybe")]
)
def test_a_header_that_cannot_be_obeyed_is_named(header: str, value: str) -> None:
    answer = get(ScriptedServer(), headers={header: value})
    assert answer.status == 400
    assert answer.error["param"] == header


def test_a_body_that_is_too_large_is_refused_unread() -> None:
    answer = get(ScriptedServer(), b"x" * 2000, serving=Serving(max_body_bytes=1000))
    assert answer.status == 413
    assert "max_body_bytes" in str(answer.error["message"])


def test_a_body_without_a_length_is_counted() -> None:
    async def run() -> int:
        async def body() -> AsyncGenerator[bytes, None]:
            for _ in range(20):
                yield b"x" * 100

        async with temper(ScriptedServer(), Serving(max_body_bytes=1000)) as client:
            response = await client.post("/v1/chat/completions", content=body())
            return response.status_code

    assert asyncio.run(run()) == 413


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("played", "status", "code"),
    [
        (refusal(401, "Invalid API Key", "authentication_error"), 401, None),
        (refusal(404, "no such model", "not_found_error"), 404, None),
        (refusal(429, "slow down"), 429, None),
        (refusal(500, "out of luck"), 502, "backend_error"),
        (refusal(500, "Failed to parse tools: null"), 400, None),
        (refusal(501, "not built in"), 501, None),
        (refusal(503, "Loading model", "unavailable_error"), 503, "model_loading"),
        (Played([b"<html>"], 200), 502, "backend_protocol_error"),
        (Played([], 200), 502, "backend_protocol_error"),
        (Played([b"data: {]\n\n"], 200), 502, "backend_protocol_error"),
    ],
)
def test_a_failure_before_the_first_byte_has_its_own_status(
    played: Played, status: int, code: str | None, is_stream: bool
) -> None:
    answer = get(ScriptedServer(played), is_stream=is_stream)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"


def test_a_loading_model_asks_to_come_back() -> None:
    played = refusal(503, "Loading model", "unavailable_error")
    assert get(ScriptedServer(played)).headers["retry-after"]


def test_retry_after_is_passed_on() -> None:
    played = refusal(429, "slow down")
    played.headers["retry-after"] = "7"
    assert get(ScriptedServer(played)).headers["retry-after"] == "7"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_overflow_tells_both_numbers(is_stream: bool) -> None:
    wording = "request (33009 tokens) exceeds the available context size (2048 tokens)"
    sizes: dict[str, JsonValue] = {"n_prompt_tokens": 33009, "n_ctx": 2048}
    played = refusal(400, wording, "exceed_context_size_error", **sizes)
    answer = get(ScriptedServer(played), is_stream=is_stream)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 2048" in str(answer.error["message"])
    assert wording in str(answer.error["message"])
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (33009, 2048)


def test_a_backend_that_is_down_is_a_502() -> None:
    async def run() -> Answer:
        app = create_app(LlamaServer(Connection("http://127.0.0.1:1")), Serving())
        async with running(app) as url, httpx.AsyncClient(base_url=url) as client:
            return await ask(client, request())

    answer = asyncio.run(run())
    assert (answer.status, answer.error["code"]) == (502, "backend_unavailable")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_backend_that_never_answers_is_a_504(is_stream: bool) -> None:
    answer = get(ScriptedServer(Played([None])), is_stream=is_stream, timeouts=QUICK)
    assert (answer.status, answer.error["code"]) == (504, "backend_timeout")


def test_all_attempts_together_have_a_deadline() -> None:
    serving = Serving(pace=Pace(deadline=0.05))
    answer = get(ScriptedServer(Played([None])), serving=serving)
    assert (answer.status, answer.error["code"]) == (504, "backend_timeout")


BEGUN = stream(chunk({"role": "assistant"}), chunk({"content": "It is"}), done=False)


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ([], "backend_unavailable"),
        ([b'data: {"error": {"code": 500, "message": "oh"}}\n\n'], "backend_error"),
        ([b"data: {]\n\n"], "backend_protocol_error"),
        ([None], "backend_timeout"),
    ],
)
def test_a_failure_after_the_first_byte_is_an_event_and_no_end(
    rest: list[bytes | None], code: str
) -> None:
    upstream = ScriptedServer(Played([BEGUN, *rest]))
    accept = {"x-temper-text-policy": "accept"}
    answer = get(upstream, is_stream=True, headers=accept, timeouts=QUICK)
    assert answer.status == 200
    assert answer.text == "It is"
    assert answer.error["code"] == code
    assert not answer.is_done
    assert answer.reason is None


def test_a_later_attempt_that_fails_costs_nothing() -> None:
    upstream = ScriptedServer(says("It is sunny."), refusal(500, "out of luck"))
    answer = get(upstream)
    assert (answer.status, answer.text) == (200, "It is sunny.")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_reply_without_an_end_is_an_error(is_stream: bool) -> None:
    played = Played([whole().pieces[0], stream(chunk({"content": "Hi"}), done=False)])
    answer = get(ScriptedServer(played), is_stream=is_stream)
    assert answer.error["code"] == "backend_unavailable"
    assert not answer.is_done
