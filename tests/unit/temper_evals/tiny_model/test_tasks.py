import random

import pytest

from temper_evals.tiny_model.tasks import FAMILIES, NOTHING_FITS, TaskDraw, TinyTask, offer_tools
from temper_evals.tiny_model.tools import HELD_OUT_TOOLS

CALLS = {"chain": 2, "none": 0}


def drawn(family: str, *, held_out: bool = False) -> list[TinyTask]:
    tasks = TaskDraw(random.Random(f"{family}"), held_out=held_out)
    return [tasks.task(family) for _ in range(60)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_that_is_due_is_offered_and_its_values_are_visible_when_it_is_due(
    family: str,
) -> None:
    for task in drawn(family):
        assert task.family == family
        assert len(task.calls) == CALLS.get(family, 1)
        names = [one.name for one in task.tools]
        assert len(names) == len({*names})
        visible = task.user
        for call in task.calls:
            assert call.name in names
            assert all(str(value) in visible for value in call.arguments.values())
            visible += call.result
        if task.calls:
            assert task.calls[-1].result in task.answer


def test_where_nothing_fits_the_tool_that_would_is_not_offered() -> None:
    asked = [one for one in drawn("none") if one.answer == NOTHING_FITS]
    assert len(asked) > 10
    for task in asked:
        for tool in task.tools:
            for wording in tool.wordings:
                assert task.user.split()[:2] != wording.split()[:2] or "{" in wording


def test_there_is_more_to_choose_from_where_a_tool_is_to_be_chosen() -> None:
    assert max(len(one.tools) for one in drawn("single")) <= 3
    assert min(len(one.tools) for one in drawn("choose")) >= 4


def test_what_fails_once_fails_in_its_family_only() -> None:
    assert all(one.calls[0].fails_once for one in drawn("failing"))
    assert not any(one.calls[0].fails_once for one in drawn("single"))


def test_unseen_tools_are_those_that_training_never_shows() -> None:
    kept = {one.name for one in HELD_OUT_TOOLS}
    assert {one.calls[0].name for one in drawn("unseen")} == kept
    shown = {
        tool.name
        for family in FAMILIES
        if family != "unseen"
        for task in drawn(family)
        for tool in task.tools
    }
    assert not kept & shown


def test_held_out_tasks_share_no_made_up_word_with_training() -> None:
    words = (
        {str(one.calls[0].arguments) for one in drawn("composed", held_out=held)}
        for held in (False, True)
    )
    shown, kept = words
    assert not shown & kept


def test_a_request_offers_the_tools_in_their_order() -> None:
    task = drawn("choose")[0]
    functions = [one["function"] for one in offer_tools(task) if isinstance(one, dict)]
    assert [one["name"] for one in functions if isinstance(one, dict)] == [
        one.name for one in task.tools
    ]
