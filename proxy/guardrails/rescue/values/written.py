"""What a written value can turn out to be, and in which styles one may be written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from proxy.conversation.json import JsonObject, JsonValue


class Problem(StrEnum):
    """Why a value could not be read."""

    CUT_OFF = "cut_off"
    UNEXPECTED = "unexpected"
    TOO_DEEP = "too_deep"
    TOO_LONG = "too_long"
    UNWANTED = "unwanted"


@dataclass(frozen=True, slots=True)
class Value:
    """A value; `is_closed` is false where closing brackets were missing at the end."""

    value: JsonValue
    is_strict: bool = True
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What was written is no value; `items` are the whole ones of a list that breaks off."""

    problem: Problem
    items: tuple[JsonValue, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Style:
    """In what a value is written beyond JSON.

    Where one of `ends` stands, the last closing bracket may be missing. `is_python` allows tuples,
    sets and keyword arguments in parentheses, `has_bare_text` strings without quotation marks.
    `outer` is the bracket that closes what stands around the value.
    """

    ends: tuple[str, ...] = ()
    is_python: bool = False
    has_bare_text: bool = False
    outer: str = ""


JSON = Style()
PYTHON = Style(is_python=True)


class Watcher(Protocol):
    """Whoever wants to know which member of which object is being read.

    `path` holds the keys from the outermost container inwards, None for a list. Within arguments
    that were announced to the cursor, members may pass unheard.
    """

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        """Hear that a member's value comes next; False ends the reading."""

    def leaves(self, path: Sequence[str | None]) -> None:
        """Hear that a member's value has been read."""
