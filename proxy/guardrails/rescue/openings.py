"""Which syntaxes can begin with which strings, and which other marks matter around calls."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from proxy.guardrails.rescue import marks
from proxy.guardrails.rescue.syntax import Place, Syntax
from proxy.guardrails.rescue.values.cursor import Literals


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
        tokens = marks.SPECIAL_TOKENS | marks.THOUGHT_ENDS
        later = _later(known) | tokens
        return Openings(
            known,
            Literals({opening for opening, _ in known} | tokens),
            Literals(later),
            Literals(later | marks.STRAY_CLOSERS | marks.INVENTED_RESULTS.keys()),
        )

    def find_fitting(self, literal: str) -> list[tuple[str, Syntax]]:
        """Return what can begin where `literal` stands: longer openings first, else in order."""
        if literal not in self._fitting:
            fitting = [pair for pair in self.known if literal.startswith(pair[0])]
            self._fitting[literal] = sorted(fitting, key=lambda pair: -len(pair[0]))
        return self._fitting[literal]

    def find_candidates(self, literal: str, places: Container[Place]) -> list[tuple[str, Syntax]]:
        return [pair for pair in self.find_fitting(literal) if pair[1].place in places]

    def is_any_marked(self, literal: str) -> bool:
        return any(syntax.is_marked for _, syntax in self.find_fitting(literal))

    def are_in(self, text: str) -> bool:
        """Whether more than control tokens stands in a text that is not the reply's first."""
        place = self.in_prose.find(text, 0, is_finished=True)
        while (literal := self.in_prose.at(text, place, is_finished=True)) in marks.SPECIAL_TOKENS:
            place = self.in_prose.find(text, place + len(literal), is_finished=True)
        return bool(literal)

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
