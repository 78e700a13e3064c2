from msgspec.structs import replace

from temper_evals.records import RunRecord
from temper_evals.results import (
    ArmResult,
    compare_runs,
    cost_of,
    harm_where_restraint_counts,
    results_of,
)

RIGHT = RunRecord(
    "bed", "direct", "chain-1", 0, "chain", right=True, ending="answered", digest="d",
    requests=2, generations=2, prompt=100, cached=40, generated=10, model_seconds=3.0, seconds=0.5,
    text_seconds=[0.1], call_seconds=[0.2], outcomes=["clean"],
)  # fmt: skip


def runs_of(arm: str, pattern: str, family: str = "chain") -> list[RunRecord]:
    """Make a run for each mark: + is right, - is wrong."""
    return [
        replace(RIGHT, arm=arm, family=family, scenario=f"{family}-{n}", right=mark == "+")
        for n, mark in enumerate(pattern)
    ]


def one(arm: str, results: list[ArmResult]) -> ArmResult:
    return next(result for result in results if result.arm == arm)


def test_help_and_harm_are_counted_in_pairs() -> None:
    found = compare_runs(runs_of("direct", "++--"), runs_of("temper", "-+++"), 200)
    assert (found.pairs, found.helped, found.harmed, found.right_before) == (4, 2, 1, 2)
    assert found.lift.estimate == 0.25
    assert [run.scenario for run in found.harms] == ["chain-0"]
    assert compare_runs([], [], 10).pairs == 0


def test_only_cases_that_both_ran_are_compared() -> None:
    found = compare_runs(runs_of("direct", "++"), runs_of("temper", "++++"), 100)
    assert found.pairs == 2


def test_the_gap_is_the_way_to_the_ceiling() -> None:
    runs = [*runs_of("direct", "+---"), *runs_of("temper", "++--"), *runs_of("ceiling", "+++-")]
    results = results_of(runs, 100)
    gap = one("temper", results).gap
    assert gap is not None
    assert gap.estimate == 0.5
    assert one("direct", results).against is None
    flat = results_of([*runs_of("direct", "++"), *runs_of("t", "++"), *runs_of("ceiling", "++")], 9)
    assert one("t", flat).gap is None
    assert one("t", results_of([*runs_of("direct", "+-"), *runs_of("t", "++")], 9)).gap is None


def test_costs_are_means_of_runs() -> None:
    cost = cost_of([RIGHT, replace(RIGHT, generations=4, prompt=300)])
    assert (cost.generations_per_request, cost.generations, cost.prompt) == (1.5, 3, 200)
    assert cost.cached_share == 0.2
    assert (cost.text_p50, cost.call_p95, cost.model_seconds) == (0.1, 0.2, 3.0)
    assert cost_of([]).cached_share == 0.0


def test_reach_bytes_families_and_steadiness_are_told() -> None:
    direct = runs_of("direct", "++")
    retried = [replace(one, outcomes=["retried", "clean"]) for one in runs_of("temper", "+-")]
    again = [replace(one, seed=1, right=False, digest="other") for one in retried]
    found = one("temper", results_of([*direct, *retried, *again], 50))
    assert found.reach == 0.5
    assert (found.same_bytes, found.runs) == (2, 4)
    assert found.families == {"chain": (1, 4)}
    assert found.steady == 0.0
    silent = results_of([replace(RIGHT, outcomes=[])], 5)[0]
    assert silent.reach is None
    assert silent.steady == 1.0


def test_harm_is_told_by_family_where_restraint_counts() -> None:
    runs = [*runs_of("direct", "++-", "trap"), *runs_of("temper", "-+-", "trap")]
    found = harm_where_restraint_counts(runs, "bed", "temper")
    assert found == {"none": (0, 0), "ask": (0, 0), "trap": (1, 2)}
