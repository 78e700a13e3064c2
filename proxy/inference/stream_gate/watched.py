"""Holds a reply back while it may yet turn out to be a call that no reader knows.

Prose is passed on with its first piece. Only what begins as a call does waits: should it be one,
the client never sees it.
"""

from proxy.conversation.replies import ReplyEvent, ToolCallArgumentsDelta, ToolCallStarted
from proxy.conversation.tools import Tool
from proxy.guardrails.nudges import may_be_done
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import Heard, Prose, Reasoned
from proxy.guardrails.unparsed_calls.recognition import may_become_call
from proxy.guardrails.verdict import Accepted
from proxy.inference.stream_gate.release import Release, Releasing

_OFTEN = 256  # up to so many characters every piece is looked at


def watched(release: Release, offer: OfferedTools, *, is_asked_again: bool) -> Releasing:
    """Watch for such calls where any other prose is an answer."""
    if offer.text_policy is not TextPolicy.AUTO or offer.answer_schema is not None:
        return release
    return WatchedRelease(release, offer.tools, is_asked_again=is_asked_again)


class WatchedRelease:
    """The showing of a reply that keeps its beginning until that is certain to be prose.

    Who `is_asked_again` may say that the answer was complete, which is for nobody to see either. At
    a long reply it looks again when that has doubled, so that the work is linear.
    """

    def __init__(
        self, release: Release, tools: tuple[Tool, ...], *, is_asked_again: bool = False
    ) -> None:
        self._release = release
        self._is_asked_again = is_asked_again
        self._tools = tools
        self._held: list[Prose] = []
        self._is_watching = True
        self._length = 0
        self._enough = 0

    @property
    def is_unseen(self) -> bool:
        """Whether prose is held in any case."""
        return self._release.is_unseen

    def show(self, heard: Heard) -> list[ReplyEvent]:
        """Hold prose while it may become a call; anything else shows that it does not."""
        if not self._is_watching or isinstance(heard, Reasoned):
            return self._release.show(heard)
        if isinstance(heard, Prose):
            self._held.append(heard)
            return [] if self._may_become_call(heard.text) else self.end()
        return [*self.end(), *self._release.show(heard)]

    def show_call(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        """Show the prose before a call, and what may be shown of that."""
        return [*self.end(), *self._release.show_call(event)]

    def end(self) -> list[ReplyEvent]:
        """Watch no longer: what was held is prose."""
        self._is_watching = False
        held, self._held = self._held, []
        return [event for one in held for event in self._release.show(one)]

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        """Show what is missing of an answer."""
        return self._release.complete(answer, is_own=is_own)

    def _may_become_call(self, text: str) -> bool:
        self._length += len(text)
        if self._length < self._enough:
            return True
        if self._length > _OFTEN:
            self._enough = 2 * self._length
        written = "".join(one.text for one in self._held)
        is_confirmed = self._is_asked_again and may_be_done(written)
        return is_confirmed or may_become_call(written, self._tools)
