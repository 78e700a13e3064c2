"""HTTP in, HTTP out: every case streaming and not, over a scripted llama-server."""

import asyncio

import pytest

from proxy.api.app import Serving
from proxy.conversation import json
from proxy.guardrails.offer import TextPolicy
from proxy.inference.preparation import Policy
from tests.fakes.http_chat import USAGE, Answer, ask, calls, request, says, temper, whole
from tests.fakes.questions import chunk
from tests.fakes.scripted_server import Played, ScriptedServer, refusal

PARIS = '{"city": "Paris"}'
LEAKED = f'<tool_call>{{"name": "get_weather", "arguments": {PARIS}}}</tool_call>'
CALLED = [("get_weather", {"city": "Paris"})]
ACCEPT = {"x-temper-text-policy": "accept"}
MISMATCH = "The model produced output that does not match the expected peg-native format"


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def is_stream(request: pytest.FixtureRequest) -> bool:
    """Every answer is asked for as one body and as a stream."""
    return bool(request.param)


def get(
    upstream: ScriptedServer,
    body: json.JsonObject | bytes | None = None,
    *,
    is_stream: bool,
    headers: dict[str, str] | None = None,
    serving: Serving | None = None,
) -> Answer:
    """Ask once; the upstream must have played what was prepared."""

    async def run() -> Answer:
        async with temper(upstream, serving) as client:
            return await ask(client, body or request(), is_stream=is_stream, headers=headers)

    return asyncio.run(run())


def test_a_good_call_goes_through(is_stream: bool) -> None:
    answer = get(ScriptedServer(calls(PARIS)), is_stream=is_stream)
    assert answer.calls == CALLED
    assert answer.reason == "tool_calls"
    assert report(answer) == ("1", "clean", "")


def test_a_leaked_call_is_rescued(is_stream: bool) -> None:
    answer = get(ScriptedServer(says("Looking.\n", LEAKED)), is_stream=is_stream)
    assert (answer.text, answer.calls, answer.reason) == ("Looking.", CALLED, "tool_calls")
    assert report(answer) == ("1", "repaired", "rescued=hermes")


def test_a_value_of_the_wrong_type_is_coerced(is_stream: bool) -> None:
    answer = get(ScriptedServer(calls('{"city": "Paris", "days": "3"}')), is_stream=is_stream)
    assert answer.calls == [("get_weather", {"city": "Paris", "days": 3})]
    assert report(answer) == ("1", "repaired", "coerced=1")


def test_a_defect_is_told_to_the_model_and_mended(is_stream: bool) -> None:
    upstream = ScriptedServer(calls('{"days": 3}'), calls(PARIS))
    answer = get(upstream, is_stream=is_stream)
    assert answer.calls == CALLED
    assert report(answer)[:2] == ("2", "retried")
    first, second = (seen.raw for seen in upstream.seen)
    messages = json.split_array(json.split_object(first)["messages"])
    again = json.split_array(json.split_object(second)["messages"])
    assert again[: len(messages)] == messages
    assert b"/city" in again[-1]
    assert json.split_object(first)["tools"] == json.split_object(second)["tools"]


def test_the_last_attempt_is_constrained_to_valid_calls(is_stream: bool) -> None:
    written = json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}})
    upstream = ScriptedServer(calls("{}"), calls("{}"), says(written))
    assert get(upstream, is_stream=is_stream).calls == CALLED
    body = upstream.seen[2].body
    assert body["tool_choice"] == "none"
    assert "get_weather" in str(body["response_format"])
    assert body["tools"] == upstream.seen[0].body["tools"]


@pytest.mark.parametrize("is_streamed_error", [False, True])
def test_a_reply_that_the_server_cannot_parse_is_asked_for_raw(
    is_stream: bool, is_streamed_error: bool
) -> None:
    failure = refusal(500, MISMATCH)
    if is_streamed_error:
        (body,) = failure.pieces
        assert body is not None
        head = whole().pieces[0]
        failure = Played([head, b"data: " + body + b"\n\n"])
    upstream = ScriptedServer(failure, says(LEAKED))
    answer = get(upstream, is_stream=is_stream)
    assert answer.calls == CALLED
    assert answer.error == {}
    assert upstream.seen[1].body["tool_choice"] == "none"
    assert "response_format" not in upstream.seen[1].body


def test_prose_is_nudged_once_and_then_taken(is_stream: bool) -> None:
    upstream = ScriptedServer(says("It is sunny."), says("As I said."))
    answer = get(upstream, is_stream=is_stream)
    assert (answer.text, answer.reason) == ("As I said.", "stop")
    assert len(upstream.seen) == 2


def test_accepted_prose_costs_one_generation(is_stream: bool) -> None:
    upstream = ScriptedServer(says("It is ", "sunny."))
    answer = get(upstream, is_stream=is_stream, headers=ACCEPT)
    assert answer.text == "It is sunny."
    assert report(answer) == ("1", "clean", "")


def test_the_message_of_respond_is_streamed_in_pieces(is_stream: bool) -> None:
    upstream = ScriptedServer(calls('{"message": "It is sunny, at last."}', "respond"))
    answer = get(upstream, is_stream=is_stream)
    assert (answer.text, answer.calls, answer.reason) == ("It is sunny, at last.", [], "stop")
    offered = upstream.seen[0].body["tools"]
    assert isinstance(offered, list)
    assert "respond" in str(offered[-1])
    contents = [one for one in answer.events if "sunny" in str(one) or "It is" in str(one)]
    assert len(contents) > 1 or not is_stream


def test_a_required_call_is_never_answered_with_prose(is_stream: bool) -> None:
    written = json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}})
    upstream = ScriptedServer(says("No."), says("Never."), says(written))
    body = request(tool_choice="required")
    assert get(upstream, body, is_stream=is_stream).calls == CALLED
    assert [seen.body["tool_choice"] for seen in upstream.seen] == ["auto", "auto", "none"]


