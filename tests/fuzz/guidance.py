"""Inputs that Atheris mutates guided by their coverage, in a separate process."""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.campaign import Finding, Judging, Tally, corpus_of
from tests.fuzz.targets import Target
from tests.fuzz.watch import Cost

SLOWNESS = 8.0  # the factor by which line tracing slows the code down
_SEEDS = 40  # seeds per target
_START_SECONDS = 300.0


class Report(msgspec.Struct):
    """The results of a target."""

    runs: int
    seconds: float
    bytes: int
    findings: dict[str, tuple[str, str]]  # kind -> error, and the file with the input


def report_of(tally: Tally) -> Report:
    findings = {
        kind: (finding.error, str(finding.file)) for kind, finding in tally.findings.items()
    }
    return Report(tally.runs, tally.cost.seconds, tally.cost.bytes, findings)


def is_possible() -> bool:
    return importlib.util.find_spec("atheris") is not None


def guide(targets: Sequence[Target], seconds: float, first_seed: int) -> dict[str, Tally]:
    """Fuzz targets by coverage for `seconds`, and return the results of each."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        _sow(targets, folder / "seeds", first_seed)
        command = [sys.executable, "-m", "tests.fuzz.guided", f"{seconds}", name, f"{first_seed}"]
        process = subprocess.run(
            [*command, *(target.name for target in targets)],
            capture_output=True,
            timeout=seconds + _START_SECONDS,
            check=False,
        )
        report = folder / "report"
        if report.exists():
            reports = msgspec.json.decode(report.read_bytes(), type=dict[str, Report])
            return {name: _tally(name, report) for name, report in reports.items()}
        return {"the process": _ended(targets, folder, process.stderr)}


def _tally(name: str, report: Report) -> Tally:
    findings = {
        kind: Finding(name, b"", error, Path(file))
        for kind, (error, file) in report.findings.items()
    }
    return Tally(report.runs, Cost(report.seconds, report.bytes), findings)


def _ended(targets: Sequence[Target], folder: Path, errors: bytes) -> Tally:
    """Report a process that did not finish: libFuzzer has stored the input."""
    tally = Tally()
    last = "\n".join(errors.decode("utf-8", "replace").splitlines()[-30:])
    artifacts = [artifact for artifact in folder.iterdir() if artifact.is_file()]
    for file in artifacts:
        data = file.read_bytes()
        target = targets[data[0] % len(targets)] if data else targets[0]
        Judging(target, tally=tally).keep(data[1:], "the process", last)
    if not artifacts:
        tally.findings["the process"] = Finding("the process", b"", last)
    return tally


def _sow(targets: Sequence[Target], folder: Path, first_seed: int) -> None:
    """Write the seeds: the corpus, and some inputs of Hypothesis."""
    folder.mkdir()
    for number, target in enumerate(targets):
        inputs = [file.read_bytes() for file in corpus_of(target)]
        for index, data in enumerate([*inputs, *_made(target, first_seed)]):
            (folder / f"{number:02}-{index:03}").write_bytes(bytes([number]) + data)


def _made(target: Target, first_seed: int) -> list[bytes]:
    made: list[bytes] = []

    @seed(first_seed)
    @settings(
        max_examples=_SEEDS,
        derandomize=False,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(target.inputs)
    def note(data: bytes) -> None:
        made.append(data)

    note()
    return made
