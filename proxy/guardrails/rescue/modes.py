"""Defines the modes of the scanner; `OpeningAttempt` reads the text after an opening."""

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue import marks
from proxy.guardrails.rescue.findings import ArgumentsStarted, ArgumentsText, Finding, FoundCalls
from proxy.guardrails.rescue.formats import Anchor
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, fold_mark
from proxy.guardrails.rescue.values.scalars import Unreadable


class UnionLiterals(Literals):
    """The union of two sets of literals.

    The first set is prepared once for all requests. The second set contains the names of a client's
    tools, which may also begin calls. A single set with the literals of both would have to be
    prepared for each request, which would take too long.
    """

    def __init__(self, first: Literals, second: Literals) -> None:
        self._first = first
        self._second = second

    def find(self, text: str, start: int, *, is_finished: bool) -> int:
        index = self._first.find(text, start, is_finished=is_finished)
        return min(index, self._second.find(text, start, is_finished=is_finished))

    def at(self, text: str, index: int, *, is_finished: bool) -> str | None:
        first = self._first.at(text, index, is_finished=is_finished)
        second = self._second.at(text, index, is_finished=is_finished)
        return None if first is None or second is None else max(first, second, key=len)


@dataclass(frozen=True, slots=True)
class Openings:
    """The openings of some syntaxes, prepared for a search in text.

    - `known`: each opening, with its syntax
    - `at_start`: the openings and other marks that the scanner searches for at the start of a reply
    - `in_prose`, `after_call`: the same for prose, and for the text after a call
    """

    known: tuple[tuple[str, Syntax], ...]
    at_start: Literals
    in_prose: Literals
    after_call: Literals
    _fitting: dict[str, list[tuple[str, Syntax]]] = field(default_factory=dict)

    @staticmethod
    def of(syntaxes: Iterable[Syntax]) -> "Openings":
        known = _openings_of_all(syntaxes)
        tokens, loose = marks.SPECIAL_TOKENS, marks.LOOSE_MARKS
        later = _later(known) | tokens
        return Openings(
            known,
            UnionLiterals(Literals({opening for opening, _ in known} | tokens), loose),
            UnionLiterals(Literals(later), loose),
            UnionLiterals(Literals(later | marks.STRAY_CLOSERS), loose),
        )

    def find_fitting(self, literal: str) -> list[tuple[str, Syntax]]:
        """Return the pairs of opening and syntax that fit `literal`, the longest opening first."""
        if literal not in self._fitting:
            fitting = [pair for pair in self.known if literal.startswith(pair[0])]
            key = fold_mark(literal)  # models also change the letter case of result marks
            known = (pair for pair in self.known if not fitting and fold_mark(pair[0]) == key)
            fitting += [(literal, syntax) for _, syntax in known if not syntax.is_marked]
            self._fitting[literal] = sorted(fitting, key=lambda pair: -len(pair[0]))
        return self._fitting[literal]

    def find_candidates(self, literal: str, anchors: Container[Anchor]) -> list[tuple[str, Syntax]]:
        return [pair for pair in self.find_fitting(literal) if pair[1].anchor in anchors]

    def is_any_marked(self, literal: str) -> bool:
        return any(syntax.is_marked for _, syntax in self.find_fitting(literal))

    def join(self, syntaxes: Iterable[Syntax]) -> "Openings":
        known = _openings_of_all(syntaxes)
        everywhere = Literals(opening for opening, _ in known)
        later = Literals(_later(known))
        return Openings(
            self.known + known,
            UnionLiterals(self.at_start, everywhere),
            UnionLiterals(self.in_prose, later),
            UnionLiterals(self.after_call, later),
        )


@lru_cache(maxsize=64)
def openings_of(syntaxes: tuple[Syntax, ...], named: tuple[Syntax, ...] = ()) -> Openings:
    """Return the prepared openings of `syntaxes` and of `named`, which a client's tools add."""
    return openings_of(syntaxes).join(named) if named else Openings.of(syntaxes)


