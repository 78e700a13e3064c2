import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow
from proxy.guardrails.steps import drop_infeasible, missing_steps, steps_before
from proxy.guardrails.transcript import CompletedCall

RULES = Workflow(
    ("read", "test"),
    (Prerequisite("edit", "read", "path"), Prerequisite("push", "test")),
    ("done",),
)


def completed_call(
    name: str, arguments: JsonObject | None = None, *, failed: bool = False
) -> CompletedCall:
    return CompletedCall(name, arguments or {}, "", failed)


def test_a_required_step_is_missing_until_a_call_of_its_tool_has_succeeded() -> None:
    assert missing_steps(RULES, []) == ("read", "test")
    assert missing_steps(RULES, [completed_call("test"), completed_call("read", failed=True)]) == (
        "read",
    )
    assert missing_steps(RULES, [completed_call("test"), completed_call("read")]) == ()


@pytest.mark.parametrize(
    ("completed", "is_met"),
    [
        ([], False),
        ([completed_call("read", {"path": "b"})], False),
        ([completed_call("read", {"path": "a"}, failed=True)], False),
        ([completed_call("read", {"path": "a"})], True),
        ([CompletedCall("read", None, "", has_failed=False)], False),
    ],
)
def test_a_prerequisite_may_require_the_same_argument(
    completed: list[CompletedCall], is_met: bool
) -> None:
    steps = steps_before("edit", {"path": "a"}, RULES, completed)
    assert steps == (() if is_met else ("read",))


def test_a_call_without_the_argument_that_its_prerequisite_compares_matches_no_earlier_call() -> (
    None
):
    assert steps_before("edit", {}, RULES, [completed_call("read", {})]) == ("read",)


def test_a_prerequisite_without_an_argument_is_met_by_any_call_of_its_tool() -> None:
    assert steps_before("push", {}, RULES, [completed_call("read")]) == ("test",)
    assert steps_before("push", {}, RULES, [completed_call("test")]) == ()
    assert steps_before("read", {}, RULES, []) == ()


def test_before_a_terminal_tool_may_run_all_steps_must_have_run() -> None:
    assert steps_before("done", {}, RULES, [completed_call("test")]) == ("read",)
    assert steps_before("done", {}, RULES, [completed_call("test"), completed_call("read")]) == ()
    assert steps_before("done", {}, NO_RULES, []) == ()


@pytest.mark.parametrize(
    ("offered", "completed", "steps", "prerequisites", "missing"),
    [
        (["read", "test", "edit", "push", "done"], [], ("read", "test"), RULES.prerequisites, ()),
        (["read", "edit", "done"], [], ("read",), RULES.prerequisites[:1], ("test",)),
        (["read", "push", "done"], [], ("read",), (), ("test",)),
        (["push"], [], (), (), ("test",)),
        (["push"], [completed_call("test")], ("test",), RULES.prerequisites[1:], ()),
        (["push"], [completed_call("test", failed=True)], (), (), ("test",)),
        (["other"], [], (), (), ()),
    ],
)
def test_rules_that_require_an_unavailable_tool_are_dropped(
    offered: list[str],
    completed: list[CompletedCall],
    steps: tuple[str, ...],
    prerequisites: tuple[Prerequisite, ...],
    missing: tuple[str, ...],
) -> None:
    remaining_rules = Workflow(steps, prerequisites, RULES.terminal_tools)
    assert drop_infeasible(RULES, offered, completed) == (remaining_rules, missing)


def test_only_unavailable_steps_are_dropped_if_there_is_no_terminal_tool() -> None:
    rules = Workflow(("read", "test"))
    assert drop_infeasible(rules, ["read"], []) == (Workflow(("read",)), ("test",))
    assert drop_infeasible(rules, ["read"], [completed_call("test")]) == (rules, ())
