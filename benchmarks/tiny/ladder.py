"""The skill ladder: the same model at several moments of its training, with and without Temper."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.results import ArmResult, results_of
from temper_evals.runs import ArmProgress

ARMS = ("direct", "temper")


async def climb(
    kinds: Sequence[Path], folder: Path, tell: Callable[[str], None]
) -> list[ArmResult]:
    """Ask each file of a kind the quick tasks; makes what the folder lacks."""

    def show(progress: ArmProgress) -> None:
        if progress.done == progress.of:
            tell(f"{progress.bed} {progress.arm}: {progress.right} of {progress.of}")

    choice = EvaluationChoice(tiny=True, models=tuple(kinds), arms=ARMS)
    return results_of((await evaluate(choice, folder, show)).runs)


def write_figures(results: Sequence[ArmResult], tokens: dict[str, int], path: Path) -> None:
    """Write what came, one line for each bed and arm."""
    lines = [
        {
            "bed": one.bed,
            "tokens": tokens.get(one.bed.removesuffix("-mute"), 0),
            "arm": one.arm,
            "runs": one.runs,
            "right": one.right,
            "helped": one.against.helped if one.against else 0,
            "harmed": one.against.harmed if one.against else 0,
        }
        for one in results
    ]
    text = ",\n".join(json.dumps(line) for line in lines)
    path.write_text(f"[\n{text}\n]\n", encoding="utf-8")
