"""Makes a card from the records of an evaluation."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from temper_evals.cards.card import ArmCounts, Card, Environment, Family, Suite, first_problem
from temper_evals.cards.environment import only_environment, read_environments, with_digest
from temper_evals.evaluation import EvaluationChoice, choice_of, missing_runs, simulated_setups
from temper_evals.records import RUNS, read_protocol, read_runs
from temper_evals.results import ArmResult, results_of

_FLAG = "--card"
# With these options, the tasks are not published, or the protocol's hash does not cover them.
_UNPUBLISHED = ("scenarios", "forge_checkout", "replies", "bfcl")
_RELEASE = re.compile(r"\d+(?:\.\d+){1,2}(?:(?:a|b|rc)\d+)?")


def check_choice(choice: EvaluationChoice) -> None:
    """Raise InvalidConfiguration if no card can be made of an evaluation with these options."""
    if given := [name for name in _UNPUBLISHED if getattr(choice, name) is not None]:
        flag = "--" + given[0].replace("_", "-")
        problem = f"a card is about published tasks: remove {flag}"
        raise InvalidConfiguration(_FLAG, problem)
    served = len(choice.backend_urls) * max(1, len(choice.backend_model))
    count = served + len(choice.models) + len(choice.ollama)
    if choice.is_simulated:
        # the setups are only counted, so their tasks do not matter
        count = len(simulated_setups(replace(choice, benchmark="")))
    if count > 1:
        problem = f"a card is about one model (got {count}): run the command once for each"
        raise InvalidConfiguration(_FLAG, problem)
    try:
        TypeAdapter(Suite).validate_python(_suite_of(choice))
    except ValidationError as error:
        problem = f"a card cannot name {_suite_of(choice)}: {first_problem(error)}"
        raise InvalidConfiguration(_FLAG, problem) from error


def _suite_of(choice: EvaluationChoice) -> str:
    return f"benchmark:{choice.benchmark}" if choice.benchmark else choice.suite


def card_of(folder: Path) -> Card:
    """Make the card of a folder of records; raises InvalidConfiguration.

    Reads the whole model file for its digest, which takes seconds.
    """
    protocol, runs, choice = read_protocol(folder), [*read_runs(folder)], choice_of(folder, {})
    check_choice(choice)
    missing = sum(missing_runs(protocol, runs).values())
    if missing or not runs:
        lack = f"lacks {missing} runs" if missing else "has no runs"
        problem = f"{folder} {lack}: continue with `temper eval --resume {folder}`"
        raise InvalidConfiguration(_FLAG, problem)
    return Card(
        made=last_change_of(folder / RUNS),
        temper=release_in(str(protocol.get("temper"))),
        guardrails=str(protocol.get("guardrails")),
        environment=_environment_of(folder, choice),
        suite=_suite_of(choice),
        protocol=str(protocol.get("hash")),
        tasks=len({run.scenario for run in runs}),
        seeds=len({run.seed for run in runs}),
        tasks_digest=digest_of(run.pair for run in runs),
        arms=tuple(map(_count, results_of(runs))),
    )


def _environment_of(folder: Path, choice: EvaluationChoice) -> Environment:
    listed = [each for known in read_environments(folder).values() for each in known]
    environment = only_environment(listed, folder)
    return with_digest(environment, choice.models[0]) if choice.models else environment


def last_change_of(path: Path) -> datetime:
    """Return the minute of the last change of a file."""
    return datetime.fromtimestamp(path.stat().st_mtime // 60 * 60, UTC)


def release_in(version: str) -> str:
    """Return a version without the part that only a checkout has, such as `.dev1+g2f0a35c`."""
    match = _RELEASE.match(version)
    return match[0] if match else "0.0"


def digest_of(pairs: Iterable[tuple[str, int]]) -> str:
    """Return the digest of a set of tasks with their seeds; it names none of the tasks."""
    document = json.dump([[name, seed] for name, seed in sorted({*pairs})])
    return hashlib.blake2b(document, digest_size=8).hexdigest()


def _count(result: ArmResult) -> ArmCounts:
    """Return the counts of an arm; its costs are averages, so their sums are rounded."""
    cost, against = result.cost, result.against
    return ArmCounts(
        arm=result.arm,
        runs=result.runs,
        right=result.right,
        helped=None if against is None else against.helped,
        harmed=None if against is None else against.harmed,
        damage=result.damage,
        failed=result.runs - result.completed,
        generations=round(cost.generations * result.runs),
        prompt_tokens=round(cost.prompt * result.runs),
        generated_tokens=round(cost.generated * result.runs),
        seconds=round((cost.model_seconds or cost.seconds) * result.runs),
        families={
            name: Family(right=right, runs=runs)
            for name, (right, runs) in sorted(result.families.items())
        },
    )
