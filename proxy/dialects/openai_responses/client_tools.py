"""Tools that are no functions, offered to the model as functions with a schema of ours.

Two schemas stand beside each other: what the model and the backend are shown, and what calls are
checked against, which may hold what few grammars can express.
"""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.dialects.openai_responses.calls import Kind
from proxy.dialects.raw_json import Node, Text, concatenate, own_text
from proxy.dialects.raw_json import kind as kind_of
from proxy.errors import InvalidRequest

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
_BUILT_IN: Mapping[Kind, tuple[str, JsonObject]] = {
    Kind.SHELL: ("Run commands in a shell, one after the other.", _COMMANDS),
    Kind.LOCAL_SHELL: ("Run one command, given as the program and its arguments.", _COMMAND),
    Kind.PATCH: (
        "Create, update or delete one file. A diff has a line for each line of the file that is "
        "kept (beginning with a space), removed (-) or added (+), with @@ before each section.",
        _OPERATION,
    ),
}


class Shown(NamedTuple):
    """How a tool is offered: `parameters`, as JSON, to the model, `checked` to the guardrails."""

    description: Text | None
    parameters: bytes
    checked: JsonSchema


def function(members: Mapping[str, Node]) -> Shown:
    """Return how a function is offered, which is as the client wrote it."""
    described = members["description"].text() if "description" in members else None
    parameters, source = _schema_in(members.get("parameters"))
    return Shown(described, source, parameters)


def search(members: Mapping[str, Node], path: str) -> Shown:
    """Return how a search for tools is offered; raises `InvalidRequest` for a hosted one."""
    if "execution" not in members or members["execution"].value != "client":
        raise InvalidRequest(_HOSTED.format(member='execution: "client"'), path)
    return function(members)


def built_in(kind: Kind, members: Mapping[str, Node], path: str) -> Shown:
    """Return how a shell or a patch tool is offered; raises `InvalidRequest` for a hosted one."""
    environment = members["environment"].members() if "environment" in members else {}
    if "type" in environment and environment["type"].value != "local":
        remedy = _HOSTED.format(member='environment: {"type": "local"}')
        raise InvalidRequest(remedy, f"{path}.environment")
    description, parameters = _BUILT_IN[kind]
    checked = parameters
    if kind is Kind.PATCH:
        checked = {**parameters, "if": _DELETES, "else": {"required": ["diff"]}}
    return Shown(own_text(description), json.dump(parameters), checked)


def custom(members: Mapping[str, Node]) -> Shown:
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


def _of_text(description: Text | None, text: JsonObject) -> Shown:
    parameters = json.dump(_object({"input": _TEXT}, "input"))
    return Shown(description, parameters, _object({"input": text}, "input"))


def _schema_in(node: Node | None) -> tuple[JsonSchema, bytes]:
    if node is None:
        return _NOTHING, json.dump(_NOTHING)
    if isinstance(node.value, dict | bool):
        return node.value, node.source
    problem = f"Expected an object or a boolean, got {kind_of(node.value)}."
    raise InvalidRequest(problem, node.path)
