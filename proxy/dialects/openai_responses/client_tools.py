"""Client tools that are not functions, offered to the model as functions.

    {"type": "custom", "name": "run"}
    -> {"type": "function", "function": {"name": "run",
        "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, ...}}}

Each function has two schemas. `parameters` is for the model and the engine. A stricter schema
validates calls; it has keywords that few engines support in their grammars.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.dialects.foreign_history import write_arguments
from proxy.dialects.lenient_json import parse_object
from proxy.dialects.raw_json import JsonText, Members, concatenate, own_text
from proxy.dialects.raw_json import kind as kind_of
from proxy.dialects.wire_schema import NO_PARAMETERS, TEXT
from proxy.errors import InvalidRequest


class ToolKind(Enum):
    """The kind of a client's tool, by its `type`."""

    FUNCTION = "function"
    CUSTOM = "custom"
    SEARCH = "tool_search"
    SHELL = "shell"
    LOCAL_SHELL = "local_shell"
    PATCH = "apply_patch"


KINDS = frozenset(kind.value for kind in ToolKind)


class Origin(msgspec.Struct, frozen=True):
    """The client's tool that a function in the upstream request represents."""

    kind: ToolKind
    name: str
    namespace: str | None = None


class CallForm(NamedTuple):
    """The item type of a tool's calls, and the prefix of their ids.

    If `group` is set, it is the member of a call item that contains the arguments `members`.
    """

    item: str
    id_prefix: str
    group: str = ""
    members: tuple[str, ...] = ()


CALL_FORMS: Mapping[ToolKind, CallForm] = {
    ToolKind.FUNCTION: CallForm("function_call", "fc_"),
    ToolKind.CUSTOM: CallForm("custom_tool_call", "ctc_"),
    ToolKind.SEARCH: CallForm("tool_search_call", "tsc_"),
    ToolKind.SHELL: CallForm(
        "shell_call", "sh_", "action", ("commands", "timeout_ms", "max_output_length")
    ),
    ToolKind.LOCAL_SHELL: CallForm(
        "local_shell_call", "lsh_", "action", ("command", "working_directory", "timeout_ms")
    ),
    ToolKind.PATCH: CallForm("apply_patch_call", "apc_", "operation", ("type", "path", "diff")),
}
KIND_OF_CALL = {form.item: kind for kind, form in CALL_FORMS.items()}
NAMED_KINDS = (ToolKind.FUNCTION, ToolKind.CUSTOM)
# The id of the item for a call that Temper ran: this prefix, followed by the id of the call.
RAN_PREFIX = "mcp_"


def flat_name(namespace: str | None, name: str) -> str:
    """Return the function name of a tool in a namespace."""
    return name if namespace is None else f"{namespace}__{name}"


def call_item(origin: Origin, call_id: str, arguments: str) -> JsonObject:
    """Write a call as an item of the client's tool, without id and status."""
    kind, form, values = origin.kind, CALL_FORMS[origin.kind], parse_object(arguments) or {}
    item: JsonObject = {"type": form.item, "call_id": call_id}
    if kind in NAMED_KINDS:
        namespace: JsonObject = {} if origin.namespace is None else {"namespace": origin.namespace}
        plain = values.get("input")
        # Without guardrails, arguments are not validated. If `input` is not a string, the complete
        # arguments become the input.
        value = plain if kind is ToolKind.CUSTOM and isinstance(plain, str) else arguments
        member = "input" if kind is ToolKind.CUSTOM else "arguments"
        return {**item, "name": origin.name, **namespace, member: value}
    if kind is ToolKind.SEARCH:
        return {**item, "execution": "client", "arguments": values}
    members = {name: values.get(name) for name in form.members}
    if kind is ToolKind.PATCH:
        # the deletion of a file has no `diff`
        members = {name: value for name, value in members.items() if name in values}
    elif kind is ToolKind.LOCAL_SHELL:
        members = {"type": "exec", **members, "env": {}, "user": None}
    return {**item, form.group: members}


