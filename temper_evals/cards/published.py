"""A folder of published cards: checks each card, and compares it with the previous card.

A row is an arm of a card. A row is worse if the previous card of the same model, engine, machine
class and tasks had more right runs, fewer harmed runs, or fewer damaging calls. There is no
allowance for chance, because many small losses would pass one by one. Instead, an entry in
`acknowledged.toml` accepts a worse row for a reason, which may be chance. An entry for a row that
is not worse is a problem of the folder, like a worse row without an entry.

    [[worse]]
    card = "qwen3-8b-q4-quick-2026-11-29-1f0c77aa.json"
    arm = "temper"
    reason = "The A/A runs of this model differ by three tasks."
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.files import read_toml
from temper_evals.arms import DIRECT, TEMPER
from temper_evals.cards.card import ArmCounts, ArmName, Card, Engine, first_problem, read_card
from temper_evals.report.markdown import markdown_table
from temper_evals.report.table import percent
from temper_evals.statistics import wilson

FOLDER = "docs/results"  # in the repository
ACKNOWLEDGED = "acknowledged.toml"
SCHEMA = "card.schema.json"
HEADINGS = (
    *("model", "suite", "hardware", "engine", "Temper", "right in `direct`", "right in `temper`"),
    *("helped", "harmed"),
)


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    card: str
    arm: ArmName
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=300)]


class _Acknowledged(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    worse: list[_Row] = []


@dataclass(frozen=True, slots=True)
class WorseRow:
    """An arm of a card that is worse than in the previous card."""

    card: Card
    arm: str
    before: Card
    changes: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.card.file_name, self.arm

    def sentence(self) -> str:
        return (
            f"{self.card.file_name}: {self.arm} is worse than in {self.before.file_name}: "
            f"{', '.join(self.changes)}. Find the cause, or accept the row in {ACKNOWLEDGED}."
        )


@dataclass(frozen=True, slots=True)
class Published:
    """The valid cards of a folder in the order of the table, and the problems of the folder."""

    cards: tuple[Card, ...]
    problems: tuple[str, ...]

    def document(self) -> JsonObject:
        return {"cards": [card.file_name for card in self.cards], "problems": [*self.problems]}


def check_folder(folder: Path) -> Published:
    """Read and compare all cards of a folder; raises InvalidConfiguration if there is no folder."""
    if not folder.is_dir():
        problem = f"{folder} is not a folder: pass the folder with the cards"
        raise InvalidConfiguration("temper eval cards", problem)
    cards: list[Card] = []
    problems: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name in (ACKNOWLEDGED, SCHEMA):
            continue
        try:
            card = read_card(path)
        except InvalidConfiguration as error:
            problems.append(str(error))
            continue
        cards.append(card)
        if path.name != card.file_name:
            problems.append(f"{path.name}: must be named {card.file_name}")
    cards.sort(
        key=lambda card: (card.environment.model.name, card.suite, card.made, card.file_name)
    )
    try:
        problems += _judge(worse_rows(cards), _read_acknowledged(folder / ACKNOWLEDGED))
    except InvalidConfiguration as error:
        problems.append(str(error))
    return Published(tuple(cards), tuple(problems))


def _read_acknowledged(path: Path) -> list[_Row]:
    if not path.exists():
        return []
    try:
        return TypeAdapter(_Acknowledged).validate_python(read_toml(path)).worse
    except ValidationError as error:
        raise InvalidConfiguration(str(path), first_problem(error)) from error


def _judge(worse: Sequence[WorseRow], rows: Sequence[_Row]) -> Iterator[str]:
    """Yield each worse row without an acknowledgment, and each acknowledgment without a row."""
    accepted = {(row.card, row.arm) for row in rows}
    yield from (row.sentence() for row in worse if row.key not in accepted)
    for card, arm in sorted(accepted - {row.key for row in worse}):
        yield f"{ACKNOWLEDGED}: {arm} of {card} is not worse: remove the entry."


def worse_rows(cards: Sequence[Card]) -> list[WorseRow]:
    """Compare each card with the previous card of the same model, engine, machine and tasks."""
    in_order = sorted(cards, key=lambda card: (_series(card), card.made, card.file_name))
    return [
        WorseRow(after, arm.arm, before, changes)
        for _, series in groupby(in_order, key=_series)
        for before, after in pairwise(series)
        for arm in after.arms
        if (old := before.find_arm(arm.arm)) and (changes := _losses(old, arm))
    ]


def _series(card: Card) -> tuple[str, ...]:
    """Return the key by which cards are compared; the build of the engine is not part of it."""
    engine = card.environment.engine
    build = {"engine": Engine(name=engine.name)} if engine else {}
    environment = card.environment.model_copy(update=build)
    return environment.model_dump_json(), card.suite, card.protocol, card.tasks_digest


def _losses(before: ArmCounts, after: ArmCounts) -> tuple[str, ...]:
    counts = {
        "right": (after.right, before.right),
        "harmed": (before.harmed or 0, after.harmed or 0),
        "damage": (before.damage, after.damage),
    }
    worse = [name for name, (lower, higher) in counts.items() if lower < higher]
    return tuple(
        f"{name} {getattr(before, name) or 0} -> {getattr(after, name) or 0}" for name in worse
    )


def describe(card: Card) -> Iterator[str]:
    """Yield the values of a card, a few in each line."""
    sha256 = card.environment.model.sha256
    digest = f", SHA-256 {sha256[:12]}..." if sha256 else ""
    yield f"model {_model(card)}{digest}; engine {_engine(card)}; hardware {_hardware(card)}"
    yield (
        f"suite {card.suite}: {card.tasks} tasks, seeds: {card.seeds}; protocol {card.protocol}; "
        f"Temper {card.temper}; {card.made:%Y-%m-%d %H:%M} UTC"
    )
    for arm in card.arms:
        paired = "" if arm.helped is None else f", {arm.helped} helped, {arm.harmed} harmed"
        yield (
            f"{arm.arm}: {arm.right} of {arm.runs} right{paired}, {arm.damage} damaging calls, "
            f"{arm.generations} generations, {arm.prompt_tokens + arm.generated_tokens} tokens, "
            f"{arm.seconds} s, right runs of each family of tasks"
        )


def table(cards: Sequence[Card]) -> str:
    """Return the cards as a table in Markdown, a row for each card."""
    return markdown_table(HEADINGS, map(_cells, cards))


def _cells(card: Card) -> tuple[str, ...]:
    direct, temper = card.find_arm(DIRECT), card.find_arm(TEMPER)
    paired = temper if temper and temper.helped is not None else None
    return (
        _model(card),
        f"{card.suite}, {card.tasks} tasks" + (f", {card.seeds} seeds" if card.seeds > 1 else ""),
        _hardware(card),
        _engine(card),
        f"{card.temper}, {card.made.date()}",
        _right(direct),
        _right(temper),
        f"{paired.helped}" if paired else "",
        f"{paired.harmed}" if paired else "",
    )


def _right(arm: ArmCounts | None) -> str:
    if arm is None:
        return ""
    share = wilson(arm.right, arm.runs)
    return f"{arm.right} ({percent(share.low, 0)} to {percent(share.high, 0)} %)"


def _model(card: Card) -> str:
    model = card.environment.model
    quantization = f", {model.quantization}" if model.quantization else ""
    return f"{model.name}{quantization}{' (simulated)' if model.simulated else ''}"


def _engine(card: Card) -> str:
    engine = card.environment.engine
    return "-" if engine is None else f"{engine.name} {engine.build or '(unknown build)'}"


def _hardware(card: Card) -> str:
    """Write a class of machines, such as "Linux x86_64, AMD, 2 cores, 32 GiB"."""
    hardware = card.environment.hardware
    if hardware is None:
        return "-"
    gpus = [f"{gpu.name} {gpu.memory_gib} GiB" for gpu in hardware.gpus]
    memory = [f"{hardware.memory_gib} GiB"] if hardware.memory_gib else []
    machine = f"{hardware.system} {hardware.architecture}, {hardware.processor}"
    return ", ".join((machine, f"{hardware.cores} cores", *memory, *gpus))
