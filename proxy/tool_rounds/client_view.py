"""What a client sees of the replies of one run, as if they were one."""

from collections.abc import Iterator, Sequence

from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyStarted,
    TextDelta,
)

_BETWEEN = TextDelta("\n\n")


class ClientView:
    """Joins replies; their calls, usage and ends are left out, as only the run knows of them."""

    def __init__(self) -> None:
        self._has_gone_on = False
        self._has_text = False
        self._is_next = False

    def go_on(self) -> None:
        """Take what comes from now on for another reply, whose text begins a paragraph."""
        self._has_gone_on = True
        self._is_next = self._has_text

    def of(self, events: Sequence[ReplyEvent], *, are_asides: bool) -> list[ReplyEvent]:
        """Return what the client sees of events; text that is an aside goes out as reasoning."""
        return [shown for event in events for shown in self._shown(event, are_asides)]

    def _shown(self, event: ReplyEvent, are_asides: bool) -> Iterator[ReplyEvent]:  # noqa: FBT001 - as it was called
        match event:
            case ReplyStarted() if not self._has_gone_on:
                yield event
            case TextDelta(text) if are_asides:
                yield ReasoningDelta(text)
            case TextDelta():
                if self._is_next:
                    yield _BETWEEN
                self._has_text, self._is_next = True, False
                yield event
            case ReasoningDelta() | PromptProgress():
                yield event
            case _:
                pass
