import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.pairing import UNANSWERED, introduce_orphan, pair_calls
from proxy.guardrails.transcript import list_completed_calls
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, result, said, written


def test_a_call_with_the_note_about_a_missing_result_counts_as_failed() -> None:
    (completed,) = list_completed_calls(history(called(call("a")), result("a", UNANSWERED)))
    assert completed.has_failed


def test_the_heading_of_an_orphaned_result_names_its_tool_if_known() -> None:
    assert introduce_orphan("look").startswith("Result of look, ")
    assert introduce_orphan("").startswith("Result, ")


def test_a_result_without_a_name_is_paired_with_a_call_without_a_name() -> None:
    messages = history(called(call(None, "")), {"role": "tool", "content": "fine"})
    healed, _ = pair(messages)
    assert [message.role for message in healed] == ["assistant", "tool"]
    assert list_completed_calls(healed)[0].has_failed is False


HI = said("user", "Hi")
NOTE = result("a", UNANSWERED)


def orphan(text: str, name: str = "") -> JsonObject:
    return said("user", f"{introduce_orphan(name)}\n\n{text}")


def pair(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], list[str]]:
    facts: list[Fact] = []
    healed = pair_calls(messages, facts)
    return healed, [fact.what for fact in facts if isinstance(fact, Healed)]


INTACT: list[list[JsonObject]] = [
    [],
    [HI, said("assistant", "Hello")],
    [called(call("a"), call("b")), result("b"), result("a"), HI],
    [called(call("a")), result("a"), called(call("a")), result("a")],
    [called(call("a"), call("a")), result("a"), result("a")],
    [called(call("a")), HI, result("a")],
    [called(call("a")), HI, called(call("b")), result("b"), result("a")],
    [said("user", "Hi", tool_calls=[call("a")])],
]


@pytest.mark.parametrize("messages", INTACT)
def test_paired_messages_are_unchanged(messages: list[JsonObject]) -> None:
    original = history(*messages)
    healed, facts = pair(original)
    assert all(message is other for message, other in zip(healed, original, strict=True))
    assert facts == []


