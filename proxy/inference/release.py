"""Decides what of a reply the client may see before the reply is complete.

What has been shown cannot be taken back, so prose is shown early only where it will be an answer
whatever follows. Reasoning commits to nothing and is shown at once.
"""

from proxy.conversation.replies import ReasoningDelta, ReplyEvent, TextDelta
from proxy.guardrails.reading import Botched, Heard, Reasoned, Responded, Said


class Release:
    """The showing of one reply.

    `shows_prose` tells whether prose is an answer; the message of the respond tool always is, and
    takes any prose that was held back before it along. From a botched call on, everything is
    held. A muted release shows reasoning only.
    """

    def __init__(self, *, shows_prose: bool, is_muted: bool = False) -> None:
        self._shows_prose = shows_prose
        self._is_muted = is_muted
        self._is_holding = False
        self._held = ""
        self._shown_length = 0

    @property
    def is_unseen(self) -> bool:
        """Whether the client has seen no text of this reply, and sees none before its end."""
        return not (self._shows_prose or self._shown_length)

    def show(self, heard: Heard) -> list[ReplyEvent]:
        """Return what may be shown now that this was heard."""
        match heard:
            case Reasoned(text):
                return [ReasoningDelta(text)]
            case Botched(text):
                self._is_holding = True
                return self._hold(text)
            case Said(text) | Responded(text) if self._is_holding:
                return self._hold(text)
            case Said(text) if not self._shows_prose:
                return self._hold(text)
            case Said(text) | Responded(text):
                return self._show_text(text)

    def complete(self, text: str) -> list[ReplyEvent]:
        """Show what is still missing of the answer's whole text."""
        if self._is_muted:
            return []
        self._held = ""
        return self._show_text(text[self._shown_length :])

    def _hold(self, text: str) -> list[ReplyEvent]:
        self._held += text
        return []

    def _show_text(self, text: str) -> list[ReplyEvent]:
        whole = self._held + text
        if self._is_muted or not whole:
            return []
        self._held = ""
        self._shown_length += len(whole)
        return [TextDelta(whole)]
