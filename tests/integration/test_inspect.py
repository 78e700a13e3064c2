"""The suite as a task of Inspect AI, which evaluates a simulated model over HTTP."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.runs import ArmProgress
from temper_evals.simulated.profiles import load_profile
from temper_evals.simulated.server import SimulatedServer, serve

inspect_log = pytest.importorskip("inspect_ai.log", reason="needs the extra `inspect`")

TASK = "temper_evals/inspect.py@temper_suite"
# parallel calls, raw text, failing tools, required steps, and quoted calls
FAMILIES = ("parallel", "verbatim", "failing", "none", "trap", "forced", "ordered")


async def run_inspect(
    profile: str, families: tuple[str, ...], folder: Path
) -> dict[str, tuple[bool, str]]:
    """Let Inspect run these families; return the scores and their explanations."""
    async with serve(SimulatedServer(load_profile(profile), 0.0)) as url:
        command = [
            *(
                sys.executable,
                "-m",
                "inspect_ai",
                "eval",
                TASK,
                "-T",
                f"families={','.join(families)}",
            ),
            *("--model", "openai-api/local/simulated", "--max-retries", "0"),
            *("--log-dir", str(folder), "--display", "none"),
        ]
        reached = {"LOCAL_BASE_URL": f"{url}/v1", "LOCAL_API_KEY": "none"}
        done = await anyio.run_process(command, env={**os.environ, **reached}, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return scores_in(folder)


def scores_in(folder: Path) -> dict[str, tuple[bool, str]]:
    (path,) = folder.glob("*.eval")
    samples = inspect_log.read_eval_log(str(path)).samples
    scores = {str(sample.id): next(iter(sample.scores.values())) for sample in samples}
    return {name: (score.value == "C", str(score.explanation)) for name, score in scores.items()}


async def test_inspect_ai_scores_equal_those_of_temper_eval(tmp_path: Path) -> None:
    def ignore(_progress: ArmProgress) -> None:
        """Ignore the progress."""

    choice = EvaluationChoice(families=FAMILIES, profiles=("p-small",), arms=("direct",), pace=0.0)
    records = await evaluate(choice, tmp_path / "own", ignore)
    expected = {run.scenario: run.right for run in records.runs}
    assert {*expected.values()} == {True, False}
    scores = await run_inspect("p-small", FAMILIES, tmp_path / "logs")
    assert {name: right for name, (right, _) in scores.items()} == expected


async def test_a_failed_request_makes_its_inspect_ai_sample_wrong_and_the_suite_continues(
    tmp_path: Path,
) -> None:
    scores = await run_inspect("healthy", ("long", "single"), tmp_path / "logs")
    assert [name for name, (right, _) in scores.items() if not right] == ["long-0"]
    assert "exceeds the available context size" in scores["long-0"][1]
