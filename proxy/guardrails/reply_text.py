"""The text of one reply: prose, and messages in calls of the respond tool, in order.

A model calls the respond tool to answer. `ReplyText` inserts separators between prose and messages,
and stores the position of the first broken call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from proxy.conversation.replies import ReasoningDelta
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.syntax import Reason

_LINE = "\n"
_PARAGRAPH = "\n\n"
_BROKEN = (Reason.BROKEN, Reason.NOT_CLOSED, Reason.NESTED, Reason.OUT_OF_ORDER)


class RespondText(msgspec.Struct, frozen=True):
    """Part of a message that the model sends through the respond tool."""

    text: str


class WithheldText(msgspec.Struct, frozen=True):
    """Text that begins with a broken or ambiguous call; it is sent only if every retry fails."""

    text: str


ReplyPart: TypeAlias = ReasoningDelta | Prose | RespondText | WithheldText


@dataclass(slots=True)
class ReplyText:
    """Collects the text; only `add` and `remove_broken` change the pieces.

    `has_answer` is true if text besides white space has been added since the last end of reasoning.
    `continues_after_call` is true if such text was added after a call. `follows_call` is true if a
    call has been removed since the last text.
    """

    pieces: list[str] = field(default_factory=list)
    has_answer: bool = False
    continues_after_call: bool = False
    follows_call: bool = False
    is_broken: bool = False
    broken_from: int | None = None
    _ends_in_message: bool = False

    def __str__(self) -> str:
        return "".join(self.pieces)

    @property
    def broken_end(self) -> str:
        """The text from the first unreadable call to the end."""
        return "" if self.broken_from is None else "".join(self.pieces[self.broken_from :])

    def add(self, text: str, *, is_message: bool) -> str:
        """Append a separator, if one is needed, and `text`; return both.

        Without a separator, the sentences before and after a removed call would be joined: `I
        look.Done.`
        """
        self.has_answer = self.has_answer or not text.isspace()
        is_other = self._ends_in_message is not is_message
        if is_other or self.follows_call:
            if self.pieces:
                text = (_PARAGRAPH if is_other else _LINE) + text
            self._ends_in_message = is_message
            self.follows_call = False
        self.pieces.append(text)
        return text

    def begin_broken(self) -> None:
        """Store the position of the first unreadable call."""
        if self.broken_from is None:
            self.broken_from = len(self.pieces)

    def note_refusal(self, reason: Reason | None) -> None:
        """Set `is_broken` if the next piece of prose is a broken call."""
        self.is_broken |= reason in _BROKEN

    def forget_broken(self) -> None:
        self.is_broken, self.broken_from = False, None

    def remove_broken(self) -> None:
        del self.pieces[self.broken_from :]
        self.forget_broken()

    def end_reasoning(self) -> None:
        self.has_answer = self.continues_after_call = False


def prose_in(findings: Sequence[object]) -> str:
    return "".join(finding.text for finding in findings if isinstance(finding, Prose))
