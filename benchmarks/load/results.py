"""The stored results of a run: every figure of every round, and the machine."""

import os
import platform
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.load.figures import Figures, median


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware and software of the machine that ran the measurement."""

    cpu: str
    cores: int
    system: str
    python: str

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.system}, Python {self.python}"


@dataclass(slots=True)
class Results:
    """The results of one run; `rounds` maps scenario and candidate to one entry per round.

    `absent` has the reason why a proxy is missing, and `problems` has the failures in a scenario.
    """

    date: str
    machine: Machine
    is_quick: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)
    problems: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def figure(self, scenario: str, candidate: str, name: str) -> float | None:
        """Return the median of a figure over the rounds, None if it was not measured."""
        entries = self.rounds.get(scenario, {}).get(candidate, [])
        values = [entry[name] for entry in entries if name in entry]
        return median(values) if values else None

    def candidates(self) -> list[str]:
        """List the measured candidates, in the order of their first measurement."""
        return list(
            dict.fromkeys(name for candidates in self.rounds.values() for name in candidates)
        )

    def names(self, scenario: str) -> list[str]:
        entries = (entry for entries_of in self.rounds[scenario].values() for entry in entries_of)
        return list(dict.fromkeys(name for entry in entries for name in entry))


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def this_machine() -> Machine:
    return Machine(
        _cpu(),
        os.cpu_count() or 1,
        f"{platform.system()} {platform.machine()}",
        platform.python_version(),
    )


def _cpu() -> str:
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    except OSError:
        match = None
    return match[1] if match else platform.processor() or "unknown CPU"


def save(results: Results, file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def load(file: Path) -> Results:
    """Read the results from a file; raises OSError and ValueError."""
    return msgspec.json.decode(file.read_bytes(), type=Results)
