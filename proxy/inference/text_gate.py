"""Decides what the client may see of a reply before it is complete.

Nothing shown can be taken back. So prose is shown early only where it will be an answer whatever
follows, and a call only as far as no verdict can change it. Reasoning commits to nothing and is
shown at once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.guardrails.nudges import may_be_about_nudge
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reasoning import EnoughHeardError
from proxy.guardrails.repetition import (
    find_foreign_calls,
    is_broken_call,
    may_become_echo,
)
from proxy.guardrails.reply_text import ReplyPart, RespondText, WithheldText
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.unparsed_calls.recognition import may_become_call
from proxy.guardrails.verdict import Accepted
from proxy.inference.call_gate import CallGate
from proxy.inference.sent_answer import SentAnswer

_PARAGRAPH = "\n\n"


@dataclass(eq=False)
class ReplyGate(ABC):
    """Shows one reply; before its end only thoughts. A later reply's begin a new paragraph."""

    sent: SentAnswer
    _has_thought: bool = field(default=False, init=False)

    @property
    def is_unseen(self) -> bool:
        """Whether the client has seen no text of this reply and will see none before its end."""
        return True

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        """Return what may be shown now of what was just read."""
        if not isinstance(part, ReasoningDelta):
            return []
        is_later = self.sent.has_reasoned and not self._has_thought
        self._has_thought = self.sent.has_reasoned = True
        return [ReasoningDelta(_PARAGRAPH + part.text) if is_later else part]

    def show_call(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        """Return what may be shown now of a call that the backend recognised."""
        return []

    def end(self) -> list[ReplyEvent]:
        """Show what was held only because it might have become a call; it is rejected as prose."""
        return []

    @abstractmethod
    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        """Show what is missing of an answer; `is_own`: the client has seen no other reply."""


@dataclass(eq=False)
class FirstReplyGate(ReplyGate):
    """Shows the first reply that the client sees.

    `shows_prose` says that prose is an answer. The message of the respond tool is one unless
    `is_answer_due` is False; it also releases prose that was held back before it. From a broken
    call on, everything is held. Text behind a shown call is held until the end.
    """

    calls: CallGate | None = None
    shows_prose: bool = field(kw_only=True)
    is_answer_due: bool = field(default=True, kw_only=True)
    _is_holding: bool = field(default=False, init=False)
    _held: list[str] = field(default_factory=list, init=False)
    _shown_length: int = field(default=0, init=False)

    @property
    def is_unseen(self) -> bool:
        return not ((self.shows_prose and self.is_answer_due) or self._shown_length)

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        sent = self.sent
        is_held = not self.is_answer_due or bool(sent.calls) or sent.open_call is not None
        match part:
            case RespondText():
                pass
            case Prose(text):  # white space alone commits to nothing
                is_held = is_held or not self.shows_prose or text.isspace()
            case WithheldText():
                self._is_holding = True
            case ReasoningDelta():
                return super().show(part)
        if not (is_held or self._is_holding):
            return self._show_text(part.text)
        self._held.append(part.text)
        return []

    def show_call(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        if self.calls is None or self._is_holding:
            return []
        calls = self.calls.take(event)
        return [*self._show_text(""), *calls] if calls and self._held else calls

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        """Show the missing calls and text; text comes first unless a call is open."""
        self._held.clear()
        has_shown_calls = self.sent.has_calls
        text = self._show_text(answer.text[self._shown_length :]) if is_own else []
        calls = self.sent.complete_calls(answer.calls)
        return [*calls, *text] if has_shown_calls else [*text, *calls]

    def _show_text(self, text: str) -> list[ReplyEvent]:
        if self._held:
            text = "".join((*self._held, text))
            self._held.clear()
        self._shown_length += len(text)
        return self.sent.show_text(text)


@dataclass(eq=False)
class ContinuationGate(ReplyGate):
    """Shows a later reply to a client that has seen the beginning of an answer.

    Only thoughts are shown before it is complete. Then its calls are added, and its text if it says
    something new: nobody wants to read an announcement or an answer twice. With calls the text is
    left out unless `adds_text`.
    """

    adds_text: bool = field(kw_only=True)

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        wanted = self.adds_text or not answer.calls
        text = self.sent.show_text(self._addition(answer.text)) if wanted else []
        return [*text, *self.sent.complete_calls(answer.calls)]

    def _addition(self, text: str) -> str:
        """Return what to add to the text that was shown, "" if it is the same."""
        new, old = text.strip(), self.sent.text.strip()
        if not new or new in old:
            return ""
        if old and new.startswith(old):
            return new[len(old) :]
        return _PARAGRAPH + new if old else new


_MOST_SAID, _MOST_THOUGHTS = 8, 256  # tokens
_LETTERS = 4  # characters of a token, where several may have arrived together


@dataclass(eq=False)
class UnseenGate(ReplyGate):
    """Shows nothing of a reply that counts only as a call, and ends one that is none."""

    _said: list[str] = field(default_factory=list, init=False)
    _thoughts: list[str] = field(default_factory=list, init=False)

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        is_thought = isinstance(part, ReasoningDelta)
        pieces = self._thoughts if is_thought else self._said
        if not isinstance(part, WithheldText):
            pieces.append(part.text)
        most = _MOST_THOUGHTS if is_thought else _MOST_SAID
        if len(pieces) > most or sum(map(len, pieces)) > most * _LETTERS:
            raise EnoughHeardError
        return []

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        return []


def is_content(event: ReplyEvent) -> bool:
    """Return whether an event shows part of an answer, which cannot be taken back."""
    return isinstance(event, TextDelta | ToolCallStarted)


_OFTEN = 256  # up to this many characters every piece is examined


def hold_possible_calls(
    gate: FirstReplyGate, offer: OfferedTools, *, is_asked_again: bool
) -> ReplyGate:
    """Hold back what may be a call where any other prose is an answer."""
    if offer.text_policy is not TextPolicy.AUTO or offer.answer_schema is not None:
        return gate
    return LookaheadGate(gate, offer, is_asked_again=is_asked_again)


class LookaheadGate(ReplyGate):
    """Holds back the beginning of a reply until it is certain to be prose.

    A model that `is_asked_again` may answer that its answer was complete; no client should see
    that. A long reply is examined again when its length has doubled, so the work is linear.
    """

    def __init__(
        self, gate: FirstReplyGate, offer: OfferedTools, *, is_asked_again: bool = False
    ) -> None:
        super().__init__(gate.sent)
        self._gate = gate
        self._is_asked_again = is_asked_again
        self._offer = offer
        self._held: list[Prose | RespondText] = []
        self._is_watching = True
        self._length = 0
        self._enough = 0

    @property
    def is_unseen(self) -> bool:
        return self._gate.is_unseen

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        if not self._is_watching or isinstance(part, ReasoningDelta):
            return self._gate.show(part)
        if isinstance(part, WithheldText):
            return [*self.end(), *self._gate.show(part)]
        self._held.append(part)
        is_held = self._may_be_withheld(part.text, is_message=isinstance(part, RespondText))
        return [] if is_held else self.end()

    def show_call(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        return [*(self.end() if self._is_watching else ()), *self._gate.show_call(event)]

    def end(self) -> list[ReplyEvent]:
        self._is_watching = False
        held, self._held = self._held, []
        return [event for part in held for event in self._gate.show(part)]

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        return self._gate.complete(answer, is_own=is_own)

    def _may_be_withheld(self, text: str, *, is_message: bool) -> bool:
        """Return whether the reply so far may become a call or an echo of a result.

        A message of the respond tool is an answer, unless it is such an echo.
        """
        self._length += len(text)
        if self._length < self._enough:
            return True
        if self._length > _OFTEN:
            self._enough = 2 * self._length
        beginning = "".join(part.text for part in self._held)
        if may_become_echo(beginning, self._offer, is_retry=self._is_asked_again):
            return True
        if is_message:
            return False
        return (
            (self._is_asked_again and may_be_about_nudge(beginning))
            or may_become_call(beginning, self._offer.tools)
            or bool(find_foreign_calls(beginning, self._offer))
            or is_broken_call(beginning, self._offer)
        )
