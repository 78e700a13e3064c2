"""Calls in the shapes that clients know: what a function call upstream is to them, and back.

Every tool is a function to the model. Where a client knows it as something else, its calls come
back as that: by the `Origin` noted when the tool was offered, never by looking at names.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.raw_json import Node, Text, own_text


class Kind(Enum):
    """What a tool is to the client, by the word in its `type`."""

    FUNCTION = "function"
    CUSTOM = "custom"
    SEARCH = "tool_search"
    SHELL = "shell"
    LOCAL_SHELL = "local_shell"
    PATCH = "apply_patch"


KINDS = frozenset(kind.value for kind in Kind)


class Origin(msgspec.Struct, frozen=True):
    """Which tool of the client stands behind a function."""

    kind: Kind
    name: str
    namespace: str | None = None


_ID_PREFIXES: Mapping[Kind, str] = {
    Kind.FUNCTION: "fc_",
    Kind.CUSTOM: "ctc_",
    Kind.SEARCH: "tsc_",
    Kind.SHELL: "sh_",
    Kind.LOCAL_SHELL: "lsh_",
    Kind.PATCH: "apc_",
}
_SHELL_MEMBERS = ("commands", "timeout_ms", "max_output_length")
_LOCAL_SHELL_MEMBERS = ("command", "working_directory", "timeout_ms")
_PATCH_MEMBERS = ("type", "path", "diff")
# The items in which a client sends such calls back, and the member that holds what was asked for.
_ASKED_IN: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "shell_call": ("action", _SHELL_MEMBERS),
    "local_shell_call": ("action", _LOCAL_SHELL_MEMBERS),
    "apply_patch_call": ("operation", _PATCH_MEMBERS),
}


def id_prefix(kind: Kind) -> str:
    """Return what the id of an item with such a call begins with."""
    return _ID_PREFIXES[kind]


def flat_name(namespace: str | None, name: str) -> str:
    """Return the name under which the member of a namespace is offered."""
    return name if namespace is None else f"{namespace}__{name}"


def call_item(origin: Origin, call_id: str, arguments: str) -> JsonObject:
    """Write a call as the client knows it, without the item's own id and status."""
    if origin.kind is Kind.FUNCTION:
        named = _named("function_call", origin, call_id)
        return {**named, "arguments": arguments}
    if origin.kind is Kind.CUSTOM:
        named = _named("custom_tool_call", origin, call_id)
        return {**named, "input": _input_in(arguments)}
    return _built_in_item(origin.kind, call_id, _object_in(arguments))


def _named(item_type: str, origin: Origin, call_id: str) -> JsonObject:
    item: JsonObject = {"type": item_type, "call_id": call_id, "name": origin.name}
    return item if origin.namespace is None else {**item, "namespace": origin.namespace}


def _built_in_item(kind: Kind, call_id: str, asked: JsonObject) -> JsonObject:
    if kind is Kind.SEARCH:
        searched: JsonObject = {"execution": "client", "arguments": asked}
        return {"type": "tool_search_call", "call_id": call_id, **searched}
    if kind is Kind.SHELL:
        action: JsonObject = {name: asked.get(name) for name in _SHELL_MEMBERS}
        return {"type": "shell_call", "call_id": call_id, "action": action}
    if kind is Kind.LOCAL_SHELL:
        command: JsonObject = {name: asked.get(name) for name in _LOCAL_SHELL_MEMBERS}
        action = {"type": "exec", **command, "env": {}, "user": None}
        return {"type": "local_shell_call", "call_id": call_id, "action": action}
    operation: JsonObject = {name: asked[name] for name in _PATCH_MEMBERS if name in asked}
    return {"type": "apply_patch_call", "call_id": call_id, "operation": operation}


def _input_in(arguments: str) -> str:
    """Take the plain input out of the arguments; all of them where they are something else."""
    asked = _object_in(arguments).get("input")
    return asked if isinstance(asked, str) else arguments


def _object_in(arguments: str) -> JsonObject:
    try:
        value = json.parse(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def is_whole(arguments: str) -> bool:
    """Return whether a call can be run with these arguments."""
    try:
        value: JsonValue = json.parse(arguments)
    except ValueError:
        return False
    return isinstance(value, dict)


def arguments_in(item_type: str, members: Mapping[str, Node]) -> Text:
    """Return the arguments of a call that comes back, as they were written where that is known."""
    if item_type == "custom_tool_call":
        plain = members["input"].text().source if "input" in members else b'""'
        return own_text(json.join_object({"input": plain}).decode())
    if item_type not in _ASKED_IN:
        return _written(members.get("arguments"))
    place, names = _ASKED_IN[item_type]
    asked = members[place].members() if place in members else {}
    kept = {name: asked[name].source for name in names if name in asked}
    return own_text(json.join_object(kept).decode())


def _written(arguments: Node | None) -> Text:
    if arguments is None:
        return own_text("{}")
    if arguments.is_text:
        return arguments.text()
    arguments.members()  # nothing else can be an argument
    return own_text(arguments.source.decode())
