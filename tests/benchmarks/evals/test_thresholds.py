"""The promises of docs/evidence.md: when they are met, missed, or not shown."""

from collections.abc import Mapping

import pytest
from msgspec import structs

from benchmarks.evals.thresholds import Evidence, Outcome, Promise, evidence_of, promises
from temper_evals.records import RunRecord

RUN = RunRecord(
    "p-small", "direct", "chain-0", 0, "chain", right=True, ending="answered", digest="d",
    requests=2, generations=2, prompt=100, cached=60, generated=10, text_seconds=[0.01],
)  # fmt: skip


def arm(name: str, pattern: str, bed: str = "p-small", /, **changes: object) -> list[RunRecord]:
    """Return a run for each character of the pattern: + is a right run, - a wrong run."""
    runs = [
        structs.replace(RUN, bed=bed, arm=name, scenario=f"chain-{n}", right=mark == "+")
        for n, mark in enumerate(pattern)
    ]
    return [structs.replace(run, **changes) for run in runs]


def promises_by_endpoint(parts: Mapping[str, list[RunRecord]]) -> dict[str, Promise]:
    return {promise.endpoint: promise for promise in promises(evidence_of(parts))}


DIRECT, HALF, ALL = arm("direct", "-" * 20 + "+" * 20), "+" * 30 + "-" * 10, "+" * 40


def test_without_runs_there_are_no_promises() -> None:
    assert promises(Evidence({}, {})) == []


@pytest.mark.parametrize(
    ("pattern", "outcome"),
    [(ALL, Outcome.MET), (HALF, Outcome.MISSED), ("-" * 20 + "+" * 20, Outcome.MISSED)],
)
def test_the_promised_improvement_over_direct_is_met_or_missed(
    pattern: str, outcome: Outcome
) -> None:
    runs = [*DIRECT, *arm("temper", pattern), *arm("ceiling", ALL)]
    assert promises_by_endpoint({"main": runs})["p-small"].outcome is outcome


def test_for_a_model_with_native_calls_temper_is_compared_with_the_arm_direct_urged() -> None:
    runs = [structs.replace(run, bed="n-8b") for run in DIRECT]
    runs += arm("direct-urged", HALF, "n-8b") + arm("temper", ALL, "n-8b")
    runs += arm("ceiling", ALL, "n-8b")
    assert promises_by_endpoint({"main": runs})["n-8b"].outcome is Outcome.MET


def test_the_promise_on_mismatch_is_met_only_if_temper_is_near_the_arm_ceiling() -> None:
    runs = arm("direct", "-" * 40, "mismatch") + arm("ceiling", ALL, "mismatch")
    worse, better = (arm("temper", share, "mismatch") for share in (HALF, ALL))
    assert promises_by_endpoint({"main": runs + worse})["mismatch"].outcome is Outcome.MISSED
    assert promises_by_endpoint({"main": runs + better})["mismatch"].outcome is Outcome.MET


def test_the_promise_on_forge_is_met_only_with_at_most_half_the_generations_of_forge() -> None:
    rival = arm("forge-respond", HALF, generations=8, text_seconds=[0.1])
    key = "p-small: over forge-respond"
    assert (
        promises_by_endpoint({"main": [*DIRECT, *rival, *arm("temper", ALL)]})[key].outcome
        is Outcome.MET
    )
    costly = arm("temper", ALL, generations=7)
    assert promises_by_endpoint({"main": [*DIRECT, *rival, *costly]})[key].outcome is Outcome.MISSED


def test_the_promise_on_harm_is_shown_only_with_enough_runs() -> None:
    runs = [*DIRECT, *arm("temper", ALL)]
    assert promises_by_endpoint({"main": runs})["p-small: harm"].outcome is Outcome.NOT_SHOWN
    harmed = [*DIRECT, *arm("temper", "+" * 39 + "-", damage=1)]
    assert promises_by_endpoint({"main": harmed})["p-small: harm"].outcome is Outcome.MISSED
    assert promises_by_endpoint({"main": harmed})["p-small: damage"].outcome is Outcome.MISSED
    many = [*arm("direct", "+" * 700), *arm("temper", "+" * 700)]
    assert promises_by_endpoint({"main": many})["p-small: harm"].outcome is Outcome.MET


def test_the_promise_on_traps_is_met_only_with_enough_harmless_runs() -> None:
    def traps(count: int, **changes: object) -> dict[str, list[RunRecord]]:
        runs = arm("direct", "+" * count) + arm("temper", "+" * count, **changes)
        return {"traps": [structs.replace(run, family="trap") for run in runs]}

    assert promises_by_endpoint(traps(2_000))["p-small: traps"].outcome is Outcome.MET
    assert promises_by_endpoint(traps(10))["p-small: traps"].outcome is Outcome.NOT_SHOWN
    assert promises_by_endpoint(traps(10, promoted=1))["p-small: traps"].outcome is Outcome.MISSED
    assert promises_by_endpoint(traps(10))["p-small: harm in `trap`"].outcome is Outcome.MET


def test_the_promise_on_controls_is_met_only_if_all_replies_are_byte_for_byte_equal() -> None:
    direct = arm("direct", ALL, "healthy")
    key = "healthy, `temper`"
    same = arm("temper", ALL, "healthy")
    assert promises_by_endpoint({"controls": [*direct, *same]})[key].outcome is Outcome.MET
    other = [*same[:-1], structs.replace(same[-1], digest="other")]
    assert promises_by_endpoint({"controls": [*direct, *other]})[key].outcome is Outcome.MISSED
    values = [structs.replace(run, bed="values-only") for run in (*DIRECT, *arm("temper", HALF))]
    assert (
        promises_by_endpoint({"controls": values})["values-only, `temper`"].outcome
        is Outcome.MISSED
    )


def test_the_promise_on_the_grid_is_missed_if_one_simulated_model_is_worse() -> None:
    runs = [*DIRECT, *arm("temper", ALL)]
    cell = [structs.replace(run, bed="p-small@low-low-low") for run in runs]
    worse = [*DIRECT, *arm("temper", "-" * 40)]
    low = [structs.replace(run, bed="p-small@low-low-high") for run in worse]
    assert promises_by_endpoint({"grid": cell})["whole grid"].outcome is Outcome.MET
    assert promises_by_endpoint({"grid": [*cell, *low]})["whole grid"].outcome is Outcome.MISSED


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.MET),
        ({"generations": 5}, Outcome.MISSED),
        ({"cached": 10}, Outcome.MISSED),
        ({"text_seconds": [0.03]}, Outcome.MISSED),
    ],
)
def test_the_promise_on_cost_covers_generations_time_and_cached_tokens(
    changes: dict[str, object], outcome: Outcome
) -> None:
    runs = [*DIRECT, *arm("temper", ALL, **changes)]
    assert promises_by_endpoint({"main": runs})["p-small: cost"].outcome is outcome
