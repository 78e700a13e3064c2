import jsonschema
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import parse_object
from proxy.dialects.openai_responses import client_tools
from proxy.dialects.openai_responses.client_tools import (
    CALL_FORMS,
    KIND_OF_CALL,
    Origin,
    ToolKind,
    arguments_in,
    call_item,
    flat_name,
)
from proxy.dialects.raw_json import Members, nodes_in
from proxy.errors import InvalidRequest

PATCH: JsonObject = {"type": "update_file", "path": "a.py", "diff": "+x"}


def test_every_kind_of_call_has_ids_of_its_own() -> None:
    assert len({CALL_FORMS[kind].id_prefix for kind in ToolKind}) == len(ToolKind)


def test_the_member_of_a_namespace_comes_back_with_both_names() -> None:
    item = call_item(Origin(ToolKind.FUNCTION, "spawn", "agents"), "c", '{"input": "a"}')
    assert item == {
        "type": "function_call",
        "call_id": "c",
        "name": "spawn",
        "namespace": "agents",
        "arguments": '{"input": "a"}',
    }
    assert flat_name("agents", "spawn") == "agents__spawn"
    assert flat_name(None, "spawn") == "spawn"


@pytest.mark.parametrize(
    ("arguments", "shown"), [('{"input": "a\\nb"}', "a\nb"), ("broken", "broken"), ("{}", "{}")]
)
def test_the_input_of_a_custom_tool_is_plain(arguments: str, shown: str) -> None:
    item = call_item(Origin(ToolKind.CUSTOM, "run"), "c", arguments)
    assert item == {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": shown}


@pytest.mark.parametrize(
    ("kind", "arguments", "item"),
    [
        (
            ToolKind.SEARCH,
            '{"query": "x"}',
            {"type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}},
        ),
        (
            ToolKind.SHELL,
            '{"commands": ["ls"], "timeout_ms": 5}',
            {
                "type": "shell_call",
                "action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None},
            },
        ),
        (
            ToolKind.LOCAL_SHELL,
            '{"command": ["ls", "-l"]}',
            {
                "type": "local_shell_call",
                "action": {
                    "type": "exec",
                    "command": ["ls", "-l"],
                    "working_directory": None,
                    "timeout_ms": None,
                    "env": {},
                    "user": None,
                },
            },
        ),
        (ToolKind.PATCH, json.dump_text(PATCH), {"type": "apply_patch_call", "operation": PATCH}),
        (
            ToolKind.PATCH,
            '{"type":"delete_file","path":"a.py"}',
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a.py"}},
        ),
        (
            ToolKind.SEARCH,
            "[1]",
            {"type": "tool_search_call", "execution": "client", "arguments": {}},
        ),
    ],
)
def test_other_tools_get_calls_in_their_own_shape(
    kind: ToolKind, arguments: str, item: JsonObject
) -> None:
    assert call_item(Origin(kind, kind.value), "c", arguments) == {**item, "call_id": "c"}


@pytest.mark.parametrize(
    ("text", "expected"), [("{}", True), ('{"a": [1]}', True), ("[]", False), ('{"a', False)]
)
def test_a_call_can_be_run_once_its_arguments_are_an_object(text: str, expected: bool) -> None:
    assert (parse_object(text) is not None) is expected


@pytest.mark.parametrize(
    ("kind", "members", "arguments"),
    [
        ("function_call", {"arguments": '{"a":  1}'}, '{"a":  1}'),
        ("function_call", {"arguments": None}, "{}"),
        ("function_call", {}, "{}"),
        ("tool_search_call", {"arguments": {"q": "x"}}, '{"q":"x"}'),
        ("custom_tool_call", {"input": "a\nb"}, '{"input":"a\\nb"}'),
        ("custom_tool_call", {}, '{"input":""}'),
        ("shell_call", {"action": {"timeout_ms": None, "commands": ["ls"]}}, '{"commands":["ls"]}'),
        ("local_shell_call", {"action": {"type": "exec", "command": ["ls"]}}, '{"command":["ls"]}'),
        ("local_shell_call", {}, "{}"),
        ("apply_patch_call", {"operation": PATCH}, json.dump_text(PATCH)),
    ],
)
def test_the_arguments_of_a_call_that_comes_back_are_what_the_model_would_write(
    kind: str, members: JsonObject, arguments: str
) -> None:
    text = arguments_in(KIND_OF_CALL[kind], nodes_in(members, json.dump(members)))
    assert text.text == arguments
    assert json.parse(text.source) == arguments


def test_arguments_that_can_be_none_are_refused() -> None:
    members: JsonObject = {"arguments": [1]}
    with pytest.raises(InvalidRequest, match="arguments: Expected an object, got an array"):
        arguments_in(ToolKind.FUNCTION, nodes_in(members, json.dump(members)))


def members(value: JsonObject) -> Members:
    return nodes_in(value, json.dump(value), "tools.0")


def is_valid(value: JsonValue, shown: client_tools.OfferedForm) -> bool:
    return jsonschema.Draft202012Validator(shown.checked).is_valid(value)


def test_a_function_is_shown_as_it_is() -> None:
    shown = client_tools.function(members({"description": "d", "parameters": {"type": "object"}}))
    assert shown.description is not None
    assert (shown.description.text, shown.parameters) == ("d", b'{"type":"object"}')
    assert shown.checked == {"type": "object"}
    assert client_tools.function(members({"parameters": True})).checked is True


def test_a_function_without_parameters_takes_none() -> None:
    shown = client_tools.function(members({"parameters": None}))
    assert json.parse(shown.parameters) == shown.checked == {"type": "object", "properties": {}}
    assert shown.description is None


def test_parameters_that_are_no_schema_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        client_tools.function(members({"parameters": [1]}))
    assert caught.value.param == "tools.0.parameters"


def test_a_search_is_a_function_if_the_client_runs_it() -> None:
    shown = client_tools.search(members({"execution": "client", "description": "find"}))
    assert shown.description is not None
    for hosted in ({}, {"execution": "server"}):
        with pytest.raises(InvalidRequest, match='Send it with `execution: "client"`'):
            client_tools.search(members({**hosted}))


@pytest.mark.parametrize("kind", [ToolKind.SHELL, ToolKind.LOCAL_SHELL, ToolKind.PATCH])
def test_a_built_in_tool_gets_a_description_and_a_schema(kind: ToolKind) -> None:
    shown = client_tools.built_in(kind, members({}))
    assert shown.description is not None
    jsonschema.Draft202012Validator.check_schema(shown.checked)
    assert not is_valid({}, shown)


def test_only_a_local_shell_is_one_that_the_client_runs() -> None:
    local = members({"environment": {"type": "local"}})
    client_tools.built_in(ToolKind.SHELL, local)
    hosted = members({"environment": {"type": "container_auto"}})
    with pytest.raises(InvalidRequest) as caught:
        client_tools.built_in(ToolKind.SHELL, hosted)
    assert caught.value.param == "tools.0.environment"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"type": "delete_file", "path": "a"}, True),
        ({"type": "update_file", "path": "a", "diff": "+x"}, True),
        ({"type": "update_file", "path": "a"}, False),
        ({"type": "rename_file", "path": "a"}, False),
    ],
)
def test_a_patch_needs_a_diff_unless_it_deletes(operation: JsonObject, expected: bool) -> None:
    assert is_valid(operation, client_tools.built_in(ToolKind.PATCH, members({}))) is expected