def arguments_in(kind: ToolKind, members: Members) -> JsonText:
    """Return the arguments of a call in the history, with the client's bytes if possible."""
    form = CALL_FORMS[kind]
    if kind is ToolKind.CUSTOM:
        # to the model, this tool is a function with one string argument, `input`
        plain = members["input"].text().source if "input" in members else b'""'
        return own_text(json.join_object({"input": plain}).decode())
    if form.group:
        values = members.inner(form.group)
        known = {name: values[name].source for name in form.members if name in values}
        return own_text(json.join_object(known).decode())
    arguments = members.get("arguments")
    if arguments is not None and arguments.is_text:
        return arguments.text()
    members.inner("arguments")  # raises InvalidRequest unless they are absent or an object
    return write_arguments(arguments)


_WORDS: JsonObject = {"type": "array", "items": TEXT}
_COUNT: JsonObject = {"type": "integer"}
PARAGRAPH = own_text("\n\n")
_HOSTED = "Temper does not run this tool. Send it with `{member}`, and run its calls yourself."


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
        "path": TEXT,
        "diff": {"type": "string", "description": "Not needed to delete a file."},
    },
    "type",
    "path",
)
_COMMANDS = _object(
    {"commands": _WORDS, "timeout_ms": _COUNT, "max_output_length": _COUNT}, "commands"
)
_COMMAND = _object({"command": _WORDS, "working_directory": TEXT, "timeout_ms": _COUNT}, "command")
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
    """The function that represents a tool, with its two schemas.

    `parameters` is JSON, for the model and the engine. `checked` is the schema that validates
    calls.
    """

    description: JsonText | None
    parameters: bytes
    checked: JsonSchema


def offered_form(kind: ToolKind, members: Members) -> OfferedForm:
    """Return the function of a tool; raises `InvalidRequest`."""
    match kind:
        case ToolKind.FUNCTION:
            return function(members)
        case ToolKind.CUSTOM:
            return custom(members)
        case ToolKind.SEARCH:
            return search(members)
        case _:
            return built_in(kind, members)


def function(members: Members) -> OfferedForm:
    """Return a function with the client's own schema."""
    description, node = members.text("description"), members.get("parameters")
    if node is None:
        return OfferedForm(description, json.dump(NO_PARAMETERS), NO_PARAMETERS)
    if not isinstance(node.value, dict | bool):
        problem = f"Expected an object or a boolean, got {kind_of(node.value)}."
        raise InvalidRequest(problem, node.path)
    return OfferedForm(description, node.source, node.value)


def search(members: Members) -> OfferedForm:
    """Return the function of a tool search; raises `InvalidRequest` for a hosted search."""
    if members.value("execution") != "client":
        raise InvalidRequest(_HOSTED.format(member='execution: "client"'), members.path)
    return function(members)


def built_in(kind: ToolKind, members: Members) -> OfferedForm:
    """Return the function of a shell or patch tool; raises `InvalidRequest` if it is hosted."""
    environment = members.inner("environment")
    if environment.value("type") not in (None, "local"):
        remedy = _HOSTED.format(member='environment: {"type": "local"}')
        raise InvalidRequest(remedy, environment.path)
    description, parameters = _BUILT_IN[kind]
    checked = parameters
    if kind is ToolKind.PATCH:  # only in `checked`: llama-server's grammars lack `if` and `else`
        checked = {**parameters, "if": _DELETES, "else": {"required": ["diff"]}}
    return OfferedForm(own_text(description), json.dump(parameters), checked)


def custom(members: Members) -> OfferedForm:
    """Return a function with one string argument, for a tool whose input is plain text."""
    description, form = members.text("description"), members.inner("format")
    checked = TEXT
    if "definition" in form:
        definition, syntax = form["definition"].text(), form.word("syntax", "given")
        introduction = own_text(f"The input has to match this {syntax} grammar:\n")
        rule = concatenate(introduction, definition)
        description = concatenate(description, PARAGRAPH, rule) if description else rule
        if syntax == "regex":  # a Lark grammar is only described to the model (decision 0022)
            checked = {**TEXT, "pattern": f"^(?:{definition.text})$"}
    parameters = json.dump(_object({"input": TEXT}, "input"))
    return OfferedForm(description, parameters, _object({"input": checked}, "input"))
