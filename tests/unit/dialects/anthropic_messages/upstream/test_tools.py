import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Parsing
from proxy.conversation.tools import NamedTool, ToolChoice, ToolUse
from proxy.dialects.anthropic_messages.upstream.tools import encode_choice, encode_tool, is_forced
from proxy.dialects.openai_chat.decode import decode_request
from tests.fakes.questions import question

SCHEMA: JsonObject = {"type": "object"}
ALONE: JsonObject = {"disable_parallel_tool_use": True}


def encoded(function: bytes) -> bytes:
    tool = b'{"type":"function","function":' + function + b"}"
    body = b'{"messages":[{"role":"user","content":"Hi"}],"tools":[' + tool + b"]}"
    (read,) = decode_request(body).tools
    return encode_tool(read)


def test_a_schema_is_copied_as_it_was_written() -> None:
    written = b'{ "type": "object", "properties": {"x": {"maximum": 1.0}} }'
    function = b'{"name":"f","description":"D\\u00e9","strict":true,"parameters":%b}' % written
    assert encoded(function) == (
        b'{"name":"f","description":"D\\u00e9","input_schema":%b}' % written
    )


@pytest.mark.parametrize("description", [b"null", b'""'])
def test_an_empty_description_is_none(description: bytes) -> None:
    assert encoded(b'{"name":"f","description":%b}' % description) == (
        b'{"name":"f","input_schema":{"type":"object","properties":{}}}'
    )


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        (None, {"type": "object", "properties": {}}),
        (True, {"type": "object"}),
        ({}, {"type": "object"}),
        ({"type": ["object", "null"], "required": []}, {"type": "object", "required": []}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "type": "object"}),
    ],
)
def test_a_schema_is_one_of_an_object_and_says_so(parameters: JsonValue, schema: JsonValue) -> None:
    tool = json.parse(encoded(json.dump({"name": "f", "parameters": parameters})))
    assert tool == {"name": "f", "input_schema": schema}


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolUse.AUTO, None),
        (ToolUse.NONE, {"type": "none"}),
        (ToolUse.REQUIRED, {"type": "any"}),
        (NamedTool("get_weather"), {"type": "tool", "name": "get_weather"}),
    ],
)
def test_a_choice_is_said_in_other_words(choice: ToolChoice, written: JsonObject | None) -> None:
    asked = question(tool_choice=choice)
    assert encode_choice(asked) == written
    singly = replace(asked, calls_singly=True)
    alone = {} if choice is ToolUse.NONE else ALONE
    assert encode_choice(singly) == {**(written or {"type": "auto"}), **alone}
    single = replace(asked, request=replace(asked.request, parallel_tool_calls=False))
    assert encode_choice(single) == encode_choice(singly)


def test_without_tools_there_is_no_choice() -> None:
    assert encode_choice(question(has_tools=False, tool_choice=ToolUse.NONE)) is None


def test_raw_text_is_had_by_forbidding_calls() -> None:
    assert encode_choice(question(parsing=Parsing.OURS)) == {"type": "none"}


def test_without_a_grammar_a_call_is_forced() -> None:
    asked = question(parsing=Parsing.OURS, schema=SCHEMA)
    assert encode_choice(asked) == {"type": "any", **ALONE}
    named = question(parsing=Parsing.OURS, schema=SCHEMA, tool_choice=NamedTool("get_weather"))
    assert encode_choice(named) == {"type": "tool", "name": "get_weather", **ALONE}


@pytest.mark.parametrize(
    ("kind", "is_so"), [("any", True), ("tool", True), ("auto", False), ("none", False)]
)
def test_any_and_a_name_force_a_call(kind: str, is_so: bool) -> None:
    assert is_forced({"type": kind}) is is_so
    assert not is_forced(None)
