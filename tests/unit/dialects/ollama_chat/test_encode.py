import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import Tool, ToolUse
from proxy.dialects.ollama_chat.encode import (
    encode_messages,
    encode_question,
    encode_tool,
)
from proxy.dialects.ollama_chat.fields import ModelSettings
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidRequest
from tests.fakes.upstream_requests import upstream_request

KEPT = {"type", "description", "enum", "items", "properties", "required", "anyOf"}


def encoded_tool(parameters: JsonValue, **function: JsonValue) -> JsonObject:
    source: JsonObject = {"name": "look", "parameters": parameters, **function}
    tool = Tool("look", True, json.dump({"type": "function", "function": source}))
    written = encode_tool(tool)
    assert isinstance(written, dict)
    assert written["type"] == "function"
    assert isinstance(written["function"], dict)
    return written["function"]


def parameter(schema: JsonValue, /, **others: JsonValue) -> JsonValue:
    """Encode a schema as that of the parameter `x`."""
    root = parameters({"type": "object", "properties": {"x": schema}, **others})
    assert isinstance(root["properties"], dict)
    return root["properties"]["x"]


def parameters(schema: JsonSchema) -> JsonObject:
    root = encoded_tool(schema)["parameters"]
    assert isinstance(root, dict)
    return root


def test_a_plain_tool_stays_as_it_is() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "unit": {"type": ["string", "null"], "enum": ["c", "f", None]},
            "days": {"type": "array", "items": {"type": "integer"}},
            "more": {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        },
        "required": ["city"],
    }
    assert encoded_tool(schema, description="Look out.") == {
        "name": "look",
        "description": "Look out.",
        "parameters": schema,
    }


@pytest.mark.parametrize("nothing", [None, True, {}, {"type": "object"}])
def test_a_tool_without_parameters_has_none(nothing: JsonValue) -> None:
    empty: JsonObject = {"type": "object", "properties": {}}
    assert encoded_tool(nothing, description=None) == {"name": "look", "parameters": empty}


def test_what_would_be_dropped_is_said_in_words() -> None:
    schema: JsonObject = {"type": "integer", "minimum": 1, "default": 3, "title": "X"}
    words = "minimum: 1; default: 3"
    assert parameter(schema) == {"type": "integer", "description": words}
    described: JsonObject = {**schema, "description": "How many."}
    assert parameter(described) == {"type": "integer", "description": f"How many. ({words})"}


def test_a_map_says_of_what() -> None:
    schema: JsonObject = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert parameter(schema) == {
        "type": "object",
        "description": 'additionalProperties: {"type":"integer"}',
    }
    assert parameter({"type": "object", "additionalProperties": False}) == {"type": "object"}


def test_words_of_the_same_meaning_are_used() -> None:
    assert parameter({"const": "a"}) == {"enum": ["a"]}
    assert parameter({"oneOf": [{"type": "string"}, True]}) == {"anyOf": [{"type": "string"}, {}]}
    assert parameter({"anyOf": [{"const": 1}], "oneOf": [{}]}) == {"anyOf": [{"enum": [1]}]}


def test_boolean_schemas_become_objects() -> None:
    assert parameter(True) == {}
    assert parameter(False) == {"description": "No value is valid here."}
    assert parameter({"type": "array", "items": True}) == {"type": "array", "items": True}


def test_keywords_of_the_wrong_kind_are_not_sent() -> None:
    odd: JsonObject = {"type": 3, "enum": "a", "required": True, "properties": None}
    assert parameter(odd) == {}


