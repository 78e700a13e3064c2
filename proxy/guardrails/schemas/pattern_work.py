"""How much work it is to match values with patterns, and how often one may backtrack."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from proxy import bounds
from proxy.guardrails.schemas.patterns import PatternCost

# A pattern with lookarounds or backreferences visits its states once for each try. The limit of
# tries is compiled into a schema, so there are several: the longer the value, the fewer tries.
TRIES = (10_000, 1_000, 100, 10)
_MANY_TRIES = TRIES[:2]
_STEPS_TO_BACKTRACK = bounds.PATTERN_STEPS // 4  # as these steps take longer
STEPS_A_UNIT = 30  # compiling a unit of a pattern takes as long as visiting so many states
_ENOUGH = 10**12


# How a value is matched: a pattern may backtrack so often (never if it would take too long), and
# all patterns take so many steps.
Matching: TypeAlias = tuple[int, int]
FREE: Matching = TRIES[0], 0
IMPOSSIBLE: Matching = 0, 0


@dataclass(frozen=True, slots=True)
class PatternWork:
    """How many states of patterns are visited: `steps`, and further ones for each try."""

    steps: int = 0
    steps_a_try: int = 0

    def plan(self) -> Matching:
        """Return how to match with so much work."""
        if self.steps > bounds.PATTERN_STEPS:
            return IMPOSSIBLE
        for tries in TRIES:
            further = tries * self.steps_a_try
            if further <= _STEPS_TO_BACKTRACK:
                return tries, self.steps + further
        return IMPOSSIBLE

    def __add__(self, other: "PatternWork") -> "PatternWork":
        return PatternWork(self.steps + other.steps, self.steps_a_try + other.steps_a_try)

    def __mul__(self, times: int) -> "PatternWork":
        """Return this work for so many characters or members."""
        steps, steps_a_try = self.steps * times, self.steps_a_try * times
        return PatternWork(min(steps, _ENOUGH), min(steps_a_try, _ENOUGH))

    @classmethod
    def sum(cls, costs: Iterable[PatternCost]) -> "PatternWork":
        """Return the work of matching one character with all of these patterns."""
        steps = steps_a_try = 0
        for cost in costs:
            if cost.backtracks:
                steps_a_try += cost.states
            else:
                steps += cost.states
        return cls(steps, steps_a_try)

    @classmethod
    def largest(cls, costs: Iterable[PatternCost]) -> "PatternWork":
        """Return as much work as the most expensive of these patterns can be."""
        listed = list(costs)
        linear = [cost.states for cost in listed if not cost.backtracks]
        others = [cost.states for cost in listed if cost.backtracks]
        return cls(max(linear, default=0), max(others, default=0))


NO_WORK = PatternWork()


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of a schema.

    A value with at most so much text may be matched with so many tries, a byte takes so many steps.
    """

    costs: Mapping[str, PatternCost] = field(default_factory=dict)
    quick: Sequence[tuple[int, int, int]] = ()

    @classmethod
    def of(cls, costs: Mapping[str, PatternCost], most: PatternWork) -> "Patterns":
        """Return patterns that take at most so much work for a byte of a value's text."""
        quick: list[tuple[int, int, int]] = []
        for tries in _MANY_TRIES:
            further = tries * most.steps_a_try
            text = bounds.PATTERN_STEPS // max(most.steps, 1)
            text = min(text, _STEPS_TO_BACKTRACK // max(further, 1))
            quick.append((text, tries, most.steps + further))
        return cls(costs, quick)

    def plan(self, size: int) -> Matching | None:
        """Return how to match a value with so much text; None if that has to be examined."""
        for most, tries, steps in self.quick:
            if size <= most:
                return tries, size * steps
        return None

    @property
    def size(self) -> int:
        return self.size_of(self.costs)

    @property
    def can_backtrack(self) -> bool:
        return any(cost.backtracks for cost in self.costs.values())

    def size_of(self, used: Iterable[str]) -> int:
        """Return the size of some of the patterns."""
        return sum(self.costs[one].size for one in used if one in self.costs)

    def work_of(self, used: Iterable[str]) -> PatternWork:
        """Return the work of some of the patterns for one character."""
        return PatternWork.sum(self.costs[one] for one in used if one in self.costs)


NO_PATTERNS = Patterns()
