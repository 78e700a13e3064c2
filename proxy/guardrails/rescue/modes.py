"""The states of a scanner, as data, and the reading of what follows one opening."""

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.announcements import recognition
from proxy.guardrails.rescue import marks
from proxy.guardrails.rescue.examples import gives_account, introduces_example, presents
from proxy.guardrails.rescue.findings import ArgumentsStarted, ArgumentsText, Finding, FoundCalls
from proxy.guardrails.rescue.formats import Place
from proxy.guardrails.rescue.markup import ends_in_mark
from proxy.guardrails.rescue.provenance import Words
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, fold_mark
from proxy.guardrails.rescue.values.scalars import Unreadable


class Either(Literals):
    """Two sets of literals that count as one; preparing them together would take too long."""

    def __init__(self, first: Literals, second: Literals) -> None:
        self._first = first
        self._second = second

    def find(self, text: str, start: int, *, is_finished: bool) -> int:
        place = self._first.find(text, start, is_finished=is_finished)
        return min(place, self._second.find(text, start, is_finished=is_finished))

    def at(self, text: str, place: int, *, is_finished: bool) -> str | None:
        one = self._first.at(text, place, is_finished=is_finished)
        other = self._second.at(text, place, is_finished=is_finished)
        return None if one is None or other is None else max(one, other, key=len)


@dataclass(frozen=True, slots=True)
class Openings:
    """The openings of some syntaxes, prepared for looking them up in text."""

    known: tuple[tuple[str, Syntax], ...]
    first: Literals
    in_prose: Literals
    behind_call: Literals
    _fitting: dict[str, list[tuple[str, Syntax]]] = field(default_factory=dict)

    @staticmethod
    def of(syntaxes: Iterable[Syntax]) -> "Openings":
        known = _openings_of_all(syntaxes)
        tokens, loose = marks.SPECIAL_TOKENS, marks.LOOSE_MARKS
        later = _later(known) | tokens
        return Openings(
            known,
            Either(Literals({opening for opening, _ in known} | tokens), loose),
            Either(Literals(later), loose),
            Either(Literals(later | marks.STRAY_CLOSERS), loose),
        )

    def find_fitting(self, literal: str) -> list[tuple[str, Syntax]]:
        """Return what can begin at `literal`: longer openings first, otherwise in order."""
        if literal not in self._fitting:
            fitting = [pair for pair in self.known if literal.startswith(pair[0])]
            key = fold_mark(literal)  # a mark of results may be written in another case
            known = (pair for pair in self.known if not fitting and fold_mark(pair[0]) == key)
            fitting += [(literal, syntax) for _, syntax in known if not syntax.is_marked]
            self._fitting[literal] = sorted(fitting, key=lambda pair: -len(pair[0]))
        return self._fitting[literal]

    def find_candidates(self, literal: str, places: Container[Place]) -> list[tuple[str, Syntax]]:
        return [pair for pair in self.find_fitting(literal) if pair[1].place in places]

    def is_any_marked(self, literal: str) -> bool:
        return any(syntax.is_marked for _, syntax in self.find_fitting(literal))

    def join(self, syntaxes: Iterable[Syntax]) -> "Openings":
        known = _openings_of_all(syntaxes)
        everywhere = Literals(opening for opening, _ in known)
        later = Literals(_later(known))
        return Openings(
            self.known + known,
            Either(self.first, everywhere),
            Either(self.in_prose, later),
            Either(self.behind_call, later),
        )


@lru_cache(maxsize=64)
def openings_of(syntaxes: tuple[Syntax, ...], named: tuple[Syntax, ...] = ()) -> Openings:
    """Return the prepared openings of `syntaxes`, and of those that one client's tools add."""
    return openings_of(syntaxes).join(named) if named else Openings.of(syntaxes)


def _openings_of_all(syntaxes: Iterable[Syntax]) -> tuple[tuple[str, Syntax], ...]:
    return tuple((opening, syntax) for syntax in syntaxes for opening in syntax.openings)


def _later(known: Iterable[tuple[str, Syntax]]) -> set[str]:
    """Return the openings that can stand behind the beginning of a reply."""
    return {opening for opening, syntax in known if syntax.place != "reply_start"}


# Whether the model itself made these calls, whose source this is, so that the rest of the reply may
# be dropped.
MayCut: TypeAlias = Callable[[str, Sequence[WrittenCall]], bool]


def cut_nothing(source: str, calls: Sequence[WrittenCall]) -> bool:
    return False


class OpeningAttempt:
    """Reads what follows an opening, with each candidate from the same place.

    If none finds a call, all that any of them passed counts as read, so no character is read more
    often than there are candidates.
    """

    def __init__(
        self,
        cursor: Cursor,
        candidates: Sequence[tuple[str, Syntax]],
        offered: Collection[str],
        may_cut: MayCut = cut_nothing,
    ) -> None:
        cursor.begin()
        self._may_cut = may_cut
        self._cursor = cursor
        self._offered = offered
        self._left = list(candidates)
        self._furthest = 0
        self._reason = Reason.NOT_A_CALL
        self._heard: list[Finding] = []
        self.is_marked = any(syntax.is_marked for _, syntax in candidates)
        self._start_next()

    def resume(self) -> Calls | NoCall | None:
        """Continue reading; None if more text is needed."""
        while True:
            try:
                next(self._reading)
                return None
            except StopIteration as end:
                found: Calls = end.value
                if not found.is_cut or self._may_cut(self._cursor.source(), found.calls):
                    return found
                reason = Reason.NOT_A_CALL
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
class InProse:
    """In prose; `is_untouched` while only white space has been seen."""

    is_untouched: bool = False


@dataclass(frozen=True)
class Beginning:
    """What precedes a call at its `opening`.

    `is_first` if only white space and thoughts precede it, `begins_reply` if only calls do. The
    last `words` of the prose are examined only when they matter.
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
    def follows_mark(self) -> bool:
        return ends_in_mark(self.words)

    def is_in_sentence(self, tools: Sequence[str]) -> bool:
        """Return whether a call belongs to the words before it.

        These are on its line and announce no act, they are a sentence without an end, or they
        report what somebody else writes.
        """
        if self.words.rstrip()[-1:].isalnum() or gives_account(self.words):
            return True
        if not self.opening.startswith(" "):
            return False
        is_meant = recognition.announces(self.words, tools) or presents(self.words)
        return not (self.is_sentence_start and is_meant)


@dataclass(slots=True)
class AfterCall:
    """After a call, which is `pending` until it is `accepted`; the `gap` follows it."""

    pending: FoundCalls | None
    gap: list[str] = field(default_factory=list)
    is_doubtful: bool = False
    accepted: FoundCalls | None = None


@dataclass(slots=True)
class JoinedCall:
    """A call that counts if the next one does, and the gap between the two."""

    found: FoundCalls
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Skipping:
    """In something to drop, for example an invented result, up to `end`.

    The `content` of a result that follows no call is collected after its `opening`, the white space
    and the mark before it; None where it is not. If it `is_first`, nothing else precedes it.
    """

    end: Literals
    content: list[str] | None = None
    opening: str = ""
    is_first: bool = False


Mode: TypeAlias = InProse | OpeningAttempt | AfterCall | Skipping
