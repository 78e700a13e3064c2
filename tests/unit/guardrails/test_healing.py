import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, assistant_message, user_message
from proxy.conversation.tools import Tool
from proxy.facts import Healed
from proxy.guardrails.healing import heal_messages, heal_tools


def assistant(source: JsonObject) -> Message:
    return Message("assistant", "", json.dump({"role": "assistant", **source}))


def with_call(function: JsonObject, **more: JsonValue) -> Message:
    return assistant({"tool_calls": [{"id": "a", **more, "function": function}]})


def first_call(message: Message) -> JsonObject:
    source = json.parse(message.source)
    assert isinstance(source, dict)
    calls = source["tool_calls"]
    assert isinstance(calls, list)
    assert isinstance(calls[0], dict)
    return calls[0]


@pytest.mark.parametrize(
    "message",
    [
        user_message("{bad"),
        assistant({"content": "Hello"}),
        assistant_message("Hello"),
        assistant({"content": None, "tool_calls": []}),
        with_call({"name": "f", "arguments": '{"a": 1}'}, type="function"),
        with_call({"name": "f", "arguments": {"a": 1}}, type="function"),
        assistant({"tool_calls": [{"id": "a", "type": "function"}, "?"]}),
    ],
)
def test_what_is_not_broken_stays_the_very_same_message(message: Message) -> None:
    (healed,), facts = heal_messages((message,))
    assert healed is message
    assert facts == ()


@pytest.mark.parametrize("written", ["", "  ", None])
def test_empty_arguments_become_an_empty_object(written: str | None) -> None:
    message = with_call({"name": "f", "arguments": written}, type="function")
    (healed,), facts = heal_messages((message,))
    assert first_call(healed)["function"] == {"name": "f", "arguments": "{}"}
    assert facts == (Healed("arguments"),)


def test_missing_arguments_become_an_empty_object() -> None:
    (healed,), _ = heal_messages((with_call({"name": "f"}, type="function"),))
    assert first_call(healed)["function"] == {"name": "f", "arguments": "{}"}


def test_unparsable_arguments_are_kept_as_a_string_in_an_object() -> None:
    (healed,), facts = heal_messages((with_call({"name": "f", "arguments": '{"a'}),))
    call = first_call(healed)
    assert call["function"] == {"name": "f", "arguments": '{"unparsable":"{\\"a"}'}
    assert call["type"] == "function"
    assert facts == (Healed("arguments"),)


def test_a_call_without_type_gets_one() -> None:
    (healed,), facts = heal_messages((with_call({"name": "f", "arguments": "{}"}),))
    assert first_call(healed)["type"] == "function"
    assert facts == (Healed("type"),)


def test_an_assistant_that_said_and_called_nothing_said_nothing() -> None:
    (healed,), facts = heal_messages((assistant({}),))
    assert json.parse(healed.source) == {"role": "assistant", "content": ""}
    assert facts == (Healed("content"),)


def test_healing_is_idempotent() -> None:
    once, _ = heal_messages((with_call({"name": "f", "arguments": "{bad"}), assistant({})))
    twice, facts = heal_messages(once)
    assert twice == once
    assert facts == ()


def tool(function: JsonValue) -> Tool:
    return Tool("f", True, json.dump({"type": "function", "function": function}))


def test_a_description_of_null_is_dropped() -> None:
    (healed,), facts = heal_tools((tool({"name": "f", "description": None, "strict": None}),))
    assert json.parse(healed.source) == {
        "type": "function",
        "function": {"name": "f", "strict": None},
    }
    assert facts == (Healed("description"),)


@pytest.mark.parametrize("function", [{"name": "f"}, {"name": "f", "parameters": None}, None])
def test_other_tools_stay_as_they_are(function: JsonValue) -> None:
    given = tool(function)
    (healed,), facts = heal_tools((given,))
    assert healed is given
    assert facts == ()
