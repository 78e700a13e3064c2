"""Defines a rescue syntax, which reads a textual format of tool calls while the text arrives.

A syntax has openings, and a function that starts a `Reading`: a generator over a `Cursor` that
yields whenever it needs more text, and returns `Calls`. A reading
  - starts after the opening and only moves forward, so its time is linear in the text;
  - raises `NoCall` with a reason, or `Unreadable` if a value is broken;
  - consumes everything up to the end of the call, including the closing mark if there is one;
  - ends as soon as it is certain that the text is not a call, and consumes as little as possible.
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

# A reading may stop after it has read one call more than this number. Then the first `MOST_CALLS`
# calls of a marked syntax are accepted. The calls of an unmarked syntax are refused, because their
# end is unknown.
MOST_CALLS = bounds.CALLS

# A model that writes a call three times in a reply is in a loop. Qwen2.5-Coder 0.5B and 1.5B wrote
# 13 to 129 copies on llama-server, until `max_tokens` was reached.
MOST_SAME = 3


class Reason(StrEnum):
    """The reason why text that looked like a call was refused."""

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
    NESTED = "nested"  # the text may be part of a value of an earlier, broken call
    OUT_OF_ORDER = "out_of_order"  # an earlier call was refused


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls after one opening; `closed` is false if the closing mark is missing.

    - `is_doubtful`: the calls are accepted only if the reply contains nothing else.
    - `is_bare`: the calls have no marks that distinguish them from a text about calls.
    - `is_cut`: the reading stopped because the reply made no progress: the same call occurred for
      the third time, or other JSON followed, probably a result that the model invented.
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
    """Raised if the text after an opening is not a call."""

    reason: Reason = Reason.NOT_A_CALL


Reading: TypeAlias = Generator[None, None, Calls]


@dataclass(frozen=True, slots=True, eq=False)
class Syntax:
    """A textual format of tool calls.

    - `name`: profiles and reports refer to the syntax by this name
    - `openings`: the literals with which a call begins; recognized only at the `anchor`, such as
      the start of a line
    - `read` starts a reading with the cursor after the opening
    - `is_marked`: the openings occur only in calls. Calls of an unmarked syntax (plain JSON, a code
      fence) are accepted only at the end of a reply and only for offered tools, because JSON may
      also be an answer.
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