PLAYBOOK: list[tuple[str, list[JsonObject], list[JsonObject], list[str]]] = [
    (
        "a call without an id gets an id that is made from its position",
        [HI, called(call(None), call(""), content="So"), result("call_1_1"), result("call_1_0")],
        [
            HI,
            called(call("call_1_0"), call("call_1_1"), content="So"),
            result("call_1_1"),
            result("call_1_0"),
        ],
        ["call_id"],
    ),
    (
        "a generated id differs from the ids of other calls",
        [called(call(None), call("call_0_0")), result("call_0_0"), result(None)],
        [called(call("call_0_0_"), call("call_0_0")), result("call_0_0"), result("call_0_0_")],
        ["call_id", "result_id"],
    ),
    (
        "results without ids belong to the calls in order",
        [called(call("a"), call("b")), result(None, "1"), result("", "2")],
        [called(call("a"), call("b")), result("a", "1"), result("b", "2")],
        ["result_id", "result_id"],
    ),
    (
        "results without ids belong to the calls with their names",
        [
            called(call("a"), call("b", "go"), call("c", "go")),
            result(None, "1", name="go"),
            result(None, "2", name="look"),
            result(None, "3", name="go"),
        ],
        [
            called(call("a"), call("b", "go"), call("c", "go")),
            result("b", "1", name="go"),
            result("a", "2", name="look"),
            result("c", "3", name="go"),
        ],
        ["result_id", "result_id", "result_id"],
    ),
    (
        "a result with the name of another tool is an orphan",
        [called(call("a")), result(None, "1", name="go")],
        [called(call("a")), NOTE, orphan("1", "go")],
        ["orphan_result", "unanswered_call"],
    ),
    (
        "a result with an unknown id belongs to a call without an id",
        [called(call(None)), result("x")],
        [called(call("call_0_0")), result("call_0_0")],
        ["call_id", "result_id"],
    ),
    (
        "a function message is the result of a tool",
        [called(call("a")), said("function", "1", name="look")],
        [called(call("a")), result("a", "1", name="look")],
        ["result_id"],
    ),
    (
        "notes about missing results follow the other results of a message",
        [called(call("b"), call("a"), call("c")), result("c"), HI],
        [called(call("b"), call("a"), call("c")), result("c"), result("b", UNANSWERED), NOTE, HI],
        ["unanswered_call", "unanswered_call"],
    ),
    (
        "a call at the end of the history gets a note",
        [HI, called(call("a"))],
        [HI, called(call("a")), NOTE],
        ["unanswered_call"],
    ),
    (
        "a result belongs to the latest call with its id",
        [called(call("a")), HI, called(call("a")), result("a", "1"), result("a", "2")],
        [called(call("a")), NOTE, HI, called(call("a")), result("a", "1"), orphan("2")],
        ["orphan_result", "unanswered_call"],
    ),
    (
        "a result without an id does not belong to a call of an earlier reply",
        [called(call("a")), called(call("b")), result("b"), result(None, "1")],
        [called(call("a")), NOTE, called(call("b")), result("b"), orphan("1")],
        ["orphan_result", "unanswered_call"],
    ),
    (
        "orphaned results become user messages",
        [result("z", "1", name="look"), HI, result(None, [{"type": "text", "text": "2"}])],
        [
            orphan("1", "look"),
            HI,
            said("user", [{"type": "text", "text": text} for text in (introduce_orphan(""), "2")]),
        ],
        ["orphan_result", "orphan_result"],
    ),
    (
        "an orphaned result does not separate a call from its result",
        [called(call("a")), result("z", "1"), result("a"), HI],
        [called(call("a")), result("a"), orphan("1"), HI],
        ["orphan_result"],
    ),
]


@pytest.mark.parametrize(
    ("received", "expected", "facts"),
    [row for _, *row in PLAYBOOK],
    ids=[name for name, *_ in PLAYBOOK],
)
def test_unpaired_calls_and_results_are_repaired(
    received: list[JsonObject], expected: list[JsonObject], facts: list[str]
) -> None:
    healed, reported = pair(history(*received))
    assert written(healed) == expected
    assert reported == facts


def test_a_late_result_replaces_the_note_about_the_missing_result() -> None:
    before = [called(call("a")), HI]
    assert written(pair(history(*before))[0]) == [called(call("a")), NOTE, HI]
    after = [*before, result("a")]
    assert written(pair(history(*after))[0]) == after


def test_unrepaired_members_of_a_message_keep_their_bytes() -> None:
    (made,) = history(called(call("a"), call(None)))
    source = made.source.replace(b'"id":"a"', b'"id": "\\u0061"')
    (healed, *_), _ = pair((Message("assistant", "", source, made.calls),))
    assert b'"id": "\\u0061"' in healed.source


UNITS: list[list[JsonObject]] = [
    [called(call("a")), result("a")],
    [called(call("a"))],
    [result(None)],
    [HI, result("z")],
]


@pytest.mark.parametrize("unit", UNITS)
def test_pairing_takes_time_linear_in_the_history(unit: list[JsonObject]) -> None:
    messages = history(*unit)
    assert is_linear(lambda text: pair(messages * len(text)), lambda size: "x" * size, 500)


@pytest.mark.parametrize("call_id", [None, "a"])
def test_pairing_takes_time_linear_in_the_calls_of_a_message(call_id: str | None) -> None:
    (reply,) = history(called(call(call_id)))
    results = history(result(call_id, name="look"))

    def work(text: str) -> None:
        pair((*history(called(*[call(call_id)] * len(text))), *results * len(text)))

    assert reply.calls
    assert is_linear(work, lambda size: "x" * size, 500)
