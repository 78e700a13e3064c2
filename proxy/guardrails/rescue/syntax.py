"""The contract of a rescue syntax: how a textual form of a tool call is read while it arrives.

A syntax names its openings and starts a `Reading`: a generator over a `Cursor` that yields
whenever it needs more text and returns what it found. A reading
  - starts behind the opening and only moves forward, so the work is linear in the text;
  - never raises for what a model wrote: it returns `NotACall` with a reason;
  - consumes everything up to the end of the call, closer included where there is one;
  - returns as soon as it knows that this is not a call, with as little consumed as possible.
Syntaxes may share an opening: they are tried in order from the same place, each judges for itself.
The scanner does the rest: it finds openings, keeps prose apart and enforces provenance.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol, TypeAlias

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting

# A reply with more calls than this repeats itself. A reading may stop behind so many and one more:
# the first ones of a marked syntax count, and nothing of an unmarked one, whose end nobody sees.
MOST_CALLS = 128


class Reason(StrEnum):
    """Why text that looked like a call is none."""

    QUOTED = "quoted"
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


class Place(Enum):
    """Where in a reply an opening counts."""

    ANYWHERE = "anywhere"
    LINE_START = "line_start"
    REPLY_START = "reply_start"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls behind one opening; `closed` is false where the closing mark is missing.

    Calls that are doubtful count only as the whole reply, although they are marked. Nothing tells
    bare ones from what is written about others.
    """

    calls: tuple[WrittenCall, ...]
    closed: bool = True
    is_doubtful: bool = False
    is_bare: bool = False


@dataclass(frozen=True, slots=True)
class NotACall:
    """The opening did not introduce a call."""

    reason: Reason


Reading: TypeAlias = Generator[None, None, Calls | NotACall]


class Syntax(Protocol):
    """One textual form of a tool call.

    Profiles and reports refer to it by its `name`. A call can begin with one of the literal
    `openings`, which count in one `place` of a reply. Where it `is_marked`, the opening is
    unmistakable. An unmarked syntax (plain JSON, a code fence) counts only as the whole reply or at
    its end and only for offered tools: otherwise it is an answer that happens to be JSON.
    """

    name: str
    openings: tuple[str, ...]
    place: Place = Place.ANYWHERE
    is_marked: bool = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read calls from behind `opening`, which the cursor has just passed."""


Next: TypeAlias = Callable[[], Waiting[str | bool]]


def read_row(cursor: Cursor, read_one: Callable[[], Reading], passes_next: Next) -> Reading:
    """Read calls and the white space behind each, as long as `passes_next` finds another."""
    found = Calls(())
    while len(found.calls) <= MOST_CALLS:
        more = yield from read_one()
        if isinstance(more, NotACall):
            return more
        found = Calls(found.calls + more.calls, more.closed)
        yield from cursor.whitespace()
        if not (yield from passes_next()):
            break
    return found


def read_marked_row(
    cursor: Cursor, mark: str, marks: Literals, read_one: Callable[[str], Reading]
) -> Reading:
    """Read calls, each behind one of `marks`, which `read_one` is given."""

    def passes_next() -> Waiting[str]:
        nonlocal mark
        mark = yield from cursor.one_of(marks)
        return mark

    return (yield from read_row(cursor, lambda: read_one(mark), passes_next))
