"""Tools a client offers, how the model may use them, and the calls that come back."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from proxy.conversation.json import JsonSchema, JsonValue


@dataclass(frozen=True, slots=True)
class Tool:
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


@dataclass(frozen=True, slots=True)
class NamedTool:
    """The model must call this one tool."""

    name: str


ToolChoice: TypeAlias = ToolUse | NamedTool


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A tool call as a model wrote it, unchecked.

    `arguments` is JSON text, possibly broken, when a backend delivered the call as a structure,
    and a parsed value when it was rescued from text. `id` is the backend's, if it gave one.
    """

    name: str
    arguments: JsonValue
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call fit for a client: an offered tool and the JSON text of a valid arguments object."""

    id: str
    name: str
    arguments: str
