"""The HTTP responses to each kind of model reply, streamed and whole."""

import asyncio

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.dialects.lenient_json import member
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from tests.fakes import sse
from tests.fakes.running_proxy import CHAT, RunningProxy, request, temper
from tests.fakes.scripted_backend import Script, refuses
from tests.fakes.sse import calls, says

PARIS = '{"city": "Paris"}'
LEAKED = f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>'
CALLED: list[tuple[JsonValue, JsonValue]] = [("get_weather", {"city": "Paris"})]
CLEAN = {"attempts": "1", "outcome": "clean"}


def with_policy(policy: str) -> dict[str, str]:
    return {"x-temper-text-policy": policy}


async def test_a_valid_call_is_returned_with_its_id_unchanged(*, stream: bool) -> None:
    async with temper(calls("get_weather", '{"city"', ': "Paris"}')) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert (answer.called, answer.text, answer.reason) == (
        CALLED,
        stream_text(stream),
        "tool_calls",
    )
    assert answer.calls[0]["id"] == "call_backend"
    assert answer.report == CLEAN


def stream_text(stream: bool) -> str | None:
    """Return what `answer.text` is when the reply has no text: "" if streamed, otherwise None."""
    return "" if stream else None


async def test_call_leaked_into_text_is_rescued(*, stream: bool) -> None:
    async with temper(says("Let me see.\n", *LEAKED)) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert (answer.text, answer.called, answer.reason) == ("Let me see.", CALLED, "tool_calls")
    assert answer.report == {"attempts": "1", "outcome": "repaired", "repairs": "rescued=hermes"}
    assert "tool_call>" not in answer.body.decode()


async def test_parallel_calls_keep_their_order_and_have_unique_ids(*, stream: bool) -> None:
    london = '{"city": "London"}'
    reply = (
        sse.START
        + sse.call_delta("get_weather", PARIS, call_id="same")
        + sse.call_delta("get_weather", london, index=1, call_id=None)
        + sse.end("tool_calls")
    )
    async with temper(reply) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert answer.called == [*CALLED, ("get_weather", {"city": "London"})]
    ids = {str(call["id"]) for call in answer.calls}
    assert len(ids) == 2
    assert "" not in ids


async def test_a_text_answer_is_streamed_at_once_and_needs_one_generation() -> None:
    gate = asyncio.Event()
    script = Script((sse.START + sse.text("It is "), gate, sse.text("sunny."), sse.end()))
    async with temper(script) as proxy:
        body = json.dump(request(stream=True))
        async with proxy.client.stream("POST", "/v1/chat/completions", content=body) as response:
            seen = ""
            async for piece in response.aiter_text():
                seen += piece
                if "It is" in seen:
                    gate.set()
    assert "sunny." in seen
    assert "attempts=1; outcome=clean" in seen


async def test_under_the_text_policy_respond_prose_is_retried_once_and_then_accepted(
    *, stream: bool
) -> None:
    async with temper(says("It is sunny."), says("Really, ", "it is.")) as proxy:
        answer = await proxy.ask(request(), stream=stream, headers=with_policy("respond"))
    assert (answer.text, answer.reason) == ("Really, it is.", "stop")
    assert answer.report == {"attempts": "2", "outcome": "retried", "repairs": "rejected=prose"}
    assert len(proxy.backend.upstream_requests) == 2


@pytest.mark.parametrize("is_by_header", [False, True], ids=["setting", "header"])
async def test_under_the_text_policy_accept_prose_is_returned_without_a_retry(
    *, stream: bool, is_by_header: bool
) -> None:
    headers = with_policy("accept") if is_by_header else None
    policy = Policy() if is_by_header else Policy(text_policy=TextPolicy.ACCEPT)
    async with temper(says("It is ", "sunny."), serving=ServerOptions(policy=policy)) as proxy:
        answer = await proxy.ask(request(), stream=stream, headers=headers)
    assert (answer.text, answer.reason, answer.report) == ("It is sunny.", "stop", CLEAN)
    assert len(proxy.backend.upstream_requests[0].tools) == 2
    if stream:
        assert len(answer.pieces) > 1