schemas: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["object", "a", "#/$defs/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*sorted(KEPT), "$ref", "$defs", "allOf", "oneOf", "const", "minimum", "a"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(schemas, schemas)
def test_whatever_the_schema_ollama_can_read_what_is_sent(
    schema: JsonValue, definition: JsonValue
) -> None:
    """Go's decoder refuses the whole request for one member of the wrong kind."""
    document: JsonObject = {
        "type": "object",
        "properties": {"x": schema},
        "$defs": {"a": definition},
    }
    root = parameters(document)
    assert root["type"] == "object"
    check_readable(root)


def check_readable(schema: JsonValue) -> None:
    assert isinstance(schema, dict)
    assert schema.keys() <= KEPT | {"$defs"}
    assert isinstance(schema.get("description", ""), str)
    for names in (schema.get("type", []), schema.get("required", [])):
        assert isinstance(names, str) or all(isinstance(name, str) for name in as_list(names))
    assert isinstance(schema.get("enum", []), list)
    properties = schema.get("properties", {})
    assert isinstance(properties, dict)
    for part in (*properties.values(), *as_list(schema.get("anyOf", []))):
        check_readable(part)


def as_list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def test_references_are_put_in_their_place() -> None:
    city: JsonObject = {"type": "string", "pattern": "^[A-Z]"}
    definitions: JsonObject = {"a/b~c": city, "two": {"$ref": "#/$defs/a~1b~0c"}}
    assert parameter({"$ref": "#/$defs/two"}, **{"$defs": definitions}) == {
        "type": "string",
        "description": 'pattern: "^[A-Z]"',
    }
    listed: JsonObject = {"type": "array", "items": {"$ref": "#/$defs/two", "description": "One."}}
    assert parameter(listed, **{"$defs": definitions}) == {
        "type": "array",
        "items": {"type": "string", "description": 'One. (pattern: "^[A-Z]")'},
    }


@pytest.mark.parametrize("reference", ["https://host/schema", "#/$defs/none", "#/properties/x"])
def test_references_that_lead_nowhere_are_told(reference: str) -> None:
    told = {"description": f"as in {reference}"}
    assert parameter({"$ref": reference}) == told


def test_a_schema_within_itself_is_told_once() -> None:
    tree: JsonObject = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}
    schema: JsonObject = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": tree},
    }
    inner: JsonObject = {"description": "as in #/$defs/tree"}
    assert parameters(schema) == {
        "type": "object",
        "properties": {"x": {"type": "object", "properties": {"left": inner}}},
        "$defs": {"tree": tree},
    }


def test_nested_references_do_not_multiply_without_an_end() -> None:
    definitions: JsonObject = {
        f"d{number}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/d{number + 1}"} for side in "ab"},
        }
        for number in range(40)
    }
    written = parameter({"$ref": "#/$defs/d0"}, **{"$defs": definitions})
    assert len(json.dump(written)) < 100_000


def test_the_parts_of_a_whole_are_merged() -> None:
    base: JsonObject = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    schema: JsonObject = {
        "allOf": [
            {"$ref": "#/$defs/base"},
            {"properties": {"b": {"const": 1}}, "required": ["a", "b"]},
            True,
        ],
        "description": "Both.",
    }
    definitions: JsonObject = {"base": base}
    assert parameter(schema, **{"$defs": definitions}) == {
        "type": "object",
        "description": "Both.",
        "properties": {"b": {"enum": [1]}, "a": {}},
        "required": ["a", "b"],
    }


def test_forms_of_all_parameters_are_offered_together() -> None:
    forms: list[JsonValue] = [
        {"properties": {"a": {"const": 1}}, "required": ["a"]},
        {"properties": {"b": {}}},
        {"required": ["c"]},
    ]
    written = parameters({"type": "object", "properties": {"c": {}}, "oneOf": forms})
    assert written["properties"] == {"a": {"enum": [1]}, "b": {}, "c": {}}
    assert str(written["description"]).startswith("One of these forms: [")
    assert "anyOf" not in written


def test_the_root_is_an_object_whatever_it_says() -> None:
    assert parameters({"type": ["object", "null"]})["type"] == "object"


TERMS = ModelSettings("qwen3:8b", 8192)


def body(asked: UpstreamRequest) -> JsonObject:
    value = json.parse(encode_question(asked, TERMS))
    assert isinstance(value, dict)
    return value


def test_a_question_is_streamed_and_never_cut() -> None:
    assert body(upstream_request(text="Hi")) == {
        "model": "qwen3:8b",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"seed": 7, "num_ctx": 8192},
    }


def test_a_model_that_must_not_call_hears_of_no_tool() -> None:
    assert "tools" not in body(upstream_request(tool_choice=ToolUse.NONE))
    assert "tools" not in body(upstream_request(has_tools=False))


def test_what_is_demanded_of_the_model_is_no_matter_for_ollama() -> None:
    assert body(upstream_request(tool_choice=ToolUse.REQUIRED)) == body(upstream_request())


def test_a_constrained_attempt_has_the_prompt_of_the_first() -> None:
    schema: JsonObject = {"type": "object"}
    first = body(upstream_request())
    assert body(replace(upstream_request(), schema=schema)) == {**first, "format": schema}


PIXEL = "aGVsbG8="
PICTURE: JsonObject = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def encoded(*messages: JsonValue) -> list[JsonValue]:
    asked: JsonObject = {"model": "m", "messages": list(messages)}
    return encode_messages(decode_request(json.dump(asked)).messages)


def refused(*messages: JsonValue) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        encoded(*messages)
    return raised.value


