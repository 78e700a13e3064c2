import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Request
from proxy.conversation.tools import NamedTool, Tool, ToolUse
from proxy.dialects.foreign_history import write_choice
from proxy.errors import InvalidRequest
from proxy.facts import Omitted
from tests.unit.dialects.anthropic_messages.conversations import TOOLS, body, decode_request

HI: JsonObject = {"role": "user", "content": "Hi"}
LOOK: JsonObject = {"name": "look", "input_schema": {"type": "object"}}


def decoded(*messages: JsonObject, **members: JsonValue) -> Request:
    return decode_request(body([HI, *messages], **members)).request


def names(*messages: JsonObject, tools: list[JsonValue] = TOOLS) -> list[str]:
    return [tool.name for tool in decoded(*messages, tools=tools).tools]


def refused(**members: JsonValue) -> str:
    with pytest.raises(InvalidRequest) as raised:
        decoded(**members)
    return str(raised.value)


def change(kind: str, tool: JsonObject) -> JsonObject:
    return {"role": "system", "content": [{"type": kind, "tool": tool}]}


def found(*names: str) -> JsonObject:
    content: list[JsonValue] = [{"type": "tool_reference", "tool_name": name} for name in names]
    return {"role": "user", "content": [{"type": "tool_result", "content": content}]}


REFERENCE: JsonObject = {"type": "tool_reference", "name": "look"}


class TestATool:
    def test_is_written_as_a_function_with_the_clients_own_schema(self) -> None:
        tool = (
            b'{"name":"f","type":"custom","cache_control":{},"description":"\\u00e4","input_schema":'
            b'{ "type":"object","properties":{"a":{"minimum":1.0}}},"strict":true,'
            b'"input_examples":[{"a":1}],"allowed_callers":["direct"],"eager_input_streaming":true}'
        )
        request = b'{"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"tools":[%b]}'
        (read,) = decode_request(request % tool).request.tools
        source = (
            b'{"type":"function","function":{"name":"f","description":"\\u00e4","parameters":'
            b'{ "type":"object","properties":{"a":{"minimum":1.0}}},"strict":true}}'
        )
        assert read == Tool("f", {"type": "object", "properties": {"a": {"minimum": 1.0}}}, source)

    def test_may_have_no_schema_or_one_that_takes_anything(self) -> None:
        bare, free = decoded(tools=[{"name": "f"}, {"name": "g", "input_schema": True}]).tools
        assert bare.parameters == {"type": "object", "properties": {}}
        assert json.parse(bare.source) == {"type": "function", "function": {"name": "f"}}
        assert free.parameters is True

    @pytest.mark.parametrize(
        ("tools", "problem"),
        [
            ([LOOK, LOOK], "tools.1.name: Two tools are named 'look'"),
            ([{"input_schema": {}}], "tools.0.name: Field required"),
            ([{"name": " "}], "tools.0.name: Expected the name"),
            ([{"name": "a\n"}], "tools.0.name: A name must not"),
            ([{"name": "f", "input_schema": 5}], "tools.0.input_schema: Expected an object, a bo"),
            ([{"name": "f", "description": 5}], "tools.0.description: Expected a string, got the"),
            ([5], "tools.0: Expected an object, got the number 5."),
        ],
    )
    def test_that_cannot_be_offered_is_named(self, tools: JsonValue, problem: str) -> None:
        assert refused(tools=tools).startswith(problem)

    @pytest.mark.parametrize(
        "kind", ["bash_20250124", "text_editor_20250728", "memory_20250818", "computer_20251124"]
    )
    def test_with_a_schema_that_only_one_vendor_knows_is_refused(self, kind: str) -> None:
        problem = refused(tools=[LOOK, {"type": kind, "name": "x"}])
        assert problem.startswith(f"tools.1.type: Not supported: {kind!r}. Only Anthropic's models")
        assert problem.endswith("Offer it as a custom tool with a schema.")

    @pytest.mark.parametrize(
        ("kind", "word"),
        [
            ("web_search_20260318", "web_search"),
            ("web_fetch_20260309", "web_fetch"),
            ("code_execution_20260521", "code_execution"),
            ("advisor_20260301", "advisor"),
            ("brand_new", "unknown_tool"),
        ],
    )
    def test_of_a_vendors_server_is_dropped_and_reported(self, kind: str, word: str) -> None:
        tool: JsonObject = {"type": kind, "name": "x", "model": "other"}
        read = decode_request(body([HI], tools=[tool, LOOK, tool]))
        assert [one.name for one in read.request.tools] == ["look"]
        assert read.facts == (Omitted(word),)
        assert (
            refused(tools=[tool])
            == f"tools: Nothing here runs the tool {word!r}. Offer a custom tool."
        )

    def test_of_an_unknown_type_is_offered_if_it_has_a_schema(self) -> None:
        assert names(tools=[{**LOOK, "type": "brand_new"}]) == ["look"]

    def test_of_a_tool_server_is_refused(self) -> None:
        problem = refused(tools=[LOOK, {"type": "mcp_toolset", "mcp_server_name": "s"}])
        assert problem.startswith("tools.1.type: Not supported: 'mcp_toolset'. Temper connects to")


