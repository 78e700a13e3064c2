"""How one reply is listened to: guarded, observed, or simply passed on."""

from typing import Protocol

from msgspec.structs import replace

from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyInProgress,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.facts import RejectedReply
from proxy.guardrails.offer import Offer
from proxy.guardrails.reading import ReplyReader
from proxy.guardrails.review import NewId, review
from proxy.guardrails.verdict import Accepted, Rejected, Verdict
from proxy.inference.release import Release

_CALLS = (ToolCallStarted, ToolCallArgumentsDelta)
_CONTENT = (TextDelta, ReasoningDelta, *_CALLS)


class Listening(Protocol):
    """Listens to one reply."""

    def hear(self, event: ReplyEvent) -> list[ReplyEvent]:
        """Take an event of the backend; returns what the client may see now."""

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """End the reply; returns what the client may see whatever follows, and the verdict."""

    def complete(self, answer: Accepted) -> list[ReplyEvent]:
        """Return what the client has not yet seen of the text of this reply."""


class GuardedListening:
    """Reads, releases and reviews a reply."""

    def __init__(
        self, offer: Offer, release: Release, new_id: NewId, *, insistence: int = 0
    ) -> None:
        self._insistence = insistence
        self._offer = offer
        self._release = release
        self._new_id = new_id
        self._reader = ReplyReader(offer)

    def hear(self, event: ReplyEvent) -> list[ReplyEvent]:
        """Take an event; progress is passed on, content is read first."""
        if isinstance(event, _CONTENT):
            return [
                shown for heard in self._reader.read(event) for shown in self._release.show(heard)
            ]
        return [event]

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """End the reply and judge it."""
        rest, reply = self._reader.finish(reason, is_unseen=self._release.is_unseen)
        shown = [event for heard in rest for event in self._release.show(heard)]
        verdict = review(reply, self._offer, self._new_id, insistence=self._insistence)
        return shown, verdict

    def complete(self, answer: Accepted) -> list[ReplyEvent]:
        """Show the text that was held back."""
        return self._release.complete(answer.text)


class PassingOn:
    """Shows everything as it comes; only calls are collected, because clients get them whole."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self._reply = ReplyInProgress()

    def hear(self, event: ReplyEvent) -> list[ReplyEvent]:
        """Take an event; all but pieces of calls goes on at once."""
        self._reply.add(event)
        return [] if isinstance(event, _CALLS) else [event]

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """Accept the reply as it is."""
        return [], self.answer(reason)

    def answer(self, reason: str) -> Accepted:
        """Return the reply as it is."""
        reply = self._reply.finish(reason)
        calls = tuple(
            ToolCall(call.id or self._new_id(), call.name, str(call.arguments))
            for call in reply.calls
        )
        return Accepted(reply.text, calls, reason)

    def complete(self, answer: Accepted) -> list[ReplyEvent]:
        """Nothing was held back."""
        return []


class Observing:
    """Passes everything on and notes what the guardrails would have made of it."""

    def __init__(self, offer: Offer, new_id: NewId) -> None:
        self._offer = offer
        self._new_id = new_id
        self._passing = PassingOn(new_id)
        self._reader = ReplyReader(offer)

    def hear(self, event: ReplyEvent) -> list[ReplyEvent]:
        """Take an event."""
        self._reader.read(event)
        return self._passing.hear(event)

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """Accept the reply as it is, with the facts of the verdict it would have got."""
        _, reply = self._reader.finish(reason)
        verdict = review(reply, self._offer, self._new_id)
        facts = verdict.facts
        if isinstance(verdict, Rejected):
            facts += (RejectedReply(verdict.defect.value),)
        return [], replace(self._passing.answer(reason), facts=facts)

    def complete(self, answer: Accepted) -> list[ReplyEvent]:
        """Nothing was held back."""
        return self._passing.complete(answer)
