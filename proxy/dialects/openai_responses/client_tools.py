"""Tools that are no functions, offered to the model as functions with a schema of ours.

Two schemas stand beside each other: what the model and the backend are shown, and what calls are
checked against, which may hold what few grammars can express.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.dialects.raw_json import JsonText, Node, concatenate, own_text
from proxy.dialects.raw_json import kind as kind_of
from proxy.errors import InvalidRequest


class ToolKind(Enum):
    """What a tool is to the client, by the word in its `type`."""

    FUNCTION = "function"
    CUSTOM = "custom"
    SEARCH = "tool_search"
    SHELL = "shell"
    LOCAL_SHELL = "local_shell"
    PATCH = "apply_patch"


KINDS = frozenset(kind.value for kind in ToolKind)


class Origin(msgspec.Struct, frozen=True):
    """Which tool of the client stands behind a function."""

    kind: ToolKind
    name: str
    namespace: str | None = None


_ID_PREFIXES: Mapping[ToolKind, str] = {
    ToolKind.FUNCTION: "fc_",
    ToolKind.CUSTOM: "ctc_",
    ToolKind.SEARCH: "tsc_",
    ToolKind.SHELL: "sh_",
    ToolKind.LOCAL_SHELL: "lsh_",
    ToolKind.PATCH: "apc_",
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


def id_prefix(kind: ToolKind) -> str:
    """Return what the id of an item with such a call begins with."""
    return _ID_PREFIXES[kind]


def flat_name(namespace: str | None, name: str) -> str:
    """Return the name under which the member of a namespace is offered."""
    return name if namespace is None else f"{namespace}__{name}"


def call_item(origin: Origin, call_id: str, arguments: str) -> JsonObject:
    """Write a call as the client knows it, without the item's own id and status."""
    if origin.kind is ToolKind.FUNCTION:
        named = _begin_item("function_call", origin, call_id)
        return {**named, "arguments": arguments}
    if origin.kind is ToolKind.CUSTOM:
        named = _begin_item("custom_tool_call", origin, call_id)
        return {**named, "input": _input_in(arguments)}
    return _built_in_item(origin.kind, call_id, _object_in(arguments))


def _begin_item(item_type: str, origin: Origin, call_id: str) -> JsonObject:
    item: JsonObject = {"type": item_type, "call_id": call_id, "name": origin.name}
    return item if origin.namespace is None else {**item, "namespace": origin.namespace}


def _built_in_item(kind: ToolKind, call_id: str, asked: JsonObject) -> JsonObject:
    if kind is ToolKind.SEARCH:
        searched: JsonObject = {"execution": "client", "arguments": asked}
        return {"type": "tool_search_call", "call_id": call_id, **searched}
    if kind is ToolKind.SHELL:
        action: JsonObject = {name: asked.get(name) for name in _SHELL_MEMBERS}
        return {"type": "shell_call", "call_id": call_id, "action": action}
    if kind is ToolKind.LOCAL_SHELL:
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


def arguments_in(item_type: str, members: Mapping[str, Node]) -> JsonText:
    """Return the arguments of a call that comes back, as they were written where that is known."""
    if item_type == "custom_tool_call":
        plain = members["input"].text().source if "input" in members else b'""'
        return own_text(json.join_object({"input": plain}).decode())
    if item_type not in _ASKED_IN:
        return _arguments_text(members.get("arguments"))
    place, names = _ASKED_IN[item_type]
    asked = members[place].members() if place in members else {}
    kept = {name: asked[name].source for name in names if name in asked}
    return own_text(json.join_object(kept).decode())


def _arguments_text(arguments: Node | None) -> JsonText:
    if arguments is None:
        return own_text("{}")
    if arguments.is_text:
        return arguments.text()
    arguments.members()  # nothing else can be an argument
    return own_text(arguments.source.decode())


_TEXT: JsonObject = {"type": "string"}
_WORDS: JsonObject = {"type": "array", "items": _TEXT}
_COUNT: JsonObject = {"type": "integer"}
_NOTHING: JsonObject = {"type": "object", "properties": {}}
_PARAGRAPH = own_text("\n\n")
_HOSTED = "Nothing here runs it. Send it with `{member}`, and run its calls yourself."