def test_plain_messages_keep_role_and_text() -> None:
    history: list[JsonValue] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    assert encoded(*history) == history


def test_a_developer_is_the_system_and_no_content_is_none() -> None:
    assert encoded({"role": "developer", "content": None}) == [{"role": "system", "content": ""}]


def test_parts_become_text_and_pictures() -> None:
    content: list[JsonValue] = [
        text("Look:"),
        PICTURE,
        {"type": "refusal", "refusal": "No."},
        {"type": "refusal"},
        text("Now."),
    ]
    assert encoded({"role": "user", "content": content}) == [
        {"role": "user", "content": "Look:\nNo.\n\nNow.", "images": [PIXEL]}
    ]


def test_an_address_alone_is_a_picture_as_well() -> None:
    part: JsonObject = {"type": "image_url", "image_url": f"data:image/png;base64,{PIXEL}"}
    assert encoded({"role": "user", "content": [part]}) == [
        {"role": "user", "content": "", "images": [PIXEL]}
    ]


@pytest.mark.parametrize(
    "url", ["data:image/svg+xml,%3Csvg%3E", "data:image/png;base64,###", "data:image/png;base64,"]
)
def test_a_picture_that_is_no_base64_is_refused_by_name(url: str) -> None:
    part: JsonObject = {"type": "image_url", "image_url": {"url": url}}
    error = refused({"role": "user", "content": [text("Look"), part]})
    assert error.param == "messages.0.content.1.image_url.url"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:,"}},
        {"type": "video_url", "video_url": {"url": "data:,"}},
    ],
)
def test_other_parts_are_refused_by_name(part: JsonObject) -> None:
    error = refused({"role": "user", "content": "Hi"}, {"role": "user", "content": [part]})
    assert error.param == "messages.1.content.0"
    assert f"{part['type']}" in error.problem


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_of_the_assistant_go_back_to_it(name: str) -> None:
    message: JsonObject = {"role": "assistant", "content": "4", name: "Two and two."}
    assert encoded(message) == [{"role": "assistant", "content": "4", "thinking": "Two and two."}]
    part: JsonObject = {"type": name, name: "Two and two."}
    assert encoded({"role": "assistant", "content": [part, text("4")]}) == [
        {"role": "assistant", "content": "4", "thinking": "Two and two."}
    ]


def test_nobody_else_has_thoughts() -> None:
    message: JsonObject = {"role": "user", "content": "Hi", "reasoning": "Hm."}
    assert encoded(message) == [{"role": "user", "content": "Hi"}]


def call(call_id: str | None, name: str, arguments: JsonValue) -> JsonObject:
    function: JsonObject = {"name": name, "arguments": arguments}
    identified: JsonObject = {} if call_id is None else {"id": call_id}
    return {**identified, "type": "function", "function": function}


def test_calls_have_objects_and_results_name_their_tool() -> None:
    calls = [call("a", "look", '{"at": "sky"}'), call("b", "wait", ""), call(None, "nap", "{}")]
    assert encoded(
        {"role": "assistant", "content": None, "tool_calls": [*calls]},
        {"role": "tool", "tool_call_id": "a", "content": "blue"},
        {"role": "tool", "tool_call_id": "b", "content": [text("done")]},
    ) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "function": {"index": 0, "name": "look", "arguments": {"at": "sky"}}},
                {"id": "b", "function": {"index": 1, "name": "wait", "arguments": {}}},
                {"function": {"index": 2, "name": "nap", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "blue", "tool_name": "look", "tool_call_id": "a"},
        {"role": "tool", "content": "done", "tool_name": "wait", "tool_call_id": "b"},
    ]


def test_the_order_of_arguments_is_kept() -> None:
    calls = [call("a", "look", '{"z": 1, "a": 2}')]
    (message,) = encoded({"role": "assistant", "tool_calls": [*calls]})
    assert b'{"z":1,"a":2}' in json.dump(message)


@pytest.mark.parametrize("arguments", ["{", "[1]", '"text"'])
def test_arguments_that_are_no_object_are_refused_by_name(arguments: str) -> None:
    error = refused({"role": "assistant", "tool_calls": [call("a", "look", arguments)]})
    assert error.param == "messages.0.tool_calls.0.function.arguments"


def test_a_function_of_old_is_a_tool() -> None:
    assert encoded({"role": "function", "name": "look", "content": "blue"}) == [
        {"role": "tool", "content": "blue", "tool_name": "look"}
    ]
    assert encoded({"role": "tool", "content": "blue"}) == [{"role": "tool", "content": "blue"}]
