"""The contract of a rescue syntax: how a textual form of a tool call is read while it arrives.

A syntax names its openings and starts a `Reading`: a generator over a `Cursor` that yields
whenever it needs more text and returns `Calls`. A reading
  - starts after the opening and only moves forward, so the work is linear in the text;
  - raises `NoCall` with a reason, or `Unreadable` if a value is broken;
  - consumes everything up to the end of the call, including the closing mark if there is one;
  - ends as soon as it knows that the text is not a call, and consumes as little as possible.
Several syntaxes may share an opening; they are tried in order, from the same position. The scanner
finds the openings and separates calls from prose.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from proxy import bounds
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import Anchor, Format
from proxy.guardrails.rescue.values.cursor import Cursor

# A reply with more calls than this repeats itself. A reading may stop after one more call: then the
# first calls of a marked syntax count, but none of an unmarked syntax, because its end is unknown.
MOST_CALLS = bounds.CALLS

# A model that writes the same call so often in one reply does not stop by itself: Qwen2.5-Coder
# 0.5B and 1.5B wrote 13 to 129 copies on llama-server, up to `max_tokens`.
MOST_SAME = 3


class Reason(StrEnum):
    """The reason why text that looked like a call is not one."""

    QUOTED = "quoted"
    DOUBTFUL = "doubtful"
    IN_SENTENCE = "in_sentence"
    CUT_OFF = "cut_off"
    NOT_CLOSED = "not_closed"
    NOT_OFFERED = "not_offered"
    NOT_A_CALL = "not_a_call"
    BROKEN = "broken"
    TOO_MANY_OPENINGS = "too_many_openings"
    TOO_MANY_CALLS = "too_many_calls"
    IN_THOUGHTS = "in_thoughts"
    NESTED = "nested"
    OUT_OF_ORDER = "out_of_order"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls after one opening; `closed` is false if the closing mark is missing.

    - If the calls are doubtful, they count only as the whole reply, even if they are marked.
    - If they are bare, they cannot be distinguished from text about calls.
    - The reading `is_cut` if the reply made no more progress: the same call occurred for the third
      time, or other JSON followed (a result that the model invented).
    """

    calls: tuple[WrittenCall, ...]
    closed: bool = True
    is_doubtful: bool = False
    is_bare: bool = False
    is_cut: bool = False

    def __add__(self, more: "Calls") -> "Calls":
        return Calls(self.calls + more.calls, more.closed, is_cut=more.is_cut)

    @property
    def is_runaway(self) -> bool:
        """Whether the last call occurs for the third time."""
        return bool(self.calls) and self.calls.count(self.calls[-1]) >= MOST_SAME


@dataclass
class NoCall(Exception):
    """The opening did not introduce a call."""

    reason: Reason = Reason.NOT_A_CALL


Reading: TypeAlias = Generator[None, None, Calls]


@dataclass(frozen=True, slots=True, eq=False)
class Syntax:
    """One textual form of a tool call.

    Profiles and reports refer to it by its `name`. A call begins with one of the literal
    `openings`, which count only at their `anchor` in a reply, such as the start of a line. The
    cursor is after the opening when `read` begins. If the syntax `is_marked`, its openings occur
    only in calls. An unmarked syntax (plain JSON, a code fence) counts only at the end of the reply
    and only for offered tools, because other JSON may be an answer.
    """

    name: str
    openings: tuple[str, ...]
    read: Callable[[Cursor, str], Reading]
    anchor: Anchor = "anywhere"
    is_marked: bool = True

    @staticmethod
    def of(row: Format, read: Callable[[Cursor, str], Reading]) -> "Syntax":
        """Return the syntax of a row of the table."""
        return Syntax(row.name, row.openings, read, row.anchor, row.is_marked)
