"""The results of a soak, as a file and as a section of a page."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.faults.demands import Kind
from benchmarks.faults.flatness import Flatness, Sample, of_descriptors, of_memory
from benchmarks.load.figures import percentile
from benchmarks.load.results import Machine

_MOST_SHOWN = 20


class Lost(msgspec.Struct, frozen=True):
    """A lost request and the reason."""

    number: int
    fault: str
    problem: str


class Findings(msgspec.Struct):
    """The results of one run.

    `kinds` counts responses by fault and kind. `outlived` has the seconds that generations
    continued after their client disconnected. `at_rest` has the numbers of open descriptors before
    and after the run. `problems` are the problems of the whole run, not of a single request.
    """

    date: str
    machine: Machine
    seed: int
    command: str = ""
    settings: str = ""
    requests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    kinds: dict[str, dict[str, int]] = {}
    lost: list[Lost] = []
    problems: list[str] = []
    generations: int = 0
    outlived: list[float] = []
    samples: list[Sample] = []
    at_rest: tuple[int, int] | None = None

    def note(self, fault: str, kind: Kind) -> None:
        """Count a finished request."""
        self.requests += 1
        counts = self.kinds.setdefault(fault, {})
        counts[kind.value] = counts.get(kind.value, 0) + 1

    def count(self, kind: Kind) -> int:
        """Return the number of responses of this kind."""
        return sum(counts.get(kind.value, 0) for counts in self.kinds.values())

    @property
    def is_good(self) -> bool:
        """True if no request was lost and neither memory nor descriptors grew."""
        grown = [
            flatness
            for flatness in (of_memory(self.samples), of_descriptors(self.samples))
            if flatness
        ]
        return not self.lost and not self.problems and all(flatness.is_flat for flatness in grown)


def save(findings: Findings, file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(findings)) + b"\n")


def section(findings: Findings) -> str:
    """Return the command, the settings and the results as Markdown."""
    parts = (_run, _result, _faults, _problems)
    return "\n\n".join("\n".join(part(findings)) for part in parts if [*part(findings)]) + "\n"


def _run(findings: Findings) -> Iterator[str]:
    yield f"    {findings.command} --page docs/reliability.md"
    yield ""
    yield f"Run on {findings.date}: {findings.machine}. Temper's settings other than the defaults:"
    yield ""
    yield from (f"    {line}".rstrip() for line in findings.settings.splitlines())


def _result(findings: Findings) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield f"| requests | {findings.requests:,} in {findings.seconds:.0f} s |"
    yield f"| lost | {_judged(str(len(findings.lost)), is_good=not findings.lost)} |"
    for kind in Kind:
        if kind is not Kind.NOTHING:
            yield f"| {_KINDS[kind]} | {findings.count(kind):,} |"
    yield f"| generations | {findings.generations:,} |"
    if findings.outlived:
        last = percentile(findings.outlived, 100)
        yield f"| longest generation after its client left | {last * 1000:.0f} ms |"
    yield from _flat("memory, MB", of_memory(findings.samples))
    yield from _flat("descriptors", of_descriptors(findings.samples))
    if findings.at_rest is not None:
        before, after = findings.at_rest
        descriptors = _judged(f"{before}, {after}", is_good=after <= before)
        yield f"| descriptors at rest, before and after | {descriptors} |"
    if findings.samples:
        most = max(sample.memory_mb for sample in findings.samples)
        yield f"| peak memory, MB | {most:.0f} |"
    yield f"| CPU time, s | {findings.cpu_seconds:.0f} |"


_KINDS = {
    Kind.ANSWER: "right answers",
    Kind.ERROR: "permitted errors",
    Kind.ERROR_EVENT: "permitted error events",
    Kind.LEFT: "clients that left",
}


def _flat(title: str, flat: Flatness | None) -> Iterator[str]:
    if flat is not None:
        medians = f"{flat.second_fifth:.4g}, {flat.last_fifth:.4g}"
        yield f"| {title}: second fifth, last fifth | {_judged(medians, is_good=flat.is_flat)} |"


def _judged(text: str, *, is_good: bool) -> str:
    return text if is_good else f"**{text}**"


def _faults(findings: Findings) -> Iterator[str]:
    yield "### Results by fault"
    yield ""
    yield "| | requests | answers | errors | error events | left | lost |"
    yield "|---|---|---|---|---|---|---|"
    for fault, kinds in sorted(findings.kinds.items()):
        counts = [kinds.get(kind.value, 0) for kind in Kind if kind is not Kind.NOTHING]
        lost = sum(request.fault == fault for request in findings.lost)
        cells = [sum(kinds.values()), *(count or "" for count in counts)]
        yield f"| {fault} | {' | '.join(map(str, cells))} | {f'**{lost}**' if lost else 0} |"


def _problems(findings: Findings) -> Iterator[str]:
    items = [f"- {problem}" for problem in findings.problems]
    items += [
        f"- {request.number}, {request.fault}: `{request.problem}`" for request in findings.lost
    ]
    if items:
        yield "### Problems"
        yield ""
        yield from items[:_MOST_SHOWN]
        if len(items) > _MOST_SHOWN:
            yield f"- and {len(items) - _MOST_SHOWN} more"
