from dataclasses import replace

import pytest

from benchmarks.healthy.client import Seen
from benchmarks.healthy.comparison import delays, difference, prompt_difference
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import Delta
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.respond import make_respond_tool

SEEN = Seen(200, [("text", "Yes."), ("name 0", "look")], "tool_calls", {"total_tokens": 3})
TOOL: JsonObject = {"type": "function", "function": {"name": "look"}}
MESSAGE: JsonObject = {"role": "user", "content": "Look!"}


def test_equal_answers_do_not_differ_however_late_they_were() -> None:
    assert difference(SEEN, replace(SEEN, total=9.0, arrived={"text": [(4, 8.0)]})) == ""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (replace(SEEN, parts=[("text", "No."), SEEN.parts[1]]), "text 'No.', not text 'Yes.'"),
        (replace(SEEN, parts=SEEN.parts[:1]), "nothing '', not name 0 'look'"),
        (replace(SEEN, parts=SEEN.parts[::-1]), "name 0 'look', not text 'Yes.'"),
        (replace(SEEN, reason="stop"), "finish reason stop, not tool_calls"),
        (replace(SEEN, usage=None), "usage None, not {'total_tokens': 3}"),
        (replace(SEEN, status=502), "status 502: "),
        (Seen(502, problem="an error"), "status 502: an error"),
    ],
)
def test_every_difference_is_named(changed: Seen, expected: str) -> None:
    assert difference(SEEN, changed) == expected


def test_a_backend_that_fails_is_named_first() -> None:
    failed = Seen(500, problem="broken")
    assert difference(failed, failed) == "the backend itself answered 500: broken"


def body(tools: list[JsonValue], *messages: JsonValue) -> bytes:
    return json.dump({"messages": [*messages], "tools": tools})


def test_a_prompt_may_differ_by_the_tool_for_answers_alone() -> None:
    sent = body([TOOL], MESSAGE)
    respond = json.parse(make_respond_tool(()).source)
    assert prompt_difference(sent, ReceivedRequest("1", body([TOOL, respond], MESSAGE))) == ""
    assert prompt_difference(sent, ReceivedRequest("1", sent)) == ""
    nudged = body([TOOL], MESSAGE, MESSAGE)
    assert prompt_difference(sent, ReceivedRequest("1", nudged)) == "the messages were changed"
    other = body([{**TOOL, "strict": True}], MESSAGE)
    assert prompt_difference(sent, ReceivedRequest("1", other)) == "the tools were changed"
    assert prompt_difference(sent, ReceivedRequest("1", body([respond], MESSAGE))) != ""


def test_a_delta_travels_until_its_last_character_is_there() -> None:
    deltas = (Delta("text", "Yes"), Delta("text", ", no"), Delta("arguments 0", "{}"))
    seen = Seen(sent_at=100.0, arrived={"text": [(2, 1.0), (7, 3.0)], "arguments 0": [(2, 4.0)]})
    received = ReceivedRequest("1", b"", [100.5, 101.0, 103.0])
    assert list(delays(seen, received, deltas)) == [2.5, 2.0, 1.0]


def test_a_delta_that_is_held_counts_from_the_one_that_lets_it_out() -> None:
    deltas = (Delta("text", "Yes"), Delta("text", ","))
    seen = Seen(sent_at=100.0, arrived={"text": [(4, 3.0)]})
    asked = ReceivedRequest("1", b"", [101.0, 102.0, 102.5])
    assert list(delays(seen, asked, deltas)) == [2.0, 1.0]
    assert list(delays(seen, asked, deltas, (1, 2))) == [1.0, 0.5]
    assert list(delays(seen, asked, deltas, (1, 3))) == [1.0]


def test_a_delta_that_never_arrived_has_no_delay() -> None:
    deltas = (Delta("text", "Yes"), Delta("arguments 0", "{}"))
    assert list(delays(Seen(), ReceivedRequest("1", b"", [1.0, 2.0]), deltas)) == []
    assert list(delays(Seen(arrived={"text": [(3, 1.0)]}), ReceivedRequest("1", b""), deltas)) == []
