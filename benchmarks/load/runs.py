"""Runs scenarios. Each round measures every candidate once, one after another.

If the load of the machine changes between rounds, the change therefore affects all candidates.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.load import peers, subjects
from benchmarks.load.candidates import CANDIDATES, DIRECT, REPOSITORY, TEMPER, Situation, kind_of
from benchmarks.load.client import Target
from benchmarks.load.peers import NotAvailable
from benchmarks.load.processes import free_port, pinned
from benchmarks.load.results import Results
from benchmarks.load.scenarios import FULL, SCENARIOS, Measured, Scenario, Size
from benchmarks.load.subjects import Subject

PrintLine: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The scenarios, candidates, rounds, sizes and folders of a run."""

    scenarios: Sequence[str]
    peers: Path
    candidates: Sequence[str] = CANDIDATES
    rounds: int = 5
    size: Size = FULL
    temper: Path = REPOSITORY


def run(plan: Plan, results: Results, print_line: PrintLine) -> None:
    """Measure all scenarios and add them to `results`; unavailable proxies are skipped."""
    for name in plan.candidates:
        is_needed = any(SCENARIOS[scenario].concerns(name) for scenario in plan.scenarios)
        if is_needed and kind_of(name) not in (DIRECT, TEMPER):
            with _skipping(name, results, print_line):
                results.versions[name] = peers.version(plan.peers, name)
    # the load generator and the mock backend share the first core; the candidate runs on the second
    with pinned(0):
        for name in plan.scenarios:
            print_line(f"{name}: {SCENARIOS[name].title}")
            _run_scenario(name, plan, results, print_line)


def _run_scenario(name: str, plan: Plan, results: Results, print_line: PrintLine) -> None:
    scenario = SCENARIOS[name]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(subjects.mock_backend(folder))
        scenario_run = _ScenarioRun(plan, scenario, url, folder, results, print_line)
        rounds = results.rounds.setdefault(name, {})
        problems = results.problems.setdefault(name, {})
        for candidate, measured in scenario_run.measurements():
            rounds.setdefault(candidate, []).append(measured.figures)
            if measured.problems:
                problems.setdefault(candidate, []).extend(measured.problems)


@contextmanager
def _skipping(name: str, results: Results, print_line: PrintLine) -> Generator[None, None, None]:
    """Record the reason if a candidate is not available, and continue."""
    try:
        yield
    except NotAvailable as problem:
        results.absent[name] = f"not available here: {problem}"
        print_line(f"{name} is {results.absent[name]}")


@dataclass(frozen=True, slots=True)
class _ScenarioRun:
    """A scenario with a running backend."""

    plan: Plan
    scenario: Scenario
    backend_url: str
    folder: Path
    results: Results
    print_line: PrintLine

    def measurements(self) -> Generator[tuple[str, Measured], None, None]:
        """Yield the measurements, candidate by candidate in each round."""
        if self.scenario.is_cold:
            for _ in range(self.plan.rounds):
                for name in self._names():
                    with self._started([name]) as started:
                        yield from self._round(started)
            return
        with self._started(self._names()) as started:
            time.sleep(self.plan.size.rest_seconds)
            for _ in range(1 if self.scenario.is_single else self.plan.rounds):
                yield from self._round(started)

    def _names(self) -> list[str]:
        known = (name for name in self.plan.candidates if name not in self.results.absent)
        return [name for name in known if self.scenario.concerns(name)]

    def _round(self, started: dict[str, Subject]) -> Generator[tuple[str, Measured], None, None]:
        for name, subject in started.items():
            measured = self.scenario.run(subject, self.plan.size)
            figures = measured.figures.items()
            listed = ", ".join(f"{key} {value:.4g}" for key, value in figures if ":" not in key)
            self.print_line(f"  {name:9} {listed}")
            yield name, measured

    @contextmanager
    def _started(self, names: Sequence[str]) -> Generator[dict[str, Subject], None, None]:
        """Start candidates; a candidate that does not start is skipped in all later rounds."""
        with contextlib.ExitStack() as stack:
            started: dict[str, Subject] = {}
            for name in names:
                with _skipping(name, self.results, self.print_line):
                    started[name] = self._start(name, stack)
            yield started

    def _start(self, name: str, stack: contextlib.ExitStack) -> Subject:
        if name == DIRECT:
            return Subject(Target(self.backend_url))
        plan = self.plan
        situation = Situation(
            self.backend_url, free_port(), self.scenario.prose, self.folder, plan.peers, plan.temper
        )
        return stack.enter_context(subjects.running(name, situation))
