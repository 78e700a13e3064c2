from proxy import bounds
from proxy.guardrails.schemas.pattern_work import (
    FREE,
    IMPOSSIBLE,
    NO_WORK,
    TRIES,
    Patterns,
    PatternWork,
)
from proxy.guardrails.schemas.patterns import PatternCost

LINEAR, OTHER = PatternCost(10, 7), PatternCost(10, 3, backtracks=True)


def test_work_is_that_of_all_patterns_or_of_the_largest() -> None:
    costs = {"a": LINEAR, "b": OTHER, "c": PatternCost(5, 1)}
    assert Patterns(costs).work_of(["a", "b", "b", "c", "unknown"]) == PatternWork(8, 6)
    assert PatternWork.largest(costs.values()) == PatternWork(7, 3)
    assert PatternWork.largest([]) == NO_WORK
    assert PatternWork(1, 2) + PatternWork(3, 4) == PatternWork(4, 6)
    assert Patterns(costs).size == 25
    assert Patterns(costs).can_backtrack
    assert not Patterns({"a": LINEAR}).can_backtrack


def test_the_more_text_the_fewer_tries() -> None:
    tries = [(PatternWork(1, 10) * size).plan()[0] for size in (1, 100, 1_000, 10_000, 100_000)]
    assert tries == [TRIES[0], TRIES[1], TRIES[2], TRIES[3], 0]
    assert (PatternWork(10, 0) * bounds.PATTERN_STEPS).plan() == IMPOSSIBLE
    assert NO_WORK.plan() == FREE


def test_a_little_text_is_planned_at_once_as_it_would_be_after_a_walk() -> None:
    most = PatternWork(5, 2)
    patterns = Patterns.of({"a": LINEAR}, most)
    for size in (1, 50, 500):
        assert patterns.plan(size) == (most * size).plan()
    assert patterns.plan(10**6) is None
