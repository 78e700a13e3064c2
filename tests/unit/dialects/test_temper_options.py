import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidRequest

USER: JsonObject = {"role": "user", "content": "Hello"}
A: JsonObject = {"type": "function", "function": {"name": "a"}}
B: JsonObject = {"type": "function", "function": {"name": "b"}}
GONE: JsonObject = {"workflow": {"required_steps": ["gone"], "terminal_tools": ["b"]}}


def workflow(
    temper: JsonObject, *tools: JsonValue, messages: list[JsonValue] | None = None
) -> Workflow:
    body: JsonObject = {"messages": messages or [USER], "tools": [*tools], "temper": temper}
    return decode_request(json.dump(body)).workflow


def refused(temper: JsonObject, *tools: JsonValue) -> str:
    with pytest.raises(InvalidRequest) as raised:
        workflow(temper, *tools)
    return str(raised.value)


def test_rules_are_read() -> None:
    rule: JsonObject = {"tool": "b", "needs": "a", "argument": "path"}
    rules: JsonObject = {"required_steps": ["a"], "prerequisites": [rule], "terminal_tools": ["b"]}
    read = Workflow(("a",), (Prerequisite("b", "a", "path"),), ("b",))
    assert workflow({"workflow": rules}, A, B) == read
    assert workflow({}, A) == NO_RULES


def test_rules_that_nobody_can_keep_are_refused() -> None:
    rules: JsonObject = {"required_steps": ["a"], "terminal_tools": ["a"]}
    said = refused({"workflow": rules}, A)
    assert said.startswith("temper.workflow.required_steps.0: These rules cannot be kept: nobody")


def test_a_tool_that_is_not_offered_is_refused_by_its_place() -> None:
    said = refused(GONE, A, B)
    assert said == (
        "temper.workflow.required_steps.0: There is no tool 'gone' among the offered ones: a, b."
    )


def test_a_tool_that_was_called_before_need_not_be_offered_again() -> None:
    call: JsonObject = {"id": "1", "type": "function", "function": {"name": "gone"}}
    made: JsonObject = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert workflow(GONE, B, messages=[USER, made]).required_steps == ("gone",)


def test_without_tools_rules_mean_nothing() -> None:
    assert workflow(GONE).required_steps == ("gone",)