def _openings_of_all(syntaxes: Iterable[Syntax]) -> tuple[tuple[str, Syntax], ...]:
    return tuple((opening, syntax) for syntax in syntaxes for opening in syntax.openings)


def _later(known: Iterable[tuple[str, Syntax]]) -> set[str]:
    """Return the openings that are recognized after the start of a reply."""
    return {opening for opening, syntax in known if syntax.anchor != "reply_start"}


# A function that receives a text and the calls read from it, and returns whether the model itself
# made these calls. If so, the rest of the reply may be dropped.
MayDropRest: TypeAlias = Callable[[str, Sequence[WrittenCall]], bool]


def never_drop_rest(source: str, calls: Sequence[WrittenCall]) -> bool:
    return False


class OpeningAttempt:
    """Reads the text after an opening with each candidate syntax in turn, from the same position.

    If no candidate finds a call, the text up to the furthest position that any candidate reached
    is prose, and is not read again. So each candidate reads a character at most once.
    """

    def __init__(
        self,
        cursor: Cursor,
        candidates: Sequence[tuple[str, Syntax]],
        offered: Collection[str],
        may_cut: MayDropRest = never_drop_rest,
    ) -> None:
        cursor.begin()
        self._may_cut = may_cut
        self._cursor = cursor
        self._offered = offered
        self._candidates = list(candidates)
        self._furthest = 0
        self._reason = Reason.NOT_A_CALL
        self._findings: list[Finding] = []
        self.is_marked = any(syntax.is_marked for _, syntax in candidates)
        self._start_next()

    def resume(self) -> Calls | NoCall | None:
        """Continue reading; None if more text is needed."""
        while True:
            try:
                next(self._reading)
                return None
            except StopIteration as end:
                calls: Calls = end.value
                if not calls.is_cut or self._may_cut(self._cursor.source(), calls.calls):
                    return calls
                reason = Reason.NOT_A_CALL
            except NoCall as refusal:
                reason = refusal.reason
            except Unreadable:
                reason = Reason.BROKEN
            finally:
                self._report_arguments()
            # The candidate that consumed the most text has the most specific reason.
            length = len(self._cursor.source())
            if length > self._furthest:
                self._furthest, self._reason = length, reason
            self._cursor.rewind()
            if not self._candidates:
                self._cursor.advance(self._furthest)
                return NoCall(self._reason)
            self._start_next()

    def take_findings(self) -> list[Finding]:
        findings, self._findings = self._findings, []
        return findings

    def _start_next(self) -> None:
        opening, self.syntax = self._candidates.pop(0)
        self._cursor.advance(len(opening))
        self._reading: Reading = self.syntax.read(self._cursor, opening)
        self._has_started = False

    def _report_arguments(self) -> None:
        name = self._cursor.arguments_name
        if name is None or not (self.syntax.is_marked or name in self._offered):
            return
        if not self._has_started:
            self._has_started = True
            self._findings.append(ArgumentsStarted(name, self.syntax.is_marked))
        if text := self._cursor.take_echo():
            self._findings.append(ArgumentsText(text))


@dataclass(slots=True)
class InProse:
    """In prose; `is_at_start` is true as long as only white space has arrived."""

    is_at_start: bool = False


@dataclass(slots=True)
class AfterCall:
    """After a call.

    The call is `pending` until it is `accepted`. `gap` contains the white space and the marks after
    the call.
    """

    pending: FoundCalls | None
    gap: list[str] = field(default_factory=list)
    is_doubtful: bool = False
    accepted: FoundCalls | None = None


@dataclass(frozen=True, slots=True)
class Skipping:
    """Inside text that is skipped up to the mark `end`, for example an invented result.

    - `content`: the text of a result that follows no call; None for other text
    - `opening`: the white space and the mark before the content
    - `is_first`: only white space precedes the result
    """

    end: Literals
    content: list[str] | None = None
    opening: str = ""
    is_first: bool = False


Mode: TypeAlias = InProse | OpeningAttempt | AfterCall | Skipping
