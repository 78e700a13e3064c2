"""The records of a measurement: a folder with the protocol, and one line for each finished task.

A stopped measurement continues in the same folder. Runs are comparable only with the same tasks,
tools, judge and client, so the folder has a hash of their source files.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from pydantic import TypeAdapter

from benchmarks.evals.publishing import current_commit
from benchmarks.load.results import this_machine
from benchmarks.real.bed import Kind
from benchmarks.real.judging import JudgedRun, TaskRun, judge_run
from benchmarks.real.tasks import TASKS
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.profiles.tuned import guardrails_digest
from temper_evals.cards.environment import sha256_of

Key: TypeAlias = tuple[str, str, int, int]  # model, arm, task, seed

_HASHED_MODULES = ("bed", "shop", "workspace", "travel", "tasks", "judging", "loop")


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts of a llama-server: prompt tokens (`read`, or `cached`), and generated tokens."""

    read: int = 0
    cached: int = 0
    generated: int = 0

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        return TokenCounts(
            self.read + other.read, self.cached + other.cached, self.generated + other.generated
        )

    def __sub__(self, before: "TokenCounts") -> "TokenCounts":
        return TokenCounts(
            self.read - before.read,
            self.cached - before.cached,
            self.generated - before.generated,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A finished task; `identical` is the largest number of equal calls in one generation.

    It is None if the generations were not recorded.
    """

    model: str
    arm: str
    run: TaskRun
    tokens: TokenCounts = field(default_factory=TokenCounts)
    generations: int = 0
    identical: int | None = None

    @property
    def key(self) -> Key:
        return self.model, self.arm, self.run.number, self.run.seed

    @property
    def kind(self) -> Kind:
        return TASKS[self.run.number][1].kind

    @property
    def judged(self) -> JudgedRun:
        tools, task = TASKS[self.run.number]
        return judge_run(self.run, task, tools)


_RECORD = TypeAdapter(Record)


class Records:
    """The folder of a measurement."""

    def __init__(self, folder: Path, temperature: float) -> None:
        """Open a folder; raises InvalidConfiguration if it has runs of another protocol."""
        self.folder, self.path = folder, folder / "runs.jsonl"
        self._protocol = folder / "protocol.json"
        folder.mkdir(parents=True, exist_ok=True)
        known = json.parse(self._protocol.read_bytes()) if self._protocol.exists() else {}
        self.protocol: JsonObject = known if isinstance(known, dict) else {}
        current = protocol_hash(temperature)
        if self.protocol.setdefault("protocol", current) != current:
            problem = f"{folder} has runs of another protocol; choose an empty folder"
            raise InvalidConfiguration("OUT", problem)
        self.note("temperature", temperature)

    def note(self, name: str, value: str | float) -> None:
        """Add a property to the protocol; a property has the list of all its values."""
        values = self.protocol.setdefault(name, [])
        assert isinstance(values, list)  # noqa: S101 - written above
        if value not in values:
            values.append(value)
        self._protocol.write_bytes(json.dump(self.protocol))

    def note_environment(self, models: Mapping[str, Path], versions: Mapping[str, str]) -> None:
        """Record model files, machine, commit and versions."""
        for name, path in models.items():
            self.note("models", f"{name} {sha256_of(path)}")
        machine = this_machine()
        for name, text in {
            "machine": f"{machine.system} {machine.cores} x {machine.cpu}",
            "python": machine.python,
            "temper": version("temper-proxy"),
            "commit": current_commit(),
            "guardrails": guardrails_digest(),
            **versions,
        }.items():
            self.note(name, text)

    def __iter__(self) -> Iterator[Record]:
        content = self.path.read_bytes() if self.path.exists() else b""
        for line in content.splitlines(keepends=True):
            if line.endswith(b"\n"):  # a killed process leaves a partial line; its task runs again
                yield _RECORD.validate_json(line)

    def add(self, record: Record) -> None:
        with self.path.open("a+b") as file:
            file.seek(0)
            # A partial line is removed here and not when the folder is opened, because another
            # process may then be writing to the file.
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dump({**asdict(record)}) + b"\n")


def protocol_hash(temperature: float) -> str:
    """Return a hash of the modules that determine the result of a run."""
    digest = hashlib.blake2b(f"{temperature}".encode(), digest_size=8)
    for name in _HASHED_MODULES:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()