def test_a_cut_off_call_is_left_out(is_stream: bool) -> None:
    answer = get(ScriptedServer(calls('{"city": "Par', reason="length")), is_stream=is_stream)
    assert (answer.calls, answer.reason) == ([], "length")


def test_guardrails_can_be_switched_off(is_stream: bool) -> None:
    upstream = ScriptedServer(says(LEAKED))
    answer = get(upstream, is_stream=is_stream, headers={"x-temper-guardrails": "off"})
    assert (answer.text, answer.calls) == (LEAKED, [])
    assert upstream.seen[0].body["tools"] == request()["tools"]


def test_a_strict_server_says_when_nothing_helped(is_stream: bool) -> None:
    upstream = ScriptedServer(calls("{}"), calls("{}"), says("{}"))
    answer = get(upstream, is_stream=is_stream, serving=Serving(Policy(is_strict=True)))
    assert answer.error["code"] == "tool_call_unrepairable"
    if not is_stream:
        assert answer.status == 502
        assert answer.headers["x-should-retry"] == "false"
    assert not answer.is_done


def test_an_exhausted_ladder_is_reported(is_stream: bool) -> None:
    upstream = ScriptedServer(calls("{}"), calls("{}"), calls("{}"))
    answer = get(upstream, is_stream=is_stream)
    assert (answer.calls, answer.reason) == ([], "stop")
    assert report(answer)[:2] == ("3", "exhausted")


def test_reasoning_is_passed_on(is_stream: bool) -> None:
    upstream = ScriptedServer(
        whole(chunk({"reasoning_content": "Hm."}), chunk({"content": "Noon."}), chunk({}, "stop"))
    )
    answer = get(upstream, is_stream=is_stream, headers=ACCEPT)
    assert (answer.reasoning, answer.text) == ("Hm.", "Noon.")


def test_the_operators_policy_holds_where_the_client_wishes_nothing(is_stream: bool) -> None:
    serving = Serving(Policy(text_policy=TextPolicy.ACCEPT))
    assert get(ScriptedServer(says("Hi.")), is_stream=is_stream, serving=serving).text == "Hi."


def test_an_untouched_request_travels_byte_for_byte(is_stream: bool) -> None:
    raw = (
        b'{"model":"m", "temperature": 1.0e0,"messages" : [ {"role":"user",\n'
        b'"content":"h\\u00e9, \\/ \xc3\xa9","extra":{"b":1,"a":[1.50,2E2]}} ],'
        b'"unknown":{"z":1,"y":  2},"seed":12345678901234567890,"temper":{},"stream":%s}'
    ) % (b"true" if is_stream else b"false")
    upstream = ScriptedServer(says("Hi."))
    answer = get(upstream, raw, is_stream=is_stream)
    assert answer.text == "Hi."
    sent, received = json.split_object(raw), json.split_object(upstream.seen[0].raw)
    for name in ("model", "temperature", "messages", "unknown", "seed"):
        assert received[name] == sent[name]
    assert received["stream"] == b"true"
    assert "temper" not in received


def test_a_stream_has_what_clients_rely_on() -> None:
    upstream = ScriptedServer(calls(PARIS))
    body = request(stream_options={"include_usage": True})
    answer = get(upstream, body, is_stream=True)
    first, *_, finish, usage = answer.events
    assert {one["id"] for one in answer.events} == {"chatcmpl-1"}
    assert {one["object"] for one in answer.events} == {"chat.completion.chunk"}
    assert {one["created"] for one in answer.events} == {1700000000}
    assert choice_of(first)["delta"] == {"role": "assistant", "content": ""}
    assert choice_of(finish) == {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    assert (usage["choices"], usage["usage"]) == ([], USAGE)
    assert answer.is_done
    assert answer.comments == ["x-temper attempts=1; outcome=clean"]
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"


def test_a_stream_has_usage_only_on_request() -> None:
    answer = get(ScriptedServer(calls(PARIS)), is_stream=True)
    assert all(one["choices"] for one in answer.events)


def test_a_body_has_what_clients_rely_on() -> None:
    (document,) = get(ScriptedServer(calls(PARIS)), is_stream=False).events
    assert document["id"] == "chatcmpl-1"
    assert document["object"] == "chat.completion"
    assert document["usage"] == USAGE
    assert choice_of(document)["index"] == 0


def test_many_clients_are_served_at_once() -> None:
    async def run() -> list[Answer]:
        upstream = ScriptedServer(*(says(LEAKED) for _ in range(40)))
        async with temper(upstream) as client:
            asking = (ask(client, request(), is_stream=bool(one % 2)) for one in range(40))
            return await asyncio.gather(*asking)

    assert all(answer.calls == CALLED for answer in asyncio.run(run()))


def test_both_paths_of_the_endpoint_answer() -> None:
    async def run() -> int:
        async with temper(ScriptedServer(says("Hi."), says("Hi."))) as client:
            response = await client.post("/chat/completions", json=request(tools=None))
            return response.status_code

    assert asyncio.run(run()) == 200


def choice_of(event: json.JsonObject) -> json.JsonObject:
    choices = event["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    return choices[0]


def report(answer: Answer) -> tuple[str, str, str]:
    """Read attempts, outcome and repairs from the headers or from the comment of a stream."""
    if answer.comments:
        _, _, said = answer.comments[-1].partition(" ")
        told = dict(part.split("=", 1) for part in said.split("; "))
        return told["attempts"], told["outcome"], told.get("repairs", "")
    read = answer.headers.get
    return read("x-temper-attempts"), read("x-temper-outcome"), read("x-temper-repairs", "")
