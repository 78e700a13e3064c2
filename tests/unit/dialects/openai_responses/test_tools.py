import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import NamedTool, ToolChoice, ToolUse
from proxy.dialects.openai_chat.decode import ReadChoice
from proxy.dialects.openai_responses.client_tools import Origin, ToolKind
from proxy.dialects.openai_responses.tools import ToolTable, read_choice
from proxy.dialects.raw_json import Node
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted
from tests.fakes.responses import member, tool

AGENTS: JsonObject = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [tool("spawn", description="Start one."), {"type": "custom", "name": "ask"}],
}


def node(tools: JsonValue, path: str = "tools") -> Node:
    return Node(tools, json.dump(tools), path)


def table_of(*tools: JsonObject, facts: list[Fact] | None = None) -> ToolTable:
    table = ToolTable([] if facts is None else facts)
    table.offer(node([*tools]))
    return table


def names(table: ToolTable) -> list[str]:
    return [one.name for one in table.tools]


def refusal_of(*tools: JsonObject) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        table_of(*tools)
    return caught.value


def test_a_function_goes_out_with_the_bytes_of_its_schema() -> None:
    source = (
        b'{"type":"function","name":"f","parameters":{"a" : 1.0},"strict":false,"description":"d"}'
    )
    value = json.parse(source)
    table = ToolTable([])
    table.offer(Node([value], b"[" + source + b"]", "tools"))
    (read,) = table.tools
    assert read.parameters == {"a": 1.0}
    assert read.source == (
        b'{"type":"function","function":{"name":"f","description":"d",'
        b'"parameters":{"a" : 1.0},"strict":false}}'
    )
    assert table.origins == {"f": Origin(ToolKind.FUNCTION, "f")}


def test_no_tools_are_no_tools() -> None:
    table = ToolTable([])
    table.offer(None)
    assert table.find(None) == []
    table.check()
    assert table.tools == ()


def test_the_members_of_a_namespace_are_functions_that_lead_back_to_it() -> None:
    table = table_of(AGENTS)
    assert names(table) == ["agents__spawn", "agents__ask"]
    assert table.origins["agents__spawn"] == Origin(ToolKind.FUNCTION, "spawn", "agents")
    assert table.origins["agents__ask"] == Origin(ToolKind.CUSTOM, "ask", "agents")
    described = [member(json.parse(one.source), "function", "description") for one in table.tools]
    assert described == ["Other agents.\n\nStart one.", "Other agents."]
    bare = table_of({"type": "namespace", "name": "n", "tools": [tool("f")]})
    assert b"description" not in bare.tools[0].source


def test_every_tool_that_a_client_runs_can_be_offered() -> None:
    table = table_of(
        {"type": "custom", "name": "run"},
        {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
        {"type": "shell"},
        {"type": "local_shell"},
        {"type": "apply_patch"},
    )
    assert names(table) == ["run", "tool_search", "shell", "local_shell", "apply_patch"]
    assert [table.origins[name].kind for name in names(table)] == [
        ToolKind.CUSTOM,
        ToolKind.SEARCH,
        ToolKind.SHELL,
        ToolKind.LOCAL_SHELL,
        ToolKind.PATCH,
    ]


@pytest.mark.parametrize(
    ("tools", "param", "said"),
    [
        ([{"type": "file_search"}], "tools.0", "'file_search' are not supported. Nothing here"),
        ([{"type": "hologram", "name": "h"}], "tools.0.type", "'hologram'"),
        ([{"name": "f"}], "tools.0.type", "required"),
        ([{"type": "function"}], "tools.0.name", "required"),
        ([tool(" ")], "tools.0.name", "empty"),
        ([tool("a\x00")], "tools.0.name", "control"),
        ([tool("f"), tool("f")], "tools.1", "Two tools are named 'f'"),
        ([tool("f"), tool("f", defer_loading=True)], "tools.1", "Two tools"),
        ([tool("agents__spawn"), AGENTS], "tools.1.tools.0", "Two tools"),
        (
            [{"type": "namespace", "name": "n", "tools": [{"type": "shell"}]}],
            "tools.0.tools.0.type",
            "functions and custom tools only",
        ),
    ],
)
def test_what_cannot_be_offered_is_refused_by_its_place(
    tools: list[JsonObject], param: str, said: str
) -> None:
    refused = refusal_of(*tools)
    assert refused.param == param
    assert said.lower() in refused.problem.lower()


def test_a_search_of_the_web_is_of_use_beside_a_tool_that_waits() -> None:
    table_of(tool("f", defer_loading=True), {"type": "web_search"}).check()


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("web_search_preview", "web_search"),
        ("image_generation", "image_generation"),
        ("code_interpreter", "code_interpreter"),
        ("hologram", "unknown_tool"),
    ],
)
def test_a_tool_of_a_vendors_server_is_dropped_and_reported(kind: str, word: str) -> None:
    facts: list[Fact] = []
    table = table_of(tool("f"), {"type": kind, "output_format": "png"}, facts=facts)
    table.check()
    assert names(table) == ["f"]
    assert facts == [Omitted(word)]
    assert table.left_out == [kind]


def test_a_search_of_the_web_alone_is_refused() -> None:
    table = table_of({"type": "web_search"})
    with pytest.raises(InvalidRequest) as caught:
        table.check()
    assert caught.value.param == "tools"


def test_a_deferred_tool_is_offered_behind_the_others_once_it_is_found() -> None:
    table = table_of(tool("a", defer_loading=True), tool("b"), tool("c", defer_loading=True))
    assert names(table) == ["b"]
    assert table.find(node([tool("c", description="other")], "input.3.tools")) == ["c"]
    assert names(table) == ["b", "c"]
    assert b"other" not in table.tools[1].source  # as it was described first
    table.find(node([tool("d", defer_loading=True), tool("b")], "input.5.tools"))
    assert names(table) == ["b", "c", "d"]
    table.check()


TOOLS: JsonValue = [
    tool("f"),
    {"type": "namespace", "name": "n", "tools": [tool("g")]},
    {"type": "custom", "name": "run"},
    {"type": "shell"},
    {"type": "web_search"},
]


def read(choice: JsonValue, tools: JsonValue = TOOLS) -> ReadChoice:
    table = ToolTable([])
    table.offer(Node(tools, json.dump(tools), "tools"))
    return read_choice(Node(choice, json.dump(choice), "tool_choice"), table)


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
def test_a_choice_names_tools_as_the_model_knows_them(choice: JsonValue, use: ToolChoice) -> None:
    assert read(choice) == (use, None)


def test_some_of_the_tools_may_be_allowed() -> None:
    some: JsonValue = [{"type": "function", "name": "f"}, {"type": "shell"}, {"type": "web_search"}]
    found = read({"type": "allowed_tools", "mode": "required", "tools": some})
    assert found == (ToolUse.REQUIRED, frozenset(("f", "shell")))


def test_no_choice_is_none() -> None:
    assert read_choice(None, ToolTable([])) == (ToolUse.AUTO, None)


def test_without_tools_none_can_be_demanded() -> None:
    assert read("auto", []) == (ToolUse.AUTO, None)
    assert read("none", []) == (ToolUse.NONE, None)
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
