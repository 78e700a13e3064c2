"""Offered tools, the tool choice, and calls."""

from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.conversation.json import JsonObject, JsonSchema, JsonValue


class Tool(msgspec.Struct, frozen=True):
    """A function the client can run.

    `parameters` is the caller's own JSON schema (draft 2020-12; `True` accepts anything);
    `source` is the tool's whole JSON object as the client wrote it, and is what a backend sees.
    """

    name: str
    parameters: JsonSchema
    source: bytes


class ToolUse(Enum):
    """The unnamed ways in which a client may let the model use tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class NamedTool(msgspec.Struct, frozen=True):
    """The model must call this one tool."""

    name: str


ToolChoice: TypeAlias = ToolUse | NamedTool


class WrittenCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it, not yet checked.

    `arguments` is JSON text, possibly broken, when a backend delivered the call as a structure,
    and a parsed value when it was rescued from text. `id` is the backend's, if it gave one.
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
    """Tools of the operator that a request uses, at `param`.

    Those of a `server`, only the `allowed` ones where they are named, or what does a hosted `kind`.
    """

    param: str
    server: str = ""
    allowed: tuple[str, ...] | None = None
    kind: str = ""


def properties_of(schema: JsonValue) -> JsonObject:
    """Return the properties that a schema declares, by name."""
    declared = schema.get("properties") if isinstance(schema, dict) else None
    return declared if isinstance(declared, dict) else {}
