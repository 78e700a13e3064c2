import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.members import heal_members
from tests.fakes.histories import call, called, history, result, said, written


def heal(message: JsonObject) -> tuple[Message, Message, list[Fact]]:
    (given,) = history(message)
    facts: list[Fact] = []
    return given, heal_members(given, facts), facts


@pytest.mark.parametrize(
    "message",
    [
        said("user", "{bad"),
        said("user", [{"type": "input_audio", "input_audio": {}}]),
        said("user", ""),
        result("a", ""),
        said("assistant", "Hello"),
        said("assistant", None, tool_calls=[]),
        said("assistant", None),
        {"role": "assistant", "tool_calls": []},
        {"role": "assistant", "tool_calls": None},
        called(call("a", arguments='{"a": 1}')),
        called(call("a", arguments={"type": "function", "arguments": "x"})),
        called(call("a"), call("b", arguments='{"type": "function"}'), content="So"),
    ],
)
def test_what_is_not_broken_stays_the_very_same_message(message: JsonObject) -> None:
    given, healed, facts = heal(message)
    assert healed is given
    assert facts == []


@pytest.mark.parametrize(
    ("arguments", "mended"),
    [("", "{}"), ("  ", "{}"), (None, "{}"), ('{"a', '{"unparsable":"{\\"a"}')],
)
def test_arguments_become_json_text(arguments: JsonValue, mended: str) -> None:
    _, healed, facts = heal(called(call("a"), call("b", arguments=arguments), content="So"))
    assert written([healed]) == [called(call("a"), call("b", arguments=mended), content="So")]
    assert healed.calls[1].arguments == mended
    assert facts == [Healed("arguments")]


def test_missing_arguments_become_an_empty_object() -> None:
    _, healed, _ = heal(called({"id": "a", "type": "function", "function": {"name": "look"}}))
    assert written([healed]) == [called(call("a"))]


def test_a_call_without_type_gets_one() -> None:
    function: JsonObject = {"name": "look", "arguments": {"type": "function"}}
    _, healed, facts = heal(called({"id": "a", "function": function}))
    assert written([healed]) == [called({"id": "a", "type": "function", "function": function})]
    assert facts == [Healed("type")]


@pytest.mark.parametrize("role", ["assistant", "user", "tool", "system"])
def test_a_message_without_content_says_nothing(role: str) -> None:
    _, healed, facts = heal({"role": role})
    assert written([healed]) == [said(role, "")]
    assert facts == [Healed("content")]


def test_only_the_assistant_may_have_a_content_of_null() -> None:
    _, healed, facts = heal(said("user", None, name="Ann"))
    assert written([healed]) == [said("user", "", name="Ann")]
    assert facts == [Healed("content")]


def test_what_was_not_mended_keeps_its_bytes() -> None:
    source = b'{"role":"assistant","x":1.50,"tool_calls":[{"id":"a","function":{"name":"f"}}]}'
    (given,) = history(called(call("a", arguments="{bad")))
    message = Message("assistant", "", source, given.calls)
    assert b'"x":1.50' in heal_members(message, []).source


@pytest.mark.parametrize("call_", ["?", {"id": "a"}, {"function": None}])
def test_what_is_no_call_is_left_alone(call_: JsonValue) -> None:
    message = Message("assistant", "", json.dump(called(call_)))
    assert heal_members(message, []) is message