class TestDeferredTools:
    def test_are_offered_behind_the_others_once_they_are_named(self) -> None:
        assert names() == ["look", "go"]
        assert names(found("last", "gone")) == ["look", "go", "last"]
        assert names(found("last"), found("later", "last")) == ["look", "go", "last", "later"]

    def test_are_all_offered_where_a_vendors_search_would_find_them(self) -> None:
        search: JsonObject = {"type": "tool_search_tool_bm25_20251119", "name": "search"}
        request = body([HI, found("last")], tools=[search, *TOOLS])
        decoded = decode_request(request)
        expected = ["look", "go", "later", "never", "last"]
        assert [tool.name for tool in decoded.request.tools] == expected
        assert decoded.facts == (Omitted("tool_search"),)


class TestToolsThatTheSystemChanges:
    def test_are_offered_from_then_on_or_no_longer(self) -> None:
        removed = change("tool_removal", REFERENCE)
        assert names(removed) == ["go"]
        assert names(removed, removed, change("tool_addition", REFERENCE)) == ["go", "look"]
        later: JsonObject = {"type": "tool_reference", "name": "later"}
        assert names(change("tool_addition", later)) == ["look", "go", "later"]

    def test_may_be_described_there(self) -> None:
        def defined(**tool: JsonValue) -> JsonObject:
            return change("tool_addition", {"type": "tool_definition", "definition": {**tool}})

        assert names(defined(name="new", input_schema={})) == ["look", "go", "new"]
        search = "tool_search_tool_regex"
        assert names(defined(type=search, name="search")) == ["look", "go"]
        (tool,) = decoded(defined(name="look", description="New."), tools=[LOOK]).tools
        assert b"New." in tool.source

    def test_are_checked_like_all_others(self) -> None:
        tool: JsonObject = {"type": "tool_definition", "definition": {"name": "f", "strict": 1}}
        assert names(change("tool_addition", tool), tools=[]) == ["f"]
        tool = {"type": "tool_definition", "definition": {"name": "f", "input_schema": "x"}}
        with pytest.raises(InvalidRequest) as raised:
            names(change("tool_addition", tool))
        assert raised.value.param == "messages.1.content.0.tool.definition.input_schema"


class TestTheChoice:
    @pytest.mark.parametrize(
        ("choice", "read", "written"),
        [
            (None, ToolUse.AUTO, None),
            ({"type": "auto"}, ToolUse.AUTO, None),
            ({"type": "none"}, ToolUse.NONE, "none"),
            ({"type": "any"}, ToolUse.REQUIRED, "required"),
            (
                {"type": "tool", "name": "look"},
                NamedTool("look"),
                {"type": "function", "function": {"name": "look"}},
            ),
        ],
    )
    def test_is_written_in_the_language_of_backends(
        self, choice: JsonValue, read: ToolUse | NamedTool, written: JsonValue
    ) -> None:
        request = decoded(tools=[LOOK], tool_choice=choice)
        assert request.tool_choice == read
        assert json.parse(request.fields.get("tool_choice", b"null")) == written
        assert request.parallel_tool_calls
        assert "parallel_tool_calls" not in request.fields

    @pytest.mark.parametrize("kind", ["auto", "any", "none"])
    def test_may_allow_one_call_at_a_time(self, kind: str) -> None:
        choice: JsonObject = {"type": kind, "disable_parallel_tool_use": True}
        request = decoded(tools=[LOOK], tool_choice=choice)
        assert not request.parallel_tool_calls
        assert request.fields["parallel_tool_calls"] == b"false"

    def test_may_be_anything_harmless_without_tools(self) -> None:
        assert decoded(tools=[], tool_choice={"type": "none"}).tool_choice is ToolUse.NONE

    @pytest.mark.parametrize(
        ("members", "problem"),
        [
            ({"tool_choice": {"type": "any"}}, "tool_choice: It asks for a tool call, but `tools`"),
            ({"tool_choice": {"type": "tool", "name": "x"}, "tools": []}, "tool_choice: It asks"),
            (
                {"tool_choice": {"type": "tool"}, "tools": [LOOK]},
                "tool_choice.name: Field required",
            ),
            (
                {"tool_choice": {"type": "tool", "name": "x"}, "tools": [LOOK, {"name": "g"}]},
                "tool_choice.name: There is no tool 'x' among the offered ones: look, g.",
            ),
            ({"tool_choice": {"type": "some"}}, "tool_choice.type: Expected 'auto', 'any', 'tool'"),
        ],
    )
    def test_that_is_impossible_is_refused(
        self, members: dict[str, JsonValue], problem: str
    ) -> None:
        assert refused(**members).startswith(problem)


def test_a_choice_of_auto_can_be_written() -> None:
    assert write_choice(ToolUse.AUTO) == b'"auto"'
