"""Decides which parts of a reply the client sees before the reply is complete.

Shown content cannot be retracted. So prose is shown early only if it stays part of the answer
whatever text follows. Of a call, only the part is shown that the verdict cannot change. Reasoning
is not part of the answer, so it is shown at once.

    "I look."                       shown at once if the text policy is auto or accept
    "<get_weather>"                 held: it may become a call in an unknown syntax
    '{"city": "Paris", "sky": ...'  held after tool results: it may repeat a result
    " "                             held: once shown, it would belong to the answer

`guardrails.reading` divides a reply into parts, and a `ReplyGate` shows or holds each part. There
are four gates: `FirstReplyGate` for the first reply that the client sees, `ContinuationGate` for a
later reply, `LookaheadGate` to hold a beginning that may become a call, and `UnseenGate` to hold
the whole reply to a close-out check. `call_gate` shows structured calls. A call in the text waits
for the verdict.
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
from proxy.guardrails.reasoning import EnoughReadError
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
    """Base class: shows the reasoning of a reply as it arrives, and nothing else.

    The reasoning of a later reply begins a new paragraph, because the client has received reasoning
    of an earlier reply.
    """

    sent: SentAnswer
    _has_thought: bool = field(default=False, init=False)

    @property
    def is_unseen(self) -> bool:
        """Whether the client has seen no text of this reply and will see none before its end."""
        return True

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        """Return the events to show for a part of the reply."""
        if not isinstance(part, ReasoningDelta):
            return []
        is_later = self.sent.has_reasoned and not self._has_thought
        self._has_thought = self.sent.has_reasoned = True
        return [ReasoningDelta(_PARAGRAPH + part.text) if is_later else part]

    def show_call(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        """Return the events to show for a part of a structured call."""
        return []

    def end(self) -> list[ReplyEvent]:
        """Show the text that was held as a possible call; the reply was rejected as prose."""
        return []

    @abstractmethod
    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        """Show the missing part of an answer.

        `is_only_reply` is False if the client has seen content of an earlier reply.
        """


@dataclass(eq=False)
class FirstReplyGate(ReplyGate):
    """Shows the first reply that the client sees.

    Prose is shown if `shows_prose`. The message of the respond tool is always shown, together with
    the held prose before it. All text is held if `may_answer` is False, because the workflow
    requires calls before an answer. Text after a shown call is held as well, and so is everything
    after a broken call.
    """

    calls: CallGate | None = None
    shows_prose: bool = field(kw_only=True)
    may_answer: bool = field(default=True, kw_only=True)
    _is_holding: bool = field(default=False, init=False)
    _held: list[str] = field(default_factory=list, init=False)
    _shown_length: int = field(default=0, init=False)

    @property
    def is_unseen(self) -> bool:
        return not ((self.shows_prose and self.may_answer) or self._shown_length)

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        sent = self.sent
        is_held = not self.may_answer or bool(sent.calls) or sent.open_call is not None
        match part:
            case RespondText():
                pass
            case Prose(text):  # white space is held: perhaps it is not in the answer
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

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        """Show the missing text, then the missing calls; calls first if one was already shown."""
        self._held.clear()  # the answer contains the held text
        has_shown_calls = self.sent.has_calls
        text = self._show_text(answer.text[self._shown_length :]) if is_only_reply else []
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

    When the reply is complete, its calls are shown. Its text is shown unless the client has seen it
    already. The text of a reply with calls is dropped unless `adds_text`.
    """

    adds_text: bool = field(kw_only=True)

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        has_text = self.adds_text or not answer.calls
        text = self.sent.show_text(self._new_part(answer.text)) if has_text else []
        return [*text, *self.sent.complete_calls(answer.calls)]

    def _new_part(self, text: str) -> str:
        """Return the part of a text that was not shown yet; "" if all of it was shown."""
        new, old = text.strip(), self.sent.text.strip()
        if not new or new in old:
            return ""
        if old and new.startswith(old):
            return new[len(old) :]
        return _PARAGRAPH + new if old else new


# The reply to the close-out check is read up to this many tokens of text and of reasoning. The
# expected DONE takes two tokens. A longer text repeats the answer, so it need not be read.
_MOST_TEXT, _MOST_THOUGHTS = 8, 256
_CHARACTERS_PER_TOKEN = 4  # to estimate the tokens of a delta with several tokens


@dataclass(eq=False)
class UnseenGate(ReplyGate):
    """Shows nothing of the reply to a close-out check, and ends a long reply in words."""

    _texts: list[str] = field(default_factory=list, init=False)
    _thoughts: list[str] = field(default_factory=list, init=False)

    def show(self, part: ReplyPart) -> list[ReplyEvent]:
        is_thought = isinstance(part, ReasoningDelta)
        deltas = self._thoughts if is_thought else self._texts
        if not isinstance(part, WithheldText):
            deltas.append(part.text)
        most = _MOST_THOUGHTS if is_thought else _MOST_TEXT
        if len(deltas) > most or sum(map(len, deltas)) > most * _CHARACTERS_PER_TOKEN:
            raise EnoughReadError
        return []

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        return []


def is_content(event: ReplyEvent) -> bool:
    """Return whether an event shows a part of the answer. Such an event cannot be retracted."""
    return isinstance(event, TextDelta | ToolCallStarted)


# A reply of at most this many characters is examined after each delta. A longer reply is examined
# each time its length has doubled.
_EXAMINED_PER_DELTA = 256


def hold_possible_calls(gate: FirstReplyGate, offer: OfferedTools, *, is_retry: bool) -> ReplyGate:
    """Hold calls in an unknown syntax, if the gate would otherwise show prose at once."""
    if offer.text_policy is not TextPolicy.AUTO or offer.answer_schema is not None:
        return gate
    return LookaheadGate(gate, offer, is_retry=is_retry)


class LookaheadGate(ReplyGate):
    """Holds back the beginning of a reply until it is certain to be prose.

    The reply to a nudge (`is_retry`) may be a comment on the nudge, which the client should not
    see. A long reply is examined again only when its length has doubled, so the work is linear.
    """

    def __init__(
        self, gate: FirstReplyGate, offer: OfferedTools, *, is_retry: bool = False
    ) -> None:
        super().__init__(gate.sent)
        self._gate = gate
        self._is_retry = is_retry
        self._offer = offer
        self._held: list[Prose | RespondText] = []
        self._is_watching = True
        self._length = 0
        self._next_length = 0  # the held text is examined again at this length

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
        parts, self._held = self._held, []
        return [event for part in parts for event in self._gate.show(part)]

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        return self._gate.complete(answer, is_only_reply=is_only_reply)

    def _may_be_withheld(self, text: str, *, is_message: bool) -> bool:
        """Return whether the reply may become a call or repeat a tool result.

        For the message of the respond tool, only a repeated result counts: any other message is an
        answer.
        """
        self._length += len(text)
        if self._length < self._next_length:
            return True
        if self._length > _EXAMINED_PER_DELTA:
            self._next_length = 2 * self._length
        beginning = "".join(part.text for part in self._held)
        # The text is held while any of these checks returns True. Each check returns False at the
        # first word that excludes its case, so prose is shown after a few words.
        if may_become_echo(beginning, self._offer, is_retry=self._is_retry):
            return True
        if is_message:
            return False
        return (
            (self._is_retry and may_be_about_nudge(beginning))
            or may_become_call(beginning, self._offer.tools)
            or bool(find_foreign_calls(beginning, self._offer))
            or is_broken_call(beginning, self._offer)
        )
