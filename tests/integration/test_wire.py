"""Details of chat completion responses that clients rely on: ids, usage, headers, chunks."""

import re

import pytest

from proxy.api.app import ServerOptions
from proxy.conversation.json import JsonObject, JsonValue
from proxy.inference.plan import Policy
from tests.fakes import sse
from tests.fakes.running_proxy import CHAT, request, temper
from tests.fakes.sse import calls, says

PLAIN = request(tools=None)
RESPOND = {"x-temper-text-policy": "respond"}
IDENTITY: JsonObject = {
    "id": sse.ID,
    "created": sse.CREATED,
    "model": sse.MODEL,
    "system_fingerprint": sse.FINGERPRINT,
}


async def test_a_response_has_the_id_and_created_time_and_model_of_the_backend(
    *, stream: bool
) -> None:
    async with temper(says("Hi.")) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.identity == IDENTITY


async def test_a_response_gets_a_new_id_and_created_time_if_the_backend_sends_none(
    *, stream: bool
) -> None:
    bare = sse.event({"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]})
    async with temper(bare + sse.DONE) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.text == "Hi."
    assert set(answer.identity) == {"id", "created", "model"}
    assert re.fullmatch("chatcmpl-[0-9a-f]{24}", str(answer.identity["id"]))
    assert answer.identity["model"] == "m"
    assert isinstance(created := answer.identity["created"], int)
    assert created > sse.CREATED


async def test_a_retry_does_not_change_the_id_of_the_response(*, stream: bool) -> None:
    other = says("It is sunny.").replace(sse.ID.encode(), b"chatcmpl-another")
    async with temper(says("Sunny."), other) as proxy:
        answer = await proxy.ask(request(), stream=stream, headers=RESPOND)
    assert (answer.text, answer.identity) == ("It is sunny.", IDENTITY)


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_finish_reason_is_that_of_the_model(*, stream: bool, reason: str) -> None:
    async with temper(says("Hi.", reason=reason)) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("Hi.", reason)


async def test_a_response_that_is_not_streamed_has_the_usage_of_the_backend() -> None:
    async with temper(says("Hi.")) as proxy:
        answer = await proxy.ask(PLAIN)
    assert answer.usage == sse.USAGE


async def test_usage_is_a_separate_chunk_if_the_client_requests_it() -> None:
    async with temper(says("Hi."), says("Hi.")) as proxy:
        body = request(tools=None, stream_options={"include_usage": True})
        answer = await proxy.ask(body, stream=True)
        without = await proxy.ask(PLAIN, stream=True)
    assert [chunk.get("usage") for chunk in answer.chunks if "usage" in chunk] == [sse.USAGE]
    assert answer.chunks[-1]["choices"] == []
    assert answer.chunks[-1]["usage"] == sse.USAGE
    assert without.usage is None
    assert all(chunk["choices"] for chunk in without.chunks)


async def test_the_usage_after_a_retry_is_that_of_the_returned_reply(*, stream: bool) -> None:
    costly: JsonObject = {**sse.USAGE, "prompt_tokens": 99}
    second = (
        sse.START
        + sse.text("It is sunny.")
        + sse.part([{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=costly)
    )
    async with temper(says("Sunny."), second + sse.DONE) as proxy:
        body = request(stream_options={"include_usage": True}) if stream else request()
        answer = await proxy.ask(body, stream=stream, headers=RESPOND)
    assert isinstance(answer.usage, dict)
    totals = answer.usage.pop("temper")
    assert answer.usage == costly
    assert isinstance(totals, dict)
    assert (totals["attempts"], totals["prompt_tokens"]) == (2, 110)


async def test_the_arguments_of_a_call_are_streamed_in_the_deltas_of_the_backend() -> None:
    async with temper(calls("get_weather", '{"city"', ': "Pa', "ris", '"}')) as proxy:
        answer = await proxy.ask(request(), stream=True)
    received = [call for delta in answer.deltas for call in pieces_of(delta)]
    assert received == [
        {
            "index": 0,
            "id": "call_backend",
            "type": "function",
            "function": {"name": "get_weather", "arguments": ""},
        },
        *[{"index": 0, "function": {"arguments": text}} for text in ('{"city": "Pa', "ris", '"}')],
    ]


async def test_call_is_one_delta_if_the_policy_does_not_stream_calls() -> None:
    serving = ServerOptions(policy=Policy(streams_calls=False))
    async with temper(calls("get_weather", '{"city"', ': "Paris"', "}"), serving=serving) as proxy:
        answer = await proxy.ask(request(), stream=True)
    received = [call for delta in answer.deltas for call in pieces_of(delta)]
    assert received == [
        {
            "index": 0,
            "id": "call_backend",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
        }
    ]


def pieces_of(delta: JsonObject) -> list[JsonValue]:
    pieces = delta.get("tool_calls", [])
    assert isinstance(pieces, list)
    return pieces


async def test_a_stream_begins_with_the_role_and_ends_with_the_report_and_the_end_mark() -> None:
    async with temper(says("Hi")) as proxy:
        answer = await proxy.ask(PLAIN, stream=True)
    assert answer.deltas == [{"role": "assistant", "content": ""}, {"content": "Hi"}, {}]
    assert answer.body.endswith(
        b'"finish_reason":"stop"}]}\n\n: x-temper attempts=1; outcome=clean\n\ndata: [DONE]\n\n'
    )


async def test_stream_headers_disable_proxy_buffering() -> None:
    async with temper(says("Hi.")) as proxy:
        answer = await proxy.ask(PLAIN, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-temper-backend"].startswith("http://127.0.0.1:")
    assert "x-temper-outcome" not in answer.headers


async def test_the_headers_of_a_response_that_is_not_streamed_report_interventions() -> None:
    leaked = '<tool_call>{"name": "get_weather", "arguments": {"city": 5}}</tool_call>'
    async with temper(says(leaked)) as proxy:
        answer = await proxy.ask(request())
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-temper-backend"].startswith("http://127.0.0.1:")
    assert answer.headers["x-temper-attempts"] == "1"
    assert answer.headers["x-temper-outcome"] == "repaired"
    assert answer.headers["x-temper-repairs"] == "rescued=hermes;coerced=1"


async def test_logprobs_of_the_backend_are_returned(*, stream: bool) -> None:
    token: JsonObject = {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    logprobs: JsonObject = {"content": [token]}
    chosen: JsonObject = {"index": 0, "finish_reason": None, "logprobs": logprobs}
    chunk = sse.part([{**chosen, "delta": {"content": "Hi"}}])
    async with temper(sse.START + chunk + sse.end()) as proxy:
        answer = await proxy.ask({**PLAIN, "logprobs": True}, stream=stream)
    assert b'"logprobs":{"content":[{"token":"Hi","logprob":-0.5' in answer.body


async def test_the_path_without_v1_is_the_same_endpoint() -> None:
    async with temper(says("Hi.")) as proxy:
        response = await proxy.client.post(CHAT.removeprefix("/v1"), json=PLAIN)
    assert response.status_code == 200
    assert len(proxy.backend.upstream_requests) == 1


async def test_line_separators_in_text_arrive_unchanged(*, stream: bool) -> None:
    nasty = "a\r\nb\n\ndata: [DONE]\n\n\u2028\u0085\x00\x1b[31m\U0001f600\ud7ff"
    async with temper(says(nasty)) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.text == nasty
