"""How much work it is to match values with patterns, and how often one may backtrack."""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy import bounds
from proxy.guardrails.schemas.patterns import PatternCost

# A pattern with lookarounds or backreferences visits its states once for each try. The limit of
# tries is compiled into a schema, so there are several: the longer the value, the fewer tries.
TRIES = (10_000, 1_000, 100, 10)
MANY_TRIES = TRIES[1]
STEPS_A_UNIT = 30  # compiling a unit of a pattern takes as long as visiting so many states
_ENOUGH = 10**12


@dataclass(frozen=True, slots=True)
class PatternWork:
    """How many states of patterns are visited: `steps`, and further ones for each try."""

    steps: int = 0
    steps_a_try: int = 0

    @property
    def tries(self) -> int:
        """How many tries a pattern may have that backtracks; 0 if even a few take too long."""
        if self.steps > bounds.PATTERN_STEPS:
            return 0
        fitting = (most for most in TRIES if most * self.steps_a_try <= 2 * bounds.PATTERN_STEPS)
        return next(fitting, 0)

    @property
    def total(self) -> int:
        return self.steps + self.tries * self.steps_a_try

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
