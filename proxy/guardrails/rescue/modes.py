"""What a scanner may be doing, as data, and the reading of what stands behind one opening."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from proxy.guardrails.announcements import recognition
from proxy.guardrails.rescue.examples import gives_account, introduces_example, presents
from proxy.guardrails.rescue.findings import ArgumentsStarted, ArgumentsText, Finding, FoundCalls
from proxy.guardrails.rescue.provenance import Words
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals
from proxy.guardrails.rescue.values.scalars import Unreadable


class OpeningAttempt:
    """Reads what stands behind an opening, each candidate from the same place.

    If none finds a call, everything that any of them passed counts as read, so no character is
    read more often than there are candidates.
    """

    def __init__(
        self, cursor: Cursor, candidates: Sequence[tuple[str, Syntax]], offered: Collection[str]
    ) -> None:
        cursor.begin()
        self._cursor = cursor
        self._offered = offered
        self._left = list(candidates)
        self._furthest = 0
        self._reason = Reason.NOT_A_CALL
        self._heard: list[Finding] = []
        self.is_marked = any(syntax.is_marked for _, syntax in candidates)
        self._start_next()

    def resume(self) -> Calls | NoCall | None:
        """Read on; None means that more text is needed."""
        while True:
            try:
                next(self._reading)
                return None
            except StopIteration as end:
                found: Calls = end.value
                return found
            except NoCall as refusal:
                reason = refusal.reason
            except Unreadable:
                reason = Reason.BROKEN
            finally:
                self._listen()
            passed = len(self._cursor.source())
            if passed > self._furthest:
                self._furthest, self._reason = passed, reason
            self._cursor.rewind()
            if not self._left:
                self._cursor.advance(self._furthest)
                return NoCall(self._reason)
            self._start_next()

    def take_heard(self) -> list[Finding]:
        heard, self._heard = self._heard, []
        return heard

    def _start_next(self) -> None:
        opening, self.syntax = self._left.pop(0)
        self._cursor.advance(len(opening))
        self._reading: Reading = self.syntax.read(self._cursor, opening)
        self._has_announced = False

    def _listen(self) -> None:
        name = self._cursor.arguments_name
        if name is None or not (self.syntax.is_marked or name in self._offered):
            return
        if not self._has_announced:
            self._has_announced = True
            self._heard.append(ArgumentsStarted(name, self.syntax.is_marked))
        if text := self._cursor.take_echo():
            self._heard.append(ArgumentsText(text))


@dataclass(slots=True)
class Listening:
    """In prose; `is_untouched` while nothing but white space has been seen."""

    is_untouched: bool = False


@dataclass(frozen=True)
class Beginning:
    """What stands before a call: what is known of the place of its `opening`.

    `is_first` if nothing but white space and thoughts stand before it, `begins_reply` if only
    calls do. The last `words` of the prose before are looked at only where it matters.
    """

    opening: str = ""
    is_first: bool = True
    begins_reply: bool = True
    words: str = ""
    is_sentence_start: bool = True
    is_apart: bool = False
    within: tuple[str, ...] = ()

    @cached_property
    def said(self) -> Words:
        if not self.words.strip():
            return Words.NONE
        is_shown = introduces_example(self.words) or recognition.shows_next(self.words)
        return Words.SHOWING if is_shown else Words.OTHER

    @property
    def is_example(self) -> bool:
        return self.said is Words.SHOWING

    @cached_property
    def is_account(self) -> bool:
        return gives_account(self.words)

    @property
    def is_inline(self) -> bool:
        """Whether the opening stands on the line of other words."""
        return self.opening.startswith(" ")

    def announces_act(self, tools: Sequence[str]) -> bool:
        """Return whether a sentence ends here with which the model announces that it acts now."""
        is_told = self.is_account or not self.is_sentence_start
        return not is_told and (recognition.announces(self.words, tools) or presents(self.words))


@dataclass(slots=True)
class AfterCall:
    """Behind a call, which is `pending` until it is certain, and the `gap` behind it."""

    pending: FoundCalls | None
    gap: list[str] = field(default_factory=list)
    is_doubtful: bool = False


@dataclass(slots=True)
class Joined:
    """A call that counts if the next one does, and what stands between the two."""

    found: FoundCalls
    gap: str = ""
    joint: str = ""


@dataclass(frozen=True, slots=True)
class SkippingInventedResult:
    """In what is left out, an invented result for instance, up to `end`."""

    end: Literals


Mode: TypeAlias = Listening | OpeningAttempt | AfterCall | SkippingInventedResult
