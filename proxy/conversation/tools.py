"""Offered tools, the tool choice, and calls."""

from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.conversation.json import JsonObject, JsonSchema, JsonValue


class Tool(msgspec.Struct, frozen=True):
    """An offered tool: a function that the client or, for an operator's tool, Temper can run.

    `parameters` is the JSON schema of the arguments (draft 2020-12; `True` accepts anything).
    `source` is the JSON of the whole tool in the format of chat completions.

        {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
    """

    name: str
    parameters: JsonSchema
    source: bytes


class ToolUse(Enum):
    """A tool choice of the client that names no tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class NamedTool(msgspec.Struct, frozen=True):
    """The model must call this one tool."""

    name: str


ToolChoice: TypeAlias = ToolUse | NamedTool


class WrittenCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it, not yet checked.

    `arguments` is JSON text, possibly broken, if a backend parsed the call, and a parsed value if
    it was rescued from text. `id` is the call id from the backend, if the backend sent it.
    """

    name: str
    arguments: JsonValue
    id: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A checked call: an offered tool and the JSON text of a valid arguments object."""

    id: str
    name: str
    arguments: str


class RequestedTools(msgspec.Struct, frozen=True):
    """A reference to tools of the operator in a request; `param` is the path of its field.

    With a `server`, it refers to all tools of that tool server, or only to the `allowed` tools.
    Without a server, it refers to the tool that replaces the hosted tool `kind` (`web_search`).
    """

    param: str
    server: str = ""
    allowed: tuple[str, ...] | None = None
    kind: str = ""


def properties_of(schema: JsonValue) -> JsonObject:
    """Return the properties that a schema declares, by name."""
    declared = schema.get("properties") if isinstance(schema, dict) else None
    return declared if isinstance(declared, dict) else {}
