"""Offered tools, the tool choice, and calls."""

from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.conversation.json import JsonObject, JsonSchema, JsonValue


class Tool(msgspec.Struct, frozen=True):
    """A tool in a request: a function that the client runs, or that Temper runs for the operator.

    `parameters` is the JSON schema of the arguments (draft 2020-12; `True` accepts anything).
    `source` is the JSON of the whole tool in the format of chat completions.

        {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
    """

    name: str
    parameters: JsonSchema
    source: bytes


class ToolUse(Enum):
    """A tool choice without the name of a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class NamedTool(msgspec.Struct, frozen=True):
    """A tool choice that requires a call of the tool with this name."""

    name: str


ToolChoice: TypeAlias = ToolUse | NamedTool


class WrittenCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it, before validation.

    If the backend recognized the call, `arguments` is the text that the backend sent, which may be
    invalid JSON. If Temper rescued the call from text, `arguments` is already a parsed value. `id`
    is the call id that the backend sent, None if it sent none.
    """

    name: str
    arguments: JsonValue
    id: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A validated call: the name of a tool in the request, and valid arguments as JSON text."""

    id: str
    name: str
    arguments: str


class RequestedTools(msgspec.Struct, frozen=True):
    """A client's request for tools of the operator; `param` is the path of the request's field.

    With a `server`, the client requests tools of this tool server: those in `allowed`, or all if
    `allowed` is None. Without a `server`, it requests the operator's replacement of a hosted tool;
    `kind` is the kind of the hosted tool, e.g. `web_search`.
    """

    param: str
    server: str = ""
    allowed: tuple[str, ...] | None = None
    kind: str = ""


def properties_of(schema: JsonValue) -> JsonObject:
    """Return the properties that a schema declares, by name."""
    declared = schema.get("properties") if isinstance(schema, dict) else None
    return declared if isinstance(declared, dict) else {}
