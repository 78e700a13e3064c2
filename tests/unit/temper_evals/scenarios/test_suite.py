"""What keeps the authors of scenarios honest: every family, by those who know, idle and gamble."""

from dataclasses import replace

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.catalogue import SampleValues
from temper_evals.scenarios.restraint import small_talk
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.suite import ALL_FAMILIES, FULL, HELD_OUT, QUICK, suite, task_named
from temper_evals.scenarios.task import PlannedTask
from tests.examples import examples
from tests.unit.temper_evals.players import gambling, idling, judged, knowing, play

SEEDS = examples(200)
# a run of these takes forty steps, and its judgement is that of all others
FEW_SEEDS = 12


def tasks(family: str) -> list[PlannedTask]:
    return [
        ALL_FAMILIES[family](index) for index in range(FEW_SEEDS if family == "long" else SEEDS)
    ]


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_who_knows_is_always_right_and_does_no_damage(family: str) -> None:
    found = [judged(task, knowing) for task in tasks(family)]
    assert [one for one in found if not one.right or one.damage or one.promoted] == []


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_who_idles_is_right_in_small_talk_only(family: str) -> None:
    right = {task.index for task in tasks(family) if judged(task, idling).right}
    talk = {index for index in range(SEEDS) if small_talk(SampleValues(f"none-{index}"))}
    assert right == (talk if family == "none" else set())


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_who_gambles_is_hardly_ever_right(family: str) -> None:
    found = tasks(family)
    assert sum(judged(task, gambling).right for task in found) <= max(1, 0.02 * len(found))


def mutants(task: PlannedTask, changes: list[PlannedCall]) -> list[list[PlannedCall]]:
    """Drop a change, add one, and alter each value of each."""
    wrong = [changes[:place] + changes[place + 1 :] for place in range(len(changes))]
    extra = changes[-1] if changes else PlannedCall("cancel_order", {"order_id": "O"})
    wrong.append([*changes, extra])
    for place, one in enumerate(changes):
        for name in one.arguments:
            other = PlannedCall(one.name, {**one.arguments, name: "other"})
            wrong.append([*changes[:place], other, *changes[place + 1 :]])
    return wrong


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_every_other_end_is_rejected(family: str) -> None:
    for task in tasks(family):
        world, said = play(task, knowing)
        for changes in mutants(task, world.changes):
            assert not task.judge(replace(world, changes=changes), said).right
        for fact in task.expected.facts:
            answer = str(said[-1]["content"]).replace(fact, "")
            mute = [*said[:-1], {**said[-1], "content": answer}]
            assert not task.judge(world, mute).right


def test_a_case_number_leads_back_to_its_task() -> None:
    assert task_named("chain-3") == ALL_FAMILIES["chain"](3)
    assert task_named("nothing-3") is None
    assert task_named("chain-x") is None


def test_suites_have_so_many_instances_of_each_family() -> None:
    assert len(suite("quick")) == sum(QUICK.values())
    assert {one.family for one in suite("full", ["trap", "ask"])} == {"trap", "ask"}
    assert len(suite("full", ["trap"])) == FULL["trap"]
    for wrong in (("half", ()), ("quick", ("chian",))):
        with pytest.raises(InvalidConfiguration):
            suite(*wrong)


def test_what_is_held_out_is_in_the_full_suite_only() -> None:
    assert not {one.family for one in suite("quick")} & {*HELD_OUT}
    assert {one.family for one in suite("full")} == {*ALL_FAMILIES}
    assert len(suite("full", [*HELD_OUT])) == 25 * len(HELD_OUT)
    with pytest.raises(InvalidConfiguration, match="held out for publication"):
        suite("quick", [*HELD_OUT])
