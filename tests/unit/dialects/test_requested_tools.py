import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import RequestedTools
from proxy.dialects.requested_tools import SplitRequest, take_requested_tools
from proxy.errors import InvalidRequest

HOSTED = ("web_search",)
OWN: JsonObject = {"type": "function", "function": {"name": "get"}}
SEARCH: JsonObject = {"type": "mcp", "server_label": "search"}


def take_tools(
    hosted: tuple[str, ...] = HOSTED, **members: JsonValue
) -> tuple[JsonValue, SplitRequest]:
    requested = take_requested_tools(json.dump({"model": "m", **members}), hosted)
    return json.parse(requested.body), requested


def test_a_request_without_mcp_servers_and_hosted_tools_keeps_its_bytes() -> None:
    for body in (
        b'{ "tools" : [ ] }',
        b'{"messages": [{"content": "what is mcp?"}]}',
        b'{"tools": [{"type": "function"}, 1, {"type": 2}], "user": "mcp"}',
        b'{"tools": "mcp"}',
        b'["mcp"]',
        b'{"mcp',
    ):
        assert take_requested_tools(body, HOSTED) == SplitRequest(body)


def test_a_requested_mcp_server_is_removed_from_the_tools() -> None:
    left, requested = take_tools(tools=[OWN, {**SEARCH, "allowed_tools": ["find"]}])
    assert left == {"model": "m", "tools": [OWN]}
    assert requested.requested_tools == (RequestedTools("tools.1", "search", ("find",)),)


def test_the_member_tools_is_removed_if_all_of_its_entries_are_requested_tools() -> None:
    more: JsonObject = {**SEARCH, "allowed_tools": {"tool_names": ["find"]}, "headers": None}
    left, requested = take_tools(tools=[SEARCH, more])
    assert left == {"model": "m"}
    assert requested.requested_tools == (
        RequestedTools("tools.0", "search"),
        RequestedTools("tools.1", "search", ("find",)),
    )


@pytest.mark.parametrize(
    "type_",
    [
        *("web_search", "web_search_20250305", "web_search_2025_08_26"),
        *("web_search_preview", "web_search_preview_2025_03_11"),
    ],
)
def test_every_version_of_a_hosted_tool_type_is_recognized(type_: str) -> None:
    left, requested = take_tools(tools=[OWN, {"type": type_, "name": "web_search"}])
    assert left == {"model": "m", "tools": [OWN]}
    assert requested.requested_tools == (RequestedTools("tools.1", kind="web_search"),)
    left, requested = take_tools((), tools=[{"type": type_}])
    assert (left, requested.requested_tools) == ({"model": "m", "tools": [{"type": type_}]}, ())


def test_web_search_options_request_a_web_search() -> None:
    left, requested = take_tools(web_search_options={})
    assert (left, requested.requested_tools) == (
        {"model": "m"},
        (RequestedTools("web_search_options", kind="web_search"),),
    )
    assert take_tools(("other",), web_search_options={})[1].requested_tools == ()
    assert take_tools(web_search_options=None)[1].requested_tools == ()


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"server_url": "http://evil"}, "tools.0.server_url"),
        ({"headers": {"a": "b"}}, "tools.0.headers"),
        ({"authorization": "x"}, "tools.0.authorization"),
        ({"connector_id": "x"}, "tools.0.connector_id"),
        ({"server_label": ""}, "tools.0.server_label"),
        ({"server_label": 1}, "tools.0.server_label"),
        ({"allowed_tools": "find"}, "tools.0.allowed_tools"),
        ({"allowed_tools": ["find", 1]}, "tools.0.allowed_tools"),
        ({"allowed_tools": {"tool_names": 1}}, "tools.0.allowed_tools"),
    ],
)
def test_the_error_for_an_invalid_member_of_a_requested_mcp_server_names_its_path(
    more: JsonObject, param: str
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        take_tools(tools=[{**SEARCH, **more}])
    assert raised.value.param == param