@pytest.mark.parametrize("is_by_header", [False, True], ids=["setting", "header"])
async def test_prose_instead_of_a_required_call_is_retried_and_reported_as_exhausted(
    *, stream: bool, is_by_header: bool
) -> None:
    headers = with_policy("require") if is_by_header else None
    policy = Policy() if is_by_header else Policy(text_policy=TextPolicy.REQUIRE)
    scripts = (says("No."), says("I said no."), says("Never."))
    async with temper(*scripts, serving=ServerOptions(policy=policy)) as proxy:
        answer = await proxy.ask(request(), stream=stream, headers=headers)
    assert (answer.text, answer.called, answer.reason) == ("I said no.", [], "stop")
    assert answer.report == {"attempts": "3", "outcome": "exhausted", "repairs": "rejected=prose"}


async def test_a_call_of_the_respond_tool_is_returned_as_text(*, stream: bool) -> None:
    message = calls("respond", '{"mess', 'age": "It is', " su", 'nny."}')
    async with temper(message) as proxy:
        answer = await proxy.ask(request(), stream=stream, headers=with_policy("respond"))
    assert (answer.text, answer.calls, answer.reason) == ("It is sunny.", [], "stop")
    assert answer.report == CLEAN
    assert "respond" not in answer.body.decode()
    if stream:
        assert len(answer.pieces) == 3


@pytest.mark.parametrize(
    ("bad", "violation"),
    [
        (calls("get_wether_now", PARIS), "is not a tool"),
        (calls("get_weather", '{"city": "Paris", "days": "soon"}'), "/days"),
        (calls("get_weather", '{"city": {'), "could not be read"),
    ],
    ids=["name", "schema", "json"],
)
async def test_a_nudge_is_appended_to_the_unchanged_messages(
    *, stream: bool, bad: bytes, violation: str
) -> None:
    async with temper(bad, calls("get_weather", PARIS)) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert (answer.called, answer.report["outcome"]) == (CALLED, "retried")
    first, second = proxy.backend.upstream_requests
    assert second.messages[: len(first.messages)] == first.messages
    assert violation in second.messages[-1].decode()
    assert second.raw["tools"] == first.raw["tools"]
    assert b"respond" not in first.raw["tools"]


async def test_if_text_was_already_streamed_only_the_call_of_the_retry_is_sent() -> None:
    bad = sse.START + sse.text("I will look.") + sse.call_delta("get_weather", "{}")
    again = sse.START + sse.text("Sorry!") + sse.call_delta("get_weather", PARIS)
    end = sse.end("tool_calls")
    async with temper(bad + end, again + end) as proxy:
        answer = await proxy.ask(request(), stream=True, headers=with_policy("accept"))
    assert (answer.text, answer.called) == ("I will look.", CALLED)
    assert answer.reason == "tool_calls"


async def test_the_third_attempt_is_constrained_to_a_call(*, stream: bool) -> None:
    forced = json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}})
    bad = calls("get_weather", "{}")
    async with temper(bad, bad, says(*forced)) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert (answer.called, answer.report["attempts"]) == (CALLED, "3")
    first, _, last = proxy.backend.upstream_requests
    assert last.raw["tools"] == first.raw["tools"]
    assert last.fields["tool_choice"] == "none"
    assert last.messages[: len(first.messages)] == first.messages
    format_ = last.fields["response_format"]
    assert isinstance(format_, dict)
    assert format_["type"] == "json_schema"
    assert "get_weather" in json.dump_text(format_)
    # no argument was certain, so no call had been streamed that the attempt would have to complete
    assert "respond" in json.dump_text(format_)


async def test_the_earlier_reply_is_returned_if_the_retry_fails(*, stream: bool) -> None:
    async with temper(says("It is sunny."), refuses(400, {"message": "no"})) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert (answer.status, answer.text) == (200, "It is sunny.")


async def test_a_streamed_call_ends_with_an_error_if_no_attempt_completes_it() -> None:
    bad = calls("get_weather", '{"city": "Paris"', ', "days": "no"}')
    async with temper(bad, calls("get_time", "{}"), says("{}")) as proxy:
        answer = await proxy.ask(request(), stream=True)
    assert answer.error is not None
    assert answer.error["code"] == "call_broke_off"
    assert answer.reason is None
    assert not answer.is_done


async def test_guardrails_can_be_switched_off_for_one_request(*, stream: bool) -> None:
    async with temper(says(LEAKED)) as proxy:
        off = {"x-temper-guardrails": "off"}
        answer = await proxy.ask(request(), stream=stream, headers=off)
    assert (answer.text, answer.calls, answer.report) == (LEAKED, [], CLEAN)
    assert len(proxy.backend.upstream_requests[0].tools) == 2


