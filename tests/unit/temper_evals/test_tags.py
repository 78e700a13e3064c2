import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.suite import ALL_FAMILIES, suite, task_named
from temper_evals.tags import tags_of, with_names, with_tags


def tags(name: str) -> list[str]:
    task = task_named(name)
    assert task is not None
    return tags_of(task)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("single-0", ["single", "one-call"]),
        ("choose-0", ["choose", "one-call", "many-tools"]),
        ("verbatim-0", ["verbatim", "one-call", "arguments"]),
        ("ask-0", ["ask", "restraint", "system"]),
        ("trap-0", ["trap", "quoted", "restraint"]),
        ("forced-0", ["forced", "constrained"]),
        ("ordered-0", ["ordered", "several-steps", "rules"]),
        ("travel-0", ["travel", "several-steps", "errors", "held-out"]),
    ],
)
def test_tags_of_a_task_are_its_family_and_the_tags_of_the_family(
    name: str, expected: list[str]
) -> None:
    assert tags(name) == expected


def test_every_family_has_a_tag_besides_its_name() -> None:
    assert all(len(tags(f"{name}-0")) > 1 for name in ALL_FAMILIES)


def test_tasks_with_any_of_the_tags_are_returned_or_all_tasks_if_no_tag_is_given() -> None:
    tasks = suite("quick")
    assert with_tags(tasks, ()) is tasks
    chosen = with_tags(tasks, ("errors", "restraint"))
    assert {task.family for task in chosen} == {"failing", "none", "ask", "trap"}


def test_the_named_tasks_are_returned_and_an_unknown_name_is_refused() -> None:
    tasks = suite("quick", ())
    assert with_names(tasks, ()) is tasks
    chosen = with_names(tasks, ("chain-1", "single-0"))
    assert {task.name for task in chosen} == {"chain-1", "single-0"}
    with pytest.raises(
        InvalidConfiguration, match=r"--task: no task has the name 'chain-99'.*chain-"
    ):
        with_names(tasks, ("chain-99",))