def custom(form: JsonValue, **others: JsonValue) -> client_tools.OfferedForm:
    return client_tools.custom(members({"format": form, **others}))


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    shown = custom(None, description="Run it.")
    assert is_valid({"input": "x"}, shown)
    assert not is_valid({}, shown)
    assert shown.description is not None
    assert shown.description.text == "Run it."
    assert custom({"type": "text"}).description is None


def test_a_regex_is_told_and_checked_but_not_sent_as_a_schema() -> None:
    form: JsonObject = {"type": "grammar", "syntax": "regex", "definition": "a+|b"}
    shown = custom(form, description="Run it.")
    assert [is_valid({"input": text}, shown) for text in ("aa", "b", "ab")] == [True, True, False]
    assert b"pattern" not in shown.parameters
    assert shown.description is not None
    assert shown.description.text.startswith("Run it.\n\n")
    assert shown.description.text.endswith("\na+|b")


def test_another_grammar_is_told_alone() -> None:
    form: JsonObject = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    shown = custom(form)
    assert is_valid({"input": "anything"}, shown)
    assert shown.description is not None
    assert 'lark grammar:\nstart: "x"' in shown.description.text
    unnamed = custom({"definition": "x"}).description
    assert unnamed is not None
    assert "given grammar" in unnamed.text