@pytest.mark.parametrize("others", [{"tools": None}, {"tools": []}, {"tool_choice": "none"}])
async def test_without_tools_a_reply_that_looks_like_a_call_is_returned_unchanged(
    *, stream: bool, others: dict[str, JsonValue]
) -> None:
    async with temper(says("An example: ", LEAKED)) as proxy:
        answer = await proxy.ask(request(**others), stream=stream)
    assert (answer.text, answer.calls) == (f"An example: {LEAKED}", [])
    assert "respond" not in proxy.backend.upstream_requests[0].body.decode()


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
async def test_prose_is_retried_until_the_model_makes_the_required_call(
    *, stream: bool, choice: JsonValue
) -> None:
    forced = json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}})
    async with temper(says("No."), calls("get_time", "{}"), says(forced)) as proxy:
        body = request(tool_choice=choice)
        answer = await proxy.ask(body, stream=stream)
    assert answer.called == (CALLED if isinstance(choice, dict) else [("get_time", {})])
    assert "respond" not in proxy.backend.upstream_requests[0].body.decode()
    assert {
        upstream_request.fields["tool_choice"]
        for upstream_request in proxy.backend.upstream_requests
    } <= {
        "auto",
        "none",
    }


async def test_only_one_call_is_returned_if_parallel_calls_are_disabled(*, stream: bool) -> None:
    two = sse.call_delta("get_weather", PARIS) + sse.call_delta("get_time", "{}", index=1)
    async with temper(sse.START + two + sse.end("tool_calls")) as proxy:
        answer = await proxy.ask(request(parallel_tool_calls=False), stream=stream)
    assert answer.called == CALLED


async def test_reasoning_of_the_model_is_returned(*, stream: bool) -> None:
    thought = sse.delta({"reasoning_content": "Hm."})
    reply = sse.START + thought + sse.call_delta("get_weather", PARIS)
    async with temper(reply + sse.end("tool_calls")) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    assert (answer.reasoning, answer.called) == ("Hm.", CALLED)


async def test_many_clients_are_served_concurrently() -> None:
    count = 40

    async def serve_number(proxy: RunningProxy, number: int) -> None:
        body = request(messages=[{"role": "user", "content": f"number {number}"}])
        answer = await proxy.ask(body, stream=bool(number % 2))
        assert answer.called == CALLED

    gate = asyncio.Event()
    script = Script((gate, calls("get_weather", PARIS)))
    async with temper(*[script] * count) as proxy:
        asking = asyncio.gather(*(serve_number(proxy, number) for number in range(count)))
        for _ in range(count):
            await proxy.backend.next_request()
        gate.set()
        await asking


QUICKLY = ServerOptions(timeouts=StreamTimeouts(keep_alive=0.02))


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k"}])
async def test_a_response_that_is_not_streamed_begins_with_spaces_while_the_model_is_silent(
    headers: dict[str, str],
) -> None:
    gate = asyncio.Event()
    async with temper(Script((gate, says("Hi."))), serving=QUICKLY) as proxy:
        body = request(tools=None)
        async with proxy.client.stream("POST", CHAT, json=body, headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"] == "application/json"
            assert response.headers["x-temper-backend"]
            received = b""
            async for piece in response.aiter_bytes():
                received += piece
                if len(received) > 1:
                    gate.set()
    assert received.startswith(b"  {")
    message = member(json.parse(received), "choices", 0, "message")
    assert message == {"role": "assistant", "content": "Hi."}


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k"}])
async def test_a_response_that_is_not_streamed_is_cut_off_if_it_fails_after_its_start(
    headers: dict[str, str],
) -> None:
    gate = asyncio.Event()
    async with temper(Script((gate,), 500), says("Hi."), serving=QUICKLY) as proxy:
        body, pieces = request(tools=None), list[bytes]()

        async def receive() -> None:
            async with proxy.client.stream("POST", CHAT, json=body, headers=headers) as response:
                async for piece in response.aiter_bytes():
                    pieces.append(piece)
                    gate.set()

        with pytest.raises(httpx.RemoteProtocolError):
            await receive()
        again = await proxy.client.post(CHAT, json=body, headers=headers)
    assert b'"code":"backend_error"' in b"".join(pieces)
    assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)


async def test_a_failure_before_the_start_of_the_response_has_its_own_status() -> None:
    async with temper(refuses(429, {"message": "Later."}), serving=QUICKLY) as proxy:
        assert (await proxy.ask(request(), stream=False)).status == 429
