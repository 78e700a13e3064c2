"""A run of a task is right if it follows the plan, but not with random calls or a wrong change."""

from dataclasses import replace

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.catalogue import SampleValues
from temper_evals.scenarios.restraint import small_talk
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.suite import ALL_FAMILIES, FULL, HELD_OUT, QUICK, suite, task_named
from temper_evals.scenarios.task import PlannedTask
from tests.examples import examples
from tests.unit.temper_evals.players import (
    follow_plan,
    judged,
    make_no_calls,
    make_random_calls,
    play,
)

SEEDS = examples(200)
# one task of the family `long` has about forty steps, so 200 tasks would take too much time
FEW_SEEDS = 12


def tasks(family: str) -> list[PlannedTask]:
    return [
        ALL_FAMILIES[family](index) for index in range(FEW_SEEDS if family == "long" else SEEDS)
    ]


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_player_that_follows_the_plan_is_always_right_without_damage(family: str) -> None:
    verdicts = [judged(task, follow_plan) for task in tasks(family)]
    assert [
        verdict for verdict in verdicts if not verdict.right or verdict.damage or verdict.promoted
    ] == []


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_player_that_makes_no_calls_is_right_only_in_tasks_of_small_talk(family: str) -> None:
    right = {task.index for task in tasks(family) if judged(task, make_no_calls).right}
    talk = {index for index in range(SEEDS) if small_talk(SampleValues(f"none-{index}"))}
    assert right == (talk if family == "none" else set())


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_player_that_makes_random_calls_is_right_in_at_most_two_percent_of_tasks(
    family: str,
) -> None:
    gambles = tasks(family)
    assert sum(judged(task, make_random_calls).right for task in gambles) <= max(
        1, 0.02 * len(gambles)
    )


def mutants(task: PlannedTask, changes: list[PlannedCall]) -> list[list[PlannedCall]]:
    """Return wrong lists of changes: one change missing, one added, one argument different."""
    wrong = [changes[:index] + changes[index + 1 :] for index in range(len(changes))]
    extra = changes[-1] if changes else PlannedCall("cancel_order", {"order_id": "O"})
    wrong.append([*changes, extra])
    for position, change in enumerate(changes):
        for name in change.arguments:
            other = PlannedCall(change.name, {**change.arguments, name: "other"})
            wrong.append([*changes[:position], other, *changes[position + 1 :]])
    return wrong


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_a_run_with_a_wrong_change_or_an_answer_without_a_fact_is_judged_wrong(family: str) -> None:
    for task in tasks(family):
        world, transcript = play(task, follow_plan)
        for changes in mutants(task, world.changes):
            assert not task.judge(replace(world, changes=changes), transcript).right
        for fact in task.expected.facts:
            answer = str(transcript[-1]["content"]).replace(fact, "")
            without_fact = [*transcript[:-1], {**transcript[-1], "content": answer}]
            assert not task.judge(world, without_fact).right


def test_a_task_is_found_by_its_family_and_number() -> None:
    assert task_named("chain-3") == ALL_FAMILIES["chain"](3)
    assert task_named("nothing-3") is None
    assert task_named("chain-x") is None


def test_a_suite_has_the_specified_number_of_instances_of_each_family() -> None:
    assert len(suite("quick")) == sum(QUICK.values())
    assert {task.family for task in suite("full", ["trap", "ask"])} == {"trap", "ask"}
    assert len(suite("full", ["trap"])) == FULL["trap"]
    for wrong in (("half", ()), ("quick", ("chian",))):
        with pytest.raises(InvalidConfiguration):
            suite(*wrong)


def test_held_out_families_are_only_in_the_full_suite() -> None:
    assert not {task.family for task in suite("quick")} & {*HELD_OUT}
    assert {task.family for task in suite("full")} == {*ALL_FAMILIES}
    assert len(suite("full", [*HELD_OUT])) == 25 * len(HELD_OUT)
    with pytest.raises(InvalidConfiguration, match="held out for publication"):
        suite("quick", [*HELD_OUT])