def _object(members: JsonObject, *needed: str) -> JsonObject:
    return {
        "type": "object",
        "properties": members,
        "required": [*needed],
        "additionalProperties": False,
    }


_OPERATION = _object(
    {
        "type": {"enum": ["create_file", "update_file", "delete_file"]},
        "path": _TEXT,
        "diff": {"type": "string", "description": "Not needed to delete a file."},
    },
    "type",
    "path",
)
_COMMANDS = _object(
    {"commands": _WORDS, "timeout_ms": _COUNT, "max_output_length": _COUNT}, "commands"
)
_COMMAND = _object({"command": _WORDS, "working_directory": _TEXT, "timeout_ms": _COUNT}, "command")
_DELETES: JsonObject = {"properties": {"type": {"const": "delete_file"}}}
_BUILT_IN: Mapping[ToolKind, tuple[str, JsonObject]] = {
    ToolKind.SHELL: ("Run commands in a shell, one after the other.", _COMMANDS),
    ToolKind.LOCAL_SHELL: ("Run one command, given as the program and its arguments.", _COMMAND),
    ToolKind.PATCH: (
        "Create, update or delete one file. A diff has a line for each line of the file that is "
        "kept (beginning with a space), removed (-) or added (+), with @@ before each section.",
        _OPERATION,
    ),
}


class OfferedForm(NamedTuple):
    """How a tool is offered: `parameters`, as JSON, to the model, `checked` to the guardrails."""

    description: JsonText | None
    parameters: bytes
    checked: JsonSchema


def function(members: Mapping[str, Node]) -> OfferedForm:
    """Return how a function is offered, which is as the client wrote it."""
    described = members["description"].text() if "description" in members else None
    parameters, source = _schema_in(members.get("parameters"))
    return OfferedForm(described, source, parameters)


def search(members: Mapping[str, Node], path: str) -> OfferedForm:
    """Return how a search for tools is offered; raises `InvalidRequest` for a hosted one."""
    if "execution" not in members or members["execution"].value != "client":
        raise InvalidRequest(_HOSTED.format(member='execution: "client"'), path)
    return function(members)


def built_in(kind: ToolKind, members: Mapping[str, Node], path: str) -> OfferedForm:
    """Return how a shell or a patch tool is offered; raises `InvalidRequest` for a hosted one."""
    environment = members["environment"].members() if "environment" in members else {}
    if "type" in environment and environment["type"].value != "local":
        remedy = _HOSTED.format(member='environment: {"type": "local"}')
        raise InvalidRequest(remedy, f"{path}.environment")
    description, parameters = _BUILT_IN[kind]
    checked = parameters
    if kind is ToolKind.PATCH:
        checked = {**parameters, "if": _DELETES, "else": {"required": ["diff"]}}
    return OfferedForm(own_text(description), json.dump(parameters), checked)


def custom(members: Mapping[str, Node]) -> OfferedForm:
    """Return how a tool is offered whose input is plain text: as a function of that text."""
    described = members["description"].text() if "description" in members else None
    form = members["format"].members() if "format" in members else {}
    if "definition" not in form:
        return _of_text(described, _TEXT)
    definition = form["definition"].text()
    syntax = form["syntax"].text().text if "syntax" in form else "given"
    rule = concatenate(own_text(f"The input has to match this {syntax} grammar:\n"), definition)
    quoted = rule if described is None else concatenate(described, _PARAGRAPH, rule)
    is_checked = syntax == "regex"
    pattern: JsonObject = {"pattern": f"^(?:{definition.text})$"} if is_checked else {}
    return _of_text(quoted, {**_TEXT, **pattern})


def _of_text(description: JsonText | None, text: JsonObject) -> OfferedForm:
    parameters = json.dump(_object({"input": _TEXT}, "input"))
    return OfferedForm(description, parameters, _object({"input": text}, "input"))


def _schema_in(node: Node | None) -> tuple[JsonSchema, bytes]:
    if node is None:
        return _NOTHING, json.dump(_NOTHING)
    if isinstance(node.value, dict | bool):
        return node.value, node.source
    problem = f"Expected an object or a boolean, got {kind_of(node.value)}."
    raise InvalidRequest(problem, node.path)
