"""What a run has found, as it is kept in a file, and the page that tells of it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.faults.demands import Kind
from benchmarks.faults.flatness import Flatness, Sample, of_descriptors, of_memory
from benchmarks.load.figures import percentile
from benchmarks.load.results import Machine

_MOST_SHOWN = 20


class Lost(msgspec.Struct, frozen=True):
    """A request that was lost, and why."""

    number: int
    fault: str
    problem: str


class Findings(msgspec.Struct):
    """Everything about one run.

    `kinds` holds fault -> kind of what its client got -> how many. `outlived` are the seconds by
    which generations outlived their clients' interest. Descriptors `at_rest` are those before the
    run and after it. `problems` are those of the whole run.
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
        """Count a request that is over."""
        self.requests += 1
        found = self.kinds.setdefault(fault, {})
        found[kind.value] = found.get(kind.value, 0) + 1

    def count(self, kind: Kind) -> int:
        """Tell how many clients got this."""
        return sum(found.get(kind.value, 0) for found in self.kinds.values())

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost and nothing grew."""
        grown = [one for one in (of_memory(self.samples), of_descriptors(self.samples)) if one]
        return not self.lost and not self.problems and all(one.is_flat for one in grown)


def save(findings: Findings, file: Path) -> None:
    """Write findings as JSON."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(findings)) + b"\n")


def page(findings: Findings) -> str:
    """Write everything that a reader needs to judge the run."""
    parts = (_heading, _result, _faults, _problems)
    return "\n\n".join("\n".join(part(findings)) for part in parts if [*part(findings)]) + "\n"


def _heading(findings: Findings) -> Iterator[str]:
    yield "# Soak test with faults"
    yield ""
    yield _INTRODUCTION
    yield ""
    yield f"    {findings.command} --page docs/soak.md"
    yield ""
    settings = "Temper's settings that differ from the defaults:"
    yield f"Run on {findings.date}: {findings.machine}. {settings}"
    yield ""
    yield from (f"    {line}".rstrip() for line in findings.settings.splitlines())


_INTRODUCTION = """\
`temper serve` runs in one process, a mock backend in another. The backend implements the API of
llama-server and produces a fault for each request. The fault depends on a seed and the request's
number, so client and backend agree on it, and any request can be repeated (`--only NUMBER`). The
clients stream or not, offer tools or not, disconnect, read slowly, and send invalid requests.

A request counts as lost unless its client receives a correct answer or a permitted error. A correct
answer has the text that the model wrote and exactly the calls that it made, with their arguments. A
permitted error has OpenAI's format and the status that the fault requires; in a stream that has
begun, it is an error event. Losses are: a hang, an end without `[DONE]` or error, a call that the
model did not make, a 500, a superfluous generation, and a generation that continues for 2 s after
its client has disconnected. At the end, neither Temper's metrics nor the backend's records may have
an open request, Temper must have counted all requests, and its log must not contain a traceback.

Memory counts as flat if its median in the last fifth of the run is at most 4 MB above that of the
second fifth, and descriptors with a limit of 20; the first fifth is the warm-up. A leak of 0.6 kB
per request would be detected. A few more descriptors only mean that more requests are running; at
rest, there must not be more than before the run. `MALLOC_TRIM_THRESHOLD_=131072` makes glibc return
free memory; otherwise it retains up to 64 MB after each reply of 32 MB. This command runs the test
and writes this page:"""


def _result(findings: Findings) -> Iterator[str]:
    yield "## Result"
    yield ""
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
        yield f"| longest generation after a disconnect | {last * 1000:.0f} ms |"
    yield from _flat("memory, MB", of_memory(findings.samples))
    yield from _flat("descriptors", of_descriptors(findings.samples))
    if findings.at_rest is not None:
        before, after = findings.at_rest
        told = _judged(f"{before}, {after}", is_good=after <= before)
        yield f"| descriptors at rest, before and after | {told} |"
    if findings.samples:
        most = max(one.memory_mb for one in findings.samples)
        yield f"| peak memory, MB | {most:.0f} |"
    yield f"| CPU time, s | {findings.cpu_seconds:.0f} |"


_KINDS = {
    Kind.ANSWER: "correct answers",
    Kind.ERROR: "permitted errors",
    Kind.ERROR_EVENT: "permitted error events",
    Kind.LEFT: "disconnected clients",
}


def _flat(what: str, found: Flatness | None) -> Iterator[str]:
    if found is not None:
        told = _judged(f"{found.early:.4g}, {found.late:.4g}", is_good=found.is_flat)
        yield f"| {what}: second fifth, last fifth | {told} |"


def _judged(told: str, *, is_good: bool) -> str:
    return told if is_good else f"**{told}**"


def _faults(findings: Findings) -> Iterator[str]:
    yield "## Results by fault"
    yield ""
    yield "| | requests | answers | errors | error events | disconnected | lost |"
    yield "|---|---|---|---|---|---|---|"
    for fault, kinds in sorted(findings.kinds.items()):
        counts = [kinds.get(kind.value, 0) for kind in Kind if kind is not Kind.NOTHING]
        lost = sum(one.fault == fault for one in findings.lost)
        cells = [sum(kinds.values()), *(count or "" for count in counts)]
        yield f"| {fault} | {' | '.join(map(str, cells))} | {f'**{lost}**' if lost else 0} |"


def _problems(findings: Findings) -> Iterator[str]:
    told = [f"- {problem}" for problem in findings.problems]
    told += [f"- {one.number}, {one.fault}: `{one.problem}`" for one in findings.lost]
    if told:
        yield "## Problems"
        yield ""
        yield from told[:_MOST_SHOWN]
        if len(told) > _MOST_SHOWN:
            yield f"- and {len(told) - _MOST_SHOWN} more"
