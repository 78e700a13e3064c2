"""The table of engines in docs/guides/engines.md, with a row for each engine."""

from collections.abc import Iterable
from dataclasses import dataclass, field

# the tests by name, and their titles in the table
COLUMNS = {
    "chat": "chat",
    "tools": "tools",
    "markup": "no markup shown",
    "required": "`required`",
    "named": "a named tool",
    "none": "`none`",
    "constrained": "an enum",
    "counting": "counts",
    "uncut": "left whole",
    "overflow": "too long",
    "cancel": "hang-up",
    "usage": "usage",
    "logprobs": "logprobs",
    "cache": "cached tokens",
    "errors": "errors",
}


@dataclass
class Tally:
    """The number of tries, and of successful ones."""

    good: int = 0
    tries: int = 0

    def add(self, *, is_good: bool) -> None:
        self.good += is_good
        self.tries += 1

    @property
    def is_full(self) -> bool:
        return self.good == self.tries

    def __str__(self) -> str:
        if self.tries <= 2:  # two tries (streamed and not) are a yes or no, not a rate
            return {0: "no", self.tries: "yes"}.get(self.good, "partly")
        return f"{self.good}/{self.tries}"


@dataclass
class Row:
    """The results of an engine, with and without Temper."""

    engine: str
    version: str
    temper: dict[str, Tally] = field(default_factory=dict)
    direct: dict[str, Tally] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    def note(self, what: str, *, is_good: bool) -> None:
        """Record a result through Temper."""
        self.temper.setdefault(what, Tally()).add(is_good=is_good)

    def note_direct(self, what: str, *, is_good: bool) -> None:
        """Record a result without Temper."""
        self.direct.setdefault(what, Tally()).add(is_good=is_good)

    def cell(self, what: str) -> str:
        if what in self.remarks:
            return self.remarks[what]
        seen = self.temper.get(what)
        if seen is None:
            return "-"
        alone = self.direct.get(what)
        is_same = alone is None or str(alone) == str(seen) or (seen.is_full and alone.is_full)
        return str(seen) if is_same else f"{alone} → {seen}"

    def __str__(self) -> str:
        return " | ".join((f"| {self.engine}", self.version, *map(self.cell, COLUMNS), ""))


def table(rows: Iterable[Row]) -> str:
    """Write rows as Markdown."""
    head = ("engine", "version", *COLUMNS.values())
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(str, rows)]
    return "\n".join(line.rstrip() for line in lines)
