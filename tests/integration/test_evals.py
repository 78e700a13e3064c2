"""Temper between a loop and a simulated model, as `temper eval` measures it."""

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from temper_evals.cards.environment import read_environments
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.records import read_runs
from temper_evals.results import ArmResult, results_of
from temper_evals.runs import ArmProgress
from tests.fakes.command import ended
from tests.fakes.quick_start import COMMAND, Program
from tests.timeouts import TIMEOUT_SECONDS

FAMILIES = ("single", "parallel", "failing", "none", "trap", "forced", "ordered")
CONTROLS = ("temper", "temper-off", "temper-observe", "temper-accept")


def ignore_progress(_progress: ArmProgress) -> None:
    """Ignore the progress."""


async def evaluate_profile(
    folder: Path, profile: str, *arms: str, families: tuple[str, ...] = FAMILIES
) -> dict[str, ArmResult]:
    choice = EvaluationChoice(
        families=families, profiles=(profile,), arms=("direct", *arms, "ceiling"), pace=0.0
    )
    records = await evaluate(choice, folder, ignore_progress)
    return {result.arm: result for result in results_of(records.runs, 200)}


@pytest.mark.deep
async def test_replies_of_a_model_without_errors_are_unchanged_and_never_retried(
    tmp_path: Path,
) -> None:
    results = await evaluate_profile(tmp_path, "healthy", *CONTROLS, families=FAMILIES[:4])
    for arm in CONTROLS:
        result = results[arm]
        assert result.same_bytes == result.runs
        assert result.cost.generations_per_request == 1.0
        assert result.against is not None
        assert (result.against.helped, result.against.harmed) == (0, 0)
        assert result.reach == 0.0
        assert result.cost.generations == results["direct"].cost.generations


@pytest.mark.deep
async def test_the_arms_off_and_observe_equal_the_arm_direct_and_temper_harms_no_run(
    tmp_path: Path,
) -> None:
    results = await evaluate_profile(tmp_path, "p-small", "temper", "temper-off", "temper-observe")
    for arm in ("temper-off", "temper-observe"):
        assert results[arm].same_bytes == results[arm].runs
    assert results["temper-observe"].reach
    against = results["temper"].against
    assert against is not None
    assert against.harmed == 0
    assert against.helped > 0
    assert results["temper"].promoted == 0


async def test_a_model_whose_only_errors_are_wrong_values_is_neither_helped_nor_harmed(
    tmp_path: Path,
) -> None:
    results = await evaluate_profile(tmp_path, "values-only", "temper", families=FAMILIES[:4])
    against = results["temper"].against
    assert against is not None
    assert (against.helped, against.harmed) == (0, 0)
    assert results["ceiling"].right == results["direct"].right


@pytest.mark.deep
def test_killed_evaluation_resumes_without_losing_or_repeating_runs(tmp_path: Path) -> None:
    folder, runs = tmp_path / "out", 2 * 12 * 2
    flags = ("--family", "single", "--family", "chain", "--arms", "direct,ceiling", "--seeds", "2")
    process = Program(
        [*COMMAND, "eval", *flags, "--pace", "0", "--output", str(folder)],
        stderr=subprocess.DEVNULL,
    )
    while len([*read_runs(folder)]) < 10 and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.kill()
    assert process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
    before = [*read_runs(folder)]
    assert 10 <= len(before) < runs
    assert ended("eval", "--resume", str(folder)).returncode == 0
    after = [*read_runs(folder)]
    assert after[: len(before)] == before
    assert len({run.key for run in after}) == len(after) == runs


LEAKED = """
user = "What is the weather in Oslo?"
[[tool]]
name = "get_weather"
schema = { type = "object", properties = { city = { type = "string" } }, required = ["city"] }
[[tool.result]]
arguments = { city = "Oslo" }
returns = { degrees = 21 }
[expect]
calls = [{ name = "get_weather", arguments = { city = "Oslo" } }]
words = ["21"]
"""


@pytest.mark.deep
async def test_leaked_calls_of_a_llama_server_are_rescued_except_when_off(
    tmp_path: Path,
) -> None:
    pytest.importorskip("xllamacpp", reason="needs the extra `embedded`")
    from temper_evals.demo.scripted_model import build_scripted_model

    model, tasks = tmp_path / "leaking.gguf", tmp_path / "tasks"
    leaked = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    scripts = {"default": leaked, "<tool_response>": "It is 21 degrees in Oslo."}
    build_scripted_model(model, scripts, context_tokens=8192)
    tasks.mkdir()
    (tasks / "leaked.toml").write_text(LEAKED, encoding="utf-8")
    choice = EvaluationChoice(
        models=(model,), scenarios=tasks, arms=("direct", "temper-off", "temper")
    )
    records = await evaluate(choice, tmp_path / "out", ignore_progress)
    results = {result.arm: result for result in results_of(records.runs, 100)}
    assert {arm: result.right for arm, result in results.items()} == {
        "direct": 0,
        "temper-off": 0,
        "temper": 1,
    }
    assert results["temper-off"].same_bytes == results["temper-off"].runs
    (environment,) = read_environments(tmp_path / "out")["leaking"]
    assert environment.model.name == "leaking"
    assert environment.hardware is not None
    assert environment.engine is not None
    assert environment.engine.name in ("xllamacpp", "llama.cpp")
