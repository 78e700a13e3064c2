import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import NamedTool, ToolUse
from proxy.dialects.openai_chat.choice import ReadChoice, read_choice
from proxy.dialects.openai_chat.schema import validate
from proxy.errors import InvalidRequest
from tests.fakes.playbook import CLOCK, WEATHER


def named(name: str) -> JsonObject:
    return {"type": "function", "function": {"name": name}}


def some(mode: str, *names: str) -> JsonObject:
    tools: list[JsonValue] = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def read(choice: JsonValue) -> ReadChoice:
    checked = validate({"messages": [{"role": "user"}], "tool_choice": choice})
    return read_choice(checked.tool_choice, (WEATHER, CLOCK))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (ToolUse.AUTO, None)),
        ("auto", (ToolUse.AUTO, None)),
        ("none", (ToolUse.NONE, None)),
        ("required", (ToolUse.REQUIRED, None)),
        (named("get_time"), (NamedTool("get_time"), None)),
        (some("auto", "get_time"), (ToolUse.AUTO, frozenset(("get_time",)))),
        (some("required", "get_time"), (ToolUse.REQUIRED, frozenset(("get_time",)))),
    ],
)
def test_a_choice_says_how_tools_may_be_used_and_which(
    choice: JsonValue, expected: ReadChoice
) -> None:
    assert read(choice) == expected


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        (named("x"), "tool_choice.function.name"),
        (some("auto", "get_time", "x"), "tool_choice.allowed_tools.tools.1.function.name"),
    ],
)
def test_only_what_is_offered_can_be_chosen(choice: JsonValue, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(choice)
    assert caught.value.param == param


def test_without_tools_there_is_nothing_to_choose() -> None:
    assert read_choice(None, ()) == (ToolUse.AUTO, None)
    with pytest.raises(InvalidRequest, match="`tools` is empty"):
        read_choice("required", ())
