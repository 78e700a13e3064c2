"""Tools of the operator that a request asks for, taken out of it before its language is read.

All languages name them alike: entries of `tools` of the type `mcp`, and those of a type that
clients expect to be hosted, as `web_search_20250305`; in chats `web_search_options` is one too.
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
_VERSION = re.compile(r"(_preview)?(_[0-9_]+)?$")

# Temper calls no address that a client names, and never with a client's key.
_FOREIGN = ("server_url", "headers", "authorization", "connector_id")


class SplitRequest(NamedTuple):
    """A request without what it asks of the operator's tools, and that."""

    body: bytes
    requested_tools: tuple[RequestedTools, ...] = ()


def take_requested_tools(body: bytes, hosted: Collection[str]) -> SplitRequest:
    """Take out what asks for tool servers and for kinds of `hosted` tools.

    Raises InvalidRequest. A body that is no object is left to whoever reads its language.
    """
    is_asked = any(word.encode() in body for word in (_MCP, *hosted))
    request = parse_object(body) if is_asked else None
    if request is None:
        return SplitRequest(body)
    members = json.split_object(body)
    wanted = _of_tools(request.get(_TOOLS), members, hosted)
    if _SEARCH in hosted and isinstance(request.get(_SEARCH_OPTIONS), dict):
        del members[_SEARCH_OPTIONS]
        wanted.append(RequestedTools(_SEARCH_OPTIONS, kind=_SEARCH))
    return SplitRequest(json.join_object(members), tuple(wanted)) if wanted else SplitRequest(body)


def _of_tools(
    tools: JsonValue, members: dict[str, bytes], hosted: Collection[str]
) -> list[RequestedTools]:
    """Take entries out of the tools among a request's members."""
    if not isinstance(tools, list):
        return []
    found = {
        place: wanted
        for place, tool in enumerate(tools)
        if isinstance(tool, dict) and (wanted := _read_wanted(tool, f"{_TOOLS}.{place}", hosted))
    }
    raw = json.split_array(members[_TOOLS])
    left = [source for place, source in enumerate(raw) if place not in found]
    if left or not found:
        members[_TOOLS] = json.join_array(left)
    else:
        del members[_TOOLS]
    return [*found.values()]


def _read_wanted(tool: JsonObject, param: str, hosted: Collection[str]) -> RequestedTools | None:
    written = tool.get("type")
    if not isinstance(written, str):
        return None
    if written == _MCP:
        return _server(tool, param)
    plain = _VERSION.sub("", written)
    return RequestedTools(param, kind=plain) if plain in hosted else None


def _server(tool: JsonObject, param: str) -> RequestedTools:
    for name in _FOREIGN:
        if tool.get(name) is not None:
            problem = "Only tool servers of the operator are called, by their server_label."
            raise InvalidRequest(problem, f"{param}.{name}")
    label = tool.get("server_label")
    if not isinstance(label, str) or not label:
        problem = f"Expected the name of a tool server, got {kind(label)}."
        raise InvalidRequest(problem, f"{param}.server_label")
    return RequestedTools(param, label, _read_allowed(tool.get("allowed_tools"), param))


def _read_allowed(value: JsonValue, param: str) -> tuple[str, ...] | None:
    """Read the names of tools: an array, or an object that has one."""
    names = value.get("tool_names") if isinstance(value, dict) else value
    if names is None:
        return None
    texts = tuple(name for name in as_list(names) if isinstance(name, str))
    if isinstance(names, list) and len(texts) == len(names):
        return texts
    raise InvalidRequest("Expected an array of names of tools.", f"{param}.allowed_tools")
