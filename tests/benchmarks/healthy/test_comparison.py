"""Comparisons of a response and its prompt with and without Temper."""

from dataclasses import replace

import pytest

from benchmarks.healthy.client import ClientResponse
from benchmarks.healthy.comparison import delays, difference, prompt_difference
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import Delta
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.respond import make_respond_tool

ANSWER = ClientResponse(
    200, [("text", "Yes."), ("name 0", "look")], "tool_calls", {"total_tokens": 3}
)
TOOL: JsonObject = {"type": "function", "function": {"name": "look"}}
MESSAGE: JsonObject = {"role": "user", "content": "Look!"}


def test_responses_that_differ_only_in_their_times_count_as_equal() -> None:
    assert difference(ANSWER, replace(ANSWER, total=9.0, arrived={"text": [(4, 8.0)]})) == ""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            replace(ANSWER, parts=[("text", "No."), ANSWER.parts[1]]),
            "text 'No.', not text 'Yes.'",
        ),
        (replace(ANSWER, parts=ANSWER.parts[:1]), "nothing '', not name 0 'look'"),
        (replace(ANSWER, parts=ANSWER.parts[::-1]), "name 0 'look', not text 'Yes.'"),
        (replace(ANSWER, reason="stop"), "finish reason stop, not tool_calls"),
        (replace(ANSWER, usage=None), "usage None, not {'total_tokens': 3}"),
        (replace(ANSWER, status=502), "status 502: "),
        (ClientResponse(502, problem="an error"), "status 502: an error"),
    ],
)
def test_the_first_difference_of_two_responses_is_described(
    changed: ClientResponse, expected: str
) -> None:
    assert difference(ANSWER, changed) == expected


def test_a_failure_of_the_backend_itself_is_named() -> None:
    failed = ClientResponse(500, problem="broken")
    assert difference(failed, failed) == "the backend itself answered 500: broken"


def body(tools: list[JsonValue], *messages: JsonValue) -> bytes:
    return json.dump({"messages": [*messages], "tools": tools})


def test_temper_may_change_a_prompt_only_by_adding_the_answer_tool() -> None:
    sent = body([TOOL], MESSAGE)
    respond = json.parse(make_respond_tool(()).source)
    assert prompt_difference(sent, ReceivedRequest("1", body([TOOL, respond], MESSAGE))) == ""
    assert prompt_difference(sent, ReceivedRequest("1", sent)) == ""
    nudged = body([TOOL], MESSAGE, MESSAGE)
    assert prompt_difference(sent, ReceivedRequest("1", nudged)) == "the messages were changed"
    other = body([{**TOOL, "strict": True}], MESSAGE)
    assert prompt_difference(sent, ReceivedRequest("1", other)) == "the tools were changed"
    assert prompt_difference(sent, ReceivedRequest("1", body([respond], MESSAGE))) != ""


def test_the_delay_of_a_delta_lasts_until_its_last_character_arrives() -> None:
    deltas = (Delta("text", "Yes"), Delta("text", ", no"), Delta("arguments 0", "{}"))
    response = ClientResponse(
        sent_at=100.0, arrived={"text": [(2, 1.0), (7, 3.0)], "arguments 0": [(2, 4.0)]}
    )
    received = ReceivedRequest("1", b"", [100.5, 101.0, 103.0])
    assert list(delays(response, received, deltas)) == [2.5, 2.0, 1.0]


def test_the_delay_of_a_held_back_delta_begins_when_it_may_be_sent() -> None:
    deltas = (Delta("text", "Yes"), Delta("text", ","))
    response = ClientResponse(sent_at=100.0, arrived={"text": [(4, 3.0)]})
    request = ReceivedRequest("1", b"", [101.0, 102.0, 102.5])
    assert list(delays(response, request, deltas)) == [2.0, 1.0]
    assert list(delays(response, request, deltas, (1, 2))) == [1.0, 0.5]
    assert list(delays(response, request, deltas, (1, 3))) == [1.0]


def test_a_delta_that_never_arrived_has_no_delay() -> None:
    deltas = (Delta("text", "Yes"), Delta("arguments 0", "{}"))
    assert list(delays(ClientResponse(), ReceivedRequest("1", b"", [1.0, 2.0]), deltas)) == []
    assert (
        list(
            delays(ClientResponse(arrived={"text": [(3, 1.0)]}), ReceivedRequest("1", b""), deltas)
        )
        == []
    )
