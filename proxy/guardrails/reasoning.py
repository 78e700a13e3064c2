"""Thinking kept apart from answering: the block a reply may begin with, split off as it arrives.

It knows tags only. Backends that split reasoning themselves never need it.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from proxy.conversation.replies import ReasoningDelta, TextDelta

_TAGS = {"<think>": "</think>", "[THINK]": "[/THINK]"}

Spoken: TypeAlias = ReasoningDelta | TextDelta


class _Place(Enum):
    """Where in the reply the splitter stands."""

    START = "start"
    THINKING = "thinking"
    BETWEEN = "between"
    ANSWERING = "answering"


@dataclass(slots=True)
class ReasoningSplitter:
    """Splits a reply into reasoning and text while it is being generated.

    Only a block at the very start counts. What could still be part of a tag, or white space that a
    tag would swallow, is held back until it is known; everything else leaves at once.
    """

    _place: _Place = _Place.START
    _closing: str = ""
    _partial: str = ""
    _spaces: list[str] = field(default_factory=list)
    _has_thought: bool = False

    def feed(self, text: str) -> list[Spoken]:
        """Take more of the reply; return what is certain, in order."""
        if self._place is _Place.START:
            return self._start(text)
        if self._place is _Place.THINKING:
            return self._think(text)
        return self._answer(text.lstrip() if self._place is _Place.BETWEEN else text)

    def finish(self) -> list[Spoken]:
        """Return what was held back; a block that was never closed is reasoning to its end."""
        held = "".join(self._spaces) + self._partial
        self._spaces, self._partial = [], ""
        if self._place is _Place.THINKING:
            return self._thought(held if self._has_thought else held.lstrip())
        return self._answer(held)

    def _start(self, text: str) -> list[Spoken]:
        head = self._partial + text if self._partial else text.lstrip()
        if not self._partial:
            self._spaces.append(text[: len(text) - len(head)])
        for opening, closing in _TAGS.items():
            if head.startswith(opening):
                self._place, self._closing = _Place.THINKING, closing
                self._partial, self._spaces = "", []
                return self._think(head[len(opening) :])
        self._partial = head
        if any(opening.startswith(head) for opening in _TAGS):
            return []
        return self.finish()

    def _think(self, text: str) -> list[Spoken]:
        body, closed, rest = (self._partial + text).partition(self._closing)
        self._partial = "" if closed else _unfinished(body, self._closing)
        spoken = self._mull(body[: len(body) - len(self._partial)])
        if not closed:
            return spoken
        self._place, self._spaces = _Place.BETWEEN, []
        return spoken + self._answer(rest.lstrip())

    def _mull(self, body: str) -> list[Spoken]:
        """Emit reasoning, but keep the white space at its end: a closing tag swallows it."""
        solid = body.rstrip()
        if not solid:
            self._spaces.append(body)
            return []
        before = "".join(self._spaces)
        self._spaces = [body[len(solid) :]]
        return self._thought(before + solid if self._has_thought else solid.lstrip())

    def _thought(self, text: str) -> list[Spoken]:
        self._has_thought = self._has_thought or bool(text)
        return [ReasoningDelta(text)] if text else []

    def _answer(self, text: str) -> list[Spoken]:
        if not text:
            return []
        self._place = _Place.ANSWERING
        return [TextDelta(text)]


def _unfinished(text: str, tag: str) -> str:
    """Return the longest end of `text` with which `tag` could begin."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return tag[:length]
    return ""
