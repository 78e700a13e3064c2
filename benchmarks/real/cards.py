"""Makes a result card (`temper_evals.cards`) of each measured model from its complete arms."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.real.arms import launch_plan
from benchmarks.real.records import Records
from benchmarks.real.table import ArmReport, reports_of
from proxy.errors import InvalidConfiguration
from temper_evals.arms import DIRECT
from temper_evals.cards.card import ArmCounts, Card, Environment, Family
from temper_evals.cards.environment import (
    embedded_engine,
    file_environment,
    note_environment,
    only_environment,
    read_environments,
    with_digest,
)
from temper_evals.cards.making import digest_of, last_change_of, release_in

_SUITE = "real"


def note_model(records: Records, model: Path) -> None:
    """Record the environment of a model whose runs are about to be made."""
    environment = file_environment(model, launch_plan(model), embedded_engine())
    note_environment(records.folder, model.stem, with_digest(environment, model))


def cards_of(records: Records) -> Iterator[Card]:
    """Yield the card of each model; raises InvalidConfiguration.

    A card omits an arm that did not run exactly the tasks and seeds of `direct`.
    """
    environments = read_environments(records.folder)
    listed = [*records]
    for model in dict.fromkeys(record.model for record in listed):
        environment = only_environment(environments.get(model, []), records.folder)
        yield _card(records, environment, [*reports_of(model, listed).values()])


def _card(records: Records, environment: Environment, reports: Sequence[ArmReport]) -> Card:
    direct = next((_cases(report) for report in reports if report.arm == DIRECT), set())
    if not direct:
        problem = f"{environment.model.name} has no runs of the arm direct: run it first"
        raise InvalidConfiguration("--card", problem)
    return Card(
        made=last_change_of(records.path),
        temper=release_in(_only(records, "temper")),
        guardrails=_only(records, "guardrails") or None,
        environment=environment,
        suite=_SUITE,
        protocol=str(records.protocol["protocol"]),
        tasks=len({number for number, _ in direct}),
        seeds=len({seed for _, seed in direct}),
        tasks_digest=digest_of((str(number), seed) for number, seed in direct),
        arms=tuple(_count(report) for report in reports if _cases(report) == direct),
    )


def _only(records: Records, name: str) -> str:
    """Return a property of all runs, "" if it was not recorded."""
    listed = records.protocol.get(name, [])
    values = listed if isinstance(listed, list) else []
    if len(values) > 1:
        problem = f"the runs in {records.folder} have several values of {name}: choose a new folder"
        raise InvalidConfiguration("--card", problem)
    return str(values[0]) if values else ""


def _cases(report: ArmReport) -> set[tuple[int, int]]:
    return {(record.run.number, record.run.seed) for record in report.records}


def _count(report: ArmReport) -> ArmCounts:
    is_direct = report.arm == DIRECT
    verdicts = [judged.verdict for judged in report.judged]
    return ArmCounts(
        arm=report.arm,
        runs=len(report.records),
        right=report.right,
        helped=None if is_direct else report.changed(helped=True),
        harmed=None if is_direct else report.changed(helped=False),
        damage=sum(len(verdict.repeated) + len(verdict.needless) for verdict in verdicts),
        failed=sum(record.run.problem != "" for record in report.records),
        generations=report.generations,
        prompt_tokens=report.tokens.read + report.tokens.cached,
        generated_tokens=report.tokens.generated,
        seconds=round(report.seconds),
        families={
            kind: Family(right=right, runs=runs)
            for kind, (right, runs) in report.kinds.items()
            if runs
        },
    )
