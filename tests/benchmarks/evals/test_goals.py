"""The goals of docs/evidence.md: when they are met, missed, or left out."""

from collections.abc import Mapping, Sequence

import pytest

from benchmarks.evals.goals import ROW_HEADINGS, goals, reply_goals, rows_beside_forge
from benchmarks.evals.thresholds import Outcome, Promise, evidence_of
from temper_evals.records import RunRecord
from temper_evals.reply_bed import ReplyCounts
from tests.benchmarks.evals.test_thresholds import ALL, DIRECT, HALF, arm

TITLE = "p-small: `temper-tuned` against `forge`"
ACTING = "p-small@over_acting=0.1"


def goals_by_title(
    parts: Mapping[str, list[RunRecord]], verdicts: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Promise]:
    return {goal.endpoint: goal for goal in goals(evidence_of(parts, verdicts))}


def goals_for_patterns(forge: str, tuned: str, /, **changes: object) -> dict[str, Promise]:
    costly = {"model_seconds": 10.0, "prompt": 1_000}
    runs = [*DIRECT, *arm("forge", forge, **costly)]
    return goals_by_title(
        {"main": [*runs, *arm("temper-tuned", tuned, model_seconds=5.0, **changes)]}
    )


def test_without_runs_of_temper_there_are_no_goals() -> None:
    assert goals(evidence_of({})) == []
    assert goals(evidence_of({"main": DIRECT})) == []


def test_the_tuned_arm_is_compared_with_forge() -> None:
    good = goals_for_patterns(HALF, ALL)
    assert {goal.outcome for goal in good.values()} == {Outcome.MET}
    assert good[f"{TITLE}: success"].measured.startswith("+25.0")
    worse = goals_for_patterns(ALL, HALF, prompt=900)
    for what in ("success", "harmed", "tokens"):
        assert worse[f"{TITLE}: {what}"].outcome is Outcome.MISSED
    assert worse[f"{TITLE}: model seconds"].outcome is Outcome.MET


@pytest.mark.parametrize(
    ("name", "generations", "outcome"),
    [
        ("temper", 2, Outcome.MET),
        ("temper", 3, Outcome.MISSED),
        ("temper-tuned", 3, Outcome.MISSED),
    ],
)
def test_the_goal_on_generations_per_request_is_met_or_missed(
    name: str, generations: int, outcome: Outcome
) -> None:
    runs = [*DIRECT, *arm(name, ALL, generations=generations)]
    title = f"p-small, `{name}`: generations per request"
    assert goals_by_title({"main": runs})[title].outcome is outcome


def test_the_goal_on_repeated_runs_is_met_only_if_both_arms_are_equal() -> None:
    title = "p-small: the same twice (A/A)"
    same = [*DIRECT, *arm("temper", ALL), *arm("temper-again", ALL)]
    assert goals_by_title({"main": same})[title].outcome is Outcome.MET
    other = [*DIRECT, *arm("temper", ALL), *arm("temper-again", HALF)]
    assert goals_by_title({"main": other})[title].outcome is Outcome.MISSED


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (("close_out always: 0 helped, 3 harmed of 9: off", "respond: 7 helped: on"), Outcome.MET),
        (("close_out always: 9 helped, 1 harmed of 90: on",), Outcome.MISSED),
        ((), Outcome.NOT_SHOWN),
    ],
)
def test_tuning_must_leave_the_setting_close_out_off_for_an_over_acting_model(
    verdicts: tuple[str, ...], outcome: Outcome
) -> None:
    runs = [*arm("temper", ALL, ACTING), *arm("temper-tuned", ALL, ACTING)]
    outcomes = goals_by_title({"over-acting": runs}, {ACTING: verdicts})
    assert outcomes[f"{ACTING}: close_out left off"].outcome is outcome
    assert outcomes[f"{ACTING}: tuned - defaults"].outcome is Outcome.REPORTED


def test_the_table_of_arms_has_a_row_with_temper_next_to_forge() -> None:
    runs = [*DIRECT, *arm("temper", ALL), *arm("forge", HALF, model_seconds=2.0)]
    (row,) = rows_beside_forge(evidence_of({"main": runs}))
    assert len(row) == len(ROW_HEADINGS)
    assert row[:6] == ("p-small", "`temper`", "50.0", "75.0", "100.0", row[5])
    assert row[5].startswith("+25.0")


@pytest.mark.parametrize(
    ("counts", "outcomes"),
    [
        (ReplyCounts(100, 80, 85, retried=6), [Outcome.MET, Outcome.MET, Outcome.MET]),
        (ReplyCounts(100, 80, 90, 2, 6, 2), [Outcome.MISSED, Outcome.MISSED, Outcome.MISSED]),
        (ReplyCounts(100, 90, 60, needless=10), [Outcome.REPORTED]),
        (ReplyCounts(100, 100, 60), [Outcome.REPORTED]),
    ],
)
def test_the_counts_of_right_lost_and_retried_replies_are_compared_with_the_goals(
    counts: ReplyCounts, outcomes: list[Outcome]
) -> None:
    assert [reply_goal.outcome for reply_goal in reply_goals("simple", counts)] == outcomes
