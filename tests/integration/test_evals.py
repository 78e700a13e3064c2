"""Temper between a loop and a simulated model, as `temper eval` measures it."""

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.records import read_runs
from temper_evals.results import ArmResult, results_of
from temper_evals.runs import ArmProgress
from tests.fakes.command import ended
from tests.fakes.quick_start import COMMAND, Program
from tests.patience import PATIENCE_SECONDS

FAMILIES = ("single", "parallel", "failing", "none", "trap", "forced", "ordered")
CONTROLS = ("temper", "temper-off", "temper-observe", "temper-accept")


def ignored(_progress: ArmProgress) -> None:
    """Nobody looks."""


async def measured(
    folder: Path, profile: str, *arms: str, families: tuple[str, ...] = FAMILIES
) -> dict[str, ArmResult]:
    choice = EvaluationChoice(
        families=families, profiles=(profile,), arms=("direct", *arms, "ceiling"), pace=0.0
    )
    records = await evaluate(choice, folder, ignored)
    return {one.arm: one for one in results_of(records.runs, 200)}


@pytest.mark.deep
async def test_of_a_model_without_flaws_not_a_byte_is_changed_and_nothing_is_asked_twice(
    tmp_path: Path,
) -> None:
    found = await measured(tmp_path, "healthy", *CONTROLS, families=FAMILIES[:4])
    for arm in CONTROLS:
        one = found[arm]
        assert one.same_bytes == one.runs
        assert one.cost.generations_per_request == 1.0
        assert one.against is not None
        assert (one.against.helped, one.against.harmed) == (0, 0)
        assert one.reach == 0.0
        assert one.cost.generations == found["direct"].cost.generations


@pytest.mark.deep
async def test_off_and_observe_are_as_direct_and_the_rest_does_no_harm(tmp_path: Path) -> None:
    found = await measured(tmp_path, "p-small", "temper", "temper-off", "temper-observe")
    for arm in ("temper-off", "temper-observe"):
        assert found[arm].same_bytes == found[arm].runs
    assert found["temper-observe"].reach
    against = found["temper"].against
    assert against is not None
    assert against.harmed == 0
    assert against.helped > 0
    assert found["temper"].promoted == 0


async def test_where_only_values_are_wrong_nothing_can_be_gained(tmp_path: Path) -> None:
    found = await measured(tmp_path, "values-only", "temper", families=FAMILIES[:4])
    against = found["temper"].against
    assert against is not None
    assert (against.helped, against.harmed) == (0, 0)
    assert found["ceiling"].right == found["direct"].right


@pytest.mark.deep
def test_a_run_that_was_killed_goes_on_without_losing_or_doubling_a_run(tmp_path: Path) -> None:
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
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    before = [*read_runs(folder)]
    assert 10 <= len(before) < runs
    assert ended("eval", "--resume", str(folder)).returncode == 0
    after = [*read_runs(folder)]
    assert after[: len(before)] == before
    assert len({one.key for one in after}) == len(after) == runs


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
async def test_calls_that_a_llama_server_leaks_are_found_and_off_changes_nothing(
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
    records = await evaluate(choice, tmp_path / "out", ignored)
    found = {one.arm: one for one in results_of(records.runs, 100)}
    assert {arm: one.right for arm, one in found.items()} == {
        "direct": 0,
        "temper-off": 0,
        "temper": 1,
    }
    assert found["temper-off"].same_bytes == found["temper-off"].runs
