import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import NamedTool, ToolChoice, ToolUse
from proxy.dialects.openai_responses.choice import Choice, read_choice
from proxy.dialects.openai_responses.tools import ToolTable
from proxy.dialects.raw_json import Node
from proxy.errors import InvalidRequest
from tests.fakes.responses import tool

TOOLS: JsonValue = [
    tool("f"),
    {"type": "namespace", "name": "n", "tools": [tool("g")]},
    {"type": "custom", "name": "run"},
    {"type": "shell"},
    {"type": "web_search"},
]


def read(choice: JsonValue, tools: JsonValue = TOOLS) -> Choice:
    table = ToolTable([])
    table.offer(Node(tools, json.dump(tools), "tools"))
    found = read_choice(Node(choice, json.dump(choice), "tool_choice"), table)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        ("auto", ToolUse.AUTO),
        ("none", ToolUse.NONE),
        ("required", ToolUse.REQUIRED),
        ({"type": "function", "name": "f"}, NamedTool("f")),
        ({"type": "function", "name": "g", "namespace": "n"}, NamedTool("n__g")),
        ({"type": "custom", "name": "run"}, NamedTool("run")),
        ({"type": "shell"}, NamedTool("shell")),
    ],
)
def test_a_choice_is_told_in_the_language_of_backends(choice: JsonValue, use: ToolChoice) -> None:
    found = read(choice)
    assert (found.use, found.allowed) == (use, None)
    said = json.parse(found.source)
    if isinstance(use, NamedTool):
        assert said == {"type": "function", "function": {"name": use.name}}
    else:
        assert said == use.value


def test_some_of_the_tools_may_be_allowed() -> None:
    some: JsonValue = [
        {"type": "function", "name": "f"},
        {"type": "shell"},
        {"type": "web_search"},
    ]
    found = read({"type": "allowed_tools", "mode": "required", "tools": some})
    assert found == Choice(ToolUse.REQUIRED, b'"required"', frozenset(("f", "shell")))


def test_no_choice_is_none() -> None:
    assert read_choice(None, ToolTable([])) is None


def test_without_tools_none_can_be_demanded() -> None:
    assert read("auto", []).use is ToolUse.AUTO
    assert read("none", []).use is ToolUse.NONE
    with pytest.raises(InvalidRequest, match="no tool is offered"):
        read("required", [])


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        (3, "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "function", "name": "x"}, "tool_choice.name"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "local_shell"}, "tool_choice.type"),
        ({"type": "file_search"}, "tool_choice.type"),
        ({"type": "web_search"}, "tool_choice.type"),
        ({"type": "allowed_tools", "mode": "none", "tools": []}, "tool_choice.mode"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]},
            "tool_choice.tools.0.name",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_by_its_place(
    choice: JsonValue, param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(choice)
    assert caught.value.param == param
