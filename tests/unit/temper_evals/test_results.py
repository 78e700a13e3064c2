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
    """Make a run for each character of the pattern: + is a right run, - a wrong run."""
    return [
        replace(RIGHT, arm=arm, family=family, scenario=f"{family}-{n}", right=mark == "+")
        for n, mark in enumerate(pattern)
    ]


def result_of(arm: str, results: list[ArmResult]) -> ArmResult:
    return next(result for result in results if result.arm == arm)


def test_helped_cases_are_solved_only_by_the_second_arm_and_harmed_only_by_the_first() -> None:
    comparison = compare_runs(runs_of("direct", "++--"), runs_of("temper", "-+++"), 200)
    assert (comparison.pairs, comparison.helped, comparison.harmed, comparison.right_before) == (
        4,
        2,
        1,
        2,
    )
    assert comparison.lift.estimate == 0.25
    assert [run.scenario for run in comparison.harms] == ["chain-0"]
    assert compare_runs([], [], 10).pairs == 0


def test_only_cases_that_both_arms_ran_are_compared() -> None:
    comparison = compare_runs(runs_of("direct", "++"), runs_of("temper", "++++"), 100)
    assert comparison.pairs == 2


def test_the_gap_closed_is_the_lift_divided_by_the_distance_to_the_ceiling() -> None:
    runs = [*runs_of("direct", "+---"), *runs_of("temper", "++--"), *runs_of("ceiling", "+++-")]
    results = results_of(runs, 100)
    gap = result_of("temper", results).gap
    assert gap is not None
    assert gap.estimate == 0.5
    assert result_of("direct", results).against is None
    flat = results_of([*runs_of("direct", "++"), *runs_of("t", "++"), *runs_of("ceiling", "++")], 9)
    assert result_of("t", flat).gap is None
    assert (
        result_of("t", results_of([*runs_of("direct", "+-"), *runs_of("t", "++")], 9)).gap is None
    )


def test_the_costs_are_means_over_the_runs() -> None:
    cost = cost_of([RIGHT, replace(RIGHT, generations=4, prompt=300)])
    assert (cost.generations_per_request, cost.generations, cost.prompt) == (1.5, 3, 200)
    assert cost.cached_share == 0.2
    assert (cost.text_p50, cost.call_p95, cost.model_seconds) == (0.1, 0.2, 3.0)
    assert cost_of([]).cached_share == 0.0


def test_an_arm_result_has_the_fields_same_bytes_and_reach_and_families_and_steady() -> None:
    direct = runs_of("direct", "++")
    retried = [replace(run, outcomes=["retried", "clean"]) for run in runs_of("temper", "+-")]
    other_seed = [replace(run, seed=1, right=False, digest="other") for run in retried]
    comparison = result_of("temper", results_of([*direct, *retried, *other_seed], 50))
    assert comparison.reach == 0.5
    assert (comparison.same_bytes, comparison.runs) == (2, 4)
    assert comparison.families == {"chain": (1, 4)}
    assert comparison.steady == 0.0
    without_outcome = results_of([replace(RIGHT, outcomes=[])], 5)[0]
    assert without_outcome.reach is None
    assert without_outcome.steady == 1.0


def test_harm_is_counted_for_the_families_none_ask_and_trap() -> None:
    runs = [*runs_of("direct", "++-", "trap"), *runs_of("temper", "-+-", "trap")]
    harm = harm_where_restraint_counts(runs, "bed", "temper")
    assert harm == {"none": (0, 0), "ask": (0, 0), "trap": (1, 2)}
