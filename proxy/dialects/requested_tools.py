"""Removes references to the operator's tools from a request before the dialect reads it.

    {"tools": [{"type": "mcp", "server_label": "search", "allowed_tools": ["find"]}]}
    -> RequestedTools("tools.0", "search", ("find",))

All dialects name these tools in the same way: as entries of `tools` with the type `mcp`, or a
hosted type such as `web_search_20250305`. Chat completions also has `web_search_options`.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import RequestedTools
from proxy.dialects.lenient_json import as_list, parse_object
from proxy.dialects.raw_json import kind
from proxy.errors import InvalidRequest

_MCP = "mcp"
_TOOLS = "tools"
_SEARCH, _SEARCH_OPTIONS = "web_search", "web_search_options"
# the end of a hosted type, as in `web_search_preview_2025_03_11` and `web_search_20250305`
_VERSION = re.compile(r"(_preview)?(_[0-9_]+)?$")

# Temper never connects to an address that a client sends, and never uses a key that a client sends.
_FOREIGN = ("server_url", "headers", "authorization", "connector_id")


class SplitRequest(NamedTuple):
    """A request without the operator's tools, and these tools."""

    body: bytes
    requested_tools: tuple[RequestedTools, ...] = ()


def take_requested_tools(body: bytes, hosted: Collection[str]) -> SplitRequest:
    """Remove tool servers and tools of the `hosted` kinds from a request.

    Raises InvalidRequest. A body that is not an object is returned unchanged, because the dialect
    refuses it.
    """
    # The bytes are searched before the body is parsed. Most requests name no tool of the operator,
    # and parsing every request twice would be slow.
    may_request = any(word.encode() in body for word in (_MCP, *hosted))
    request = parse_object(body) if may_request else None
    if request is None:
        return SplitRequest(body)
    members = json.split_object(body)
    requested = _take_from_tools(request.get(_TOOLS), members, hosted)
    if _SEARCH in hosted and isinstance(request.get(_SEARCH_OPTIONS), dict):
        del members[_SEARCH_OPTIONS]
        requested.append(RequestedTools(_SEARCH_OPTIONS, kind=_SEARCH))
    if not requested:
        return SplitRequest(body)
    return SplitRequest(json.join_object(members), tuple(requested))


def _take_from_tools(
    tools: JsonValue, members: dict[str, bytes], hosted: Collection[str]
) -> list[RequestedTools]:
    """Remove the operator's entries from the member `tools`."""
    if not isinstance(tools, list):
        return []
    requested = {
        index: entry
        for index, tool in enumerate(tools)
        if isinstance(tool, dict) and (entry := _read_entry(tool, f"{_TOOLS}.{index}", hosted))
    }
    raw = json.split_array(members[_TOOLS])
    others = [source for index, source in enumerate(raw) if index not in requested]
    if others or not requested:
        members[_TOOLS] = json.join_array(others)
    else:
        del members[_TOOLS]  # no empty list, because some engines reject it
    return [*requested.values()]


def _read_entry(tool: JsonObject, param: str, hosted: Collection[str]) -> RequestedTools | None:
    """Read an entry of `tools` that requests tools of the operator; None for any other tool."""
    tool_type = tool.get("type")
    if not isinstance(tool_type, str):
        return None
    if tool_type == _MCP:
        return _server(tool, param)
    hosted_kind = _VERSION.sub("", tool_type)
    return RequestedTools(param, kind=hosted_kind) if hosted_kind in hosted else None


def _server(tool: JsonObject, param: str) -> RequestedTools:
    for name in _FOREIGN:
        if tool.get(name) is not None:
            problem = "Only the operator's tool servers can be used. Name one by its server_label."
            raise InvalidRequest(problem, f"{param}.{name}")
    label = tool.get("server_label")
    if not isinstance(label, str) or not label:
        problem = f"Expected the name of a tool server, got {kind(label)}."
        raise InvalidRequest(problem, f"{param}.server_label")
    return RequestedTools(param, label, _read_allowed(tool.get("allowed_tools"), param))


def _read_allowed(value: JsonValue, param: str) -> tuple[str, ...] | None:
    """Read tool names: an array, or an object with an array `tool_names`."""
    names = value.get("tool_names") if isinstance(value, dict) else value
    if names is None:
        return None
    texts = tuple(name for name in as_list(names) if isinstance(name, str))
    if isinstance(names, list) and len(texts) == len(names):
        return texts
    raise InvalidRequest("Expected an array of tool names.", f"{param}.allowed_tools")
