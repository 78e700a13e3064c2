"""The contract of a rescue syntax: how a textual form of a tool call is read while it arrives.

A syntax names its openings and starts a `Reading`: a generator over a `Cursor` that yields
whenever it needs more text and returns `Calls`. A reading
  - starts after the opening and only moves forward, so the work is linear in the text;
  - raises `NoCall` with a reason, or `Unreadable` where a call is broken within a value;
  - consumes everything up to the end of the call, closer included where there is one;
  - returns as soon as it knows that this is not a call, with as little consumed as possible.
Syntaxes may share an opening: each is tried from the same position, in their order. The scanner
does the rest: it finds openings and keeps prose apart.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from proxy import bounds
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import Anchor, Format
from proxy.guardrails.rescue.values.cursor import Cursor

# A reply with more calls than this repeats itself. A reading may stop after one more than this:
# the first ones of a marked syntax count, and none of an unmarked one, whose end is unknown.
MOST_CALLS = bounds.CALLS

# A model that writes a call as text this often in one reply does not stop by itself: 0.5B and 1.5B
# models (Qwen2.5-Coder on llama-server) wrote 13 to 129 copies, up to `max_tokens`.
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

    Calls that are doubtful count only as the whole reply, even if marked. Bare calls cannot be
    distinguished from text about other calls. Reading `is_cut` where the reply stopped making
    progress: JSON other than a call follows (a result that the model invented), or the same call
    for the third time.
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
    cursor has passed the opening when `read` begins. With `is_marked` the opening is unmistakable.
    An unmarked syntax (plain JSON, a code fence) counts only as the whole reply or at its end, and
    only for offered tools: otherwise it is an answer that happens to be JSON.
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
