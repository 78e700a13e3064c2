import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.openai_responses.calls import (
    Kind,
    Origin,
    arguments_in,
    call_item,
    flat_name,
    id_prefix,
    is_whole,
)
from proxy.dialects.raw_json import nodes_in
from proxy.errors import InvalidRequest

PATCH: JsonObject = {"type": "update_file", "path": "a.py", "diff": "+x"}


def test_every_kind_of_call_has_ids_of_its_own() -> None:
    assert len({id_prefix(kind) for kind in Kind}) == len(Kind)


def test_the_member_of_a_namespace_comes_back_with_both_names() -> None:
    item = call_item(Origin(Kind.FUNCTION, "spawn", "agents"), "c", '{"a": 1}')
    assert item == {
        "type": "function_call",
        "call_id": "c",
        "name": "spawn",
        "namespace": "agents",
        "arguments": '{"a": 1}',
    }
    assert flat_name("agents", "spawn") == "agents__spawn"
    assert flat_name(None, "spawn") == "spawn"


@pytest.mark.parametrize(
    ("arguments", "shown"), [('{"input": "a\\nb"}', "a\nb"), ("broken", "broken"), ("{}", "{}")]
)
def test_the_input_of_a_custom_tool_is_plain(arguments: str, shown: str) -> None:
    item = call_item(Origin(Kind.CUSTOM, "run"), "c", arguments)
    assert item == {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": shown}


@pytest.mark.parametrize(
    ("kind", "arguments", "item"),
    [
        (
            Kind.SEARCH,
            '{"query": "x"}',
            {"type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}},
        ),
        (
            Kind.SHELL,
            '{"commands": ["ls"], "timeout_ms": 5}',
            {
                "type": "shell_call",
                "action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None},
            },
        ),
        (
            Kind.LOCAL_SHELL,
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
        (Kind.PATCH, json.dump_text(PATCH), {"type": "apply_patch_call", "operation": PATCH}),
        (
            Kind.SEARCH,
            "[1]",
            {"type": "tool_search_call", "execution": "client", "arguments": {}},
        ),
    ],
)
def test_other_tools_get_calls_in_their_own_shape(
    kind: Kind, arguments: str, item: JsonObject
) -> None:
    assert call_item(Origin(kind, kind.value), "c", arguments) == {**item, "call_id": "c"}


@pytest.mark.parametrize(
    ("text", "expected"), [("{}", True), ('{"a": [1]}', True), ("[]", False), ('{"a', False)]
)
def test_a_call_can_be_run_once_its_arguments_are_an_object(text: str, expected: bool) -> None:
    assert is_whole(text) is expected


@pytest.mark.parametrize(
    ("kind", "members", "arguments"),
    [
        ("function_call", {"arguments": '{"a":  1}'}, '{"a":  1}'),
        ("function_call", {"arguments": None}, "{}"),
        ("function_call", {}, "{}"),
        ("tool_search_call", {"arguments": {"q": "x"}}, '{"q":"x"}'),
        ("custom_tool_call", {"input": "a\nb"}, '{"input":"a\\nb"}'),
        ("custom_tool_call", {}, '{"input":""}'),
        (
            "shell_call",
            {"action": {"timeout_ms": None, "commands": ["ls"]}},
            '{"commands":["ls"]}',
        ),
        ("local_shell_call", {"action": {"type": "exec", "command": ["ls"]}}, '{"command":["ls"]}'),
        ("local_shell_call", {}, "{}"),
        ("apply_patch_call", {"operation": PATCH}, json.dump_text(PATCH)),
    ],
)
def test_the_arguments_of_a_call_that_comes_back_are_what_the_model_would_write(
    kind: str, members: JsonObject, arguments: str
) -> None:
    text = arguments_in(kind, nodes_in(members, json.dump(members)))
    assert text.text == arguments
    assert json.parse(text.source) == arguments


def test_arguments_that_can_be_none_are_refused() -> None:
    members: JsonObject = {"arguments": [1]}
    with pytest.raises(InvalidRequest, match="arguments: Expected an object, got an array"):
        arguments_in("function_call", nodes_in(members, json.dump(members)))
