"""Runs the inputs of a target; counts runs, findings, and the highest cost."""

import contextlib
import hashlib
import re
import time
import traceback
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky

from tests.fuzz.targets import Target
from tests.fuzz.watch import MEGABYTE, Cost, Stalled, watching

CORPUS = Path(__file__).with_name("corpus")
_EXAMPLES = 200  # inputs of a round; the next round has another seed
_SHRINKING_SECONDS = 20.0
_SHOWN = 2_048  # bytes of an input to print, in case its file is lost with the machine


@dataclass
class Finding:
    """A failure: the smallest input that leads to it, and its location."""

    target: str
    data: bytes
    error: str
    file: Path | None = None

    def __str__(self) -> str:
        return f"{self.target}: {self.error.strip()}\n    {self._again}"

    @property
    def _again(self) -> str:
        if self.file is None:
            return "no input was kept"
        file = (
            self.file.relative_to(Path.cwd()) if self.file.is_relative_to(Path.cwd()) else self.file
        )
        command = f"again: python -m tests.fuzz --again {file}"
        data = self.file.read_bytes()
        return (
            command
            if len(data) > _SHOWN
            else f"{command}\n    in base64: {b64encode(data).decode()}"
        )


@dataclass
class Tally:
    """The results of a target."""

    runs: int = 0
    cost: Cost = field(default_factory=Cost)
    findings: dict[str, Finding] = field(default_factory=dict)

    def line(self, name: str) -> str:
        """Return the results as a line in the columns of `HEADER`."""
        memory = f"{self.cost.bytes / MEGABYTE:.0f} MB"
        worst = f"{self.cost.seconds:.2f} s"
        return f"{name:<24}{self.runs:>9,}{len(self.findings):>10}{worst:>12}{memory:>13}"


HEADER = f"{'target':<24}{'runs':>9}{'findings':>10}{'worst step':>12}{'peak memory':>13}"


def folder_of(target: Target, corpus: Path | None = None) -> Path:
    return (corpus or CORPUS) / re.sub(r"\W+", "-", target.name)


def corpus_of(target: Target) -> list[Path]:
    """List the stored inputs of a target."""
    folder = folder_of(target)
    return sorted(folder.iterdir()) if folder.is_dir() else []


@dataclass
class Judging:
    """Judges the inputs of one target; stores the smallest input of each failure in `corpus`.

    The code of the targets runs `slowness` times slower than usual.
    """

    target: Target
    corpus: Path = field(default_factory=lambda: CORPUS)
    slowness: float = 1.0
    tally: Tally = field(default_factory=Tally)

    def judge(self, data: bytes) -> str | None:
        """Judge one input; return the kind of the finding, or None."""
        self.tally.runs += 1
        cost = Cost()
        try:
            self._watch(data, cost)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            kind, trace = _kind(error), "".join(traceback.format_exception(error, limit=-4))
            self.keep(data, kind, trace)
            return kind
        finally:
            self.tally.cost.add(cost)
        return None

    def _watch(self, data: bytes, cost: Cost) -> None:
        """Judge an input; if it was slow, judge it up to two more times.

        A first run may import modules, and a busy machine makes even processor time longer: inputs
        of two bytes took 1.2 s next to six test runs, and no time when they were repeated.
        """
        for is_last in (False, False, True):
            try:
                with watching(cost, len(data), slowness=self.slowness):
                    self.target.judge(data)
            except Stalled:
                if is_last:
                    raise
            else:
                return

    def keep(self, data: bytes, kind: str, error: str) -> None:
        """Store the input of a finding, unless a smaller input with the same finding is stored."""
        known = self.tally.findings.get(kind)
        if known is not None and len(known.data) <= len(data):
            return
        folder = folder_of(self.target, self.corpus)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
        file.write_bytes(data)
        if known is not None and known.file is not None and known.file != file:
            known.file.unlink(missing_ok=True)
        self.tally.findings[kind] = Finding(self.target.name, data, error, file)


def _kind(error: Exception) -> str:
    """Return the name and location of an error, so that each is reported once."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} {frame}"


def search(judging: Judging, seconds: float, first_seed: int) -> None:
    """Let Hypothesis generate inputs for `seconds`, with another seed in each round."""
    until = time.monotonic() + seconds
    number = first_seed
    while time.monotonic() < until:
        _round(judging, until, number)
        number += 1


class _FoundError(Exception):
    """Makes Hypothesis search for a smaller input."""


class _Over(BaseException):
    """Ends a round at once: Hypothesis catches only subclasses of `Exception`, so not this."""


def _round(judging: Judging, until: float, number: int) -> None:
    known = set(judging.tally.findings)
    found_at = 0.0

    @seed(number)
    @settings(
        max_examples=_EXAMPLES,
        derandomize=False,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(judging.target.inputs)
    def judge(data: bytes) -> None:
        nonlocal found_at
        now = time.monotonic()
        if now > (found_at + _SHRINKING_SECONDS if found_at else until):
            raise _Over
        kind = judging.judge(data)
        if kind is not None and kind not in known:
            found_at = found_at or now
            raise _FoundError(kind)

    with contextlib.suppress(_FoundError, _Over, Flaky, ExceptionGroup):
        judge()
