"""Run 60 seeds of the simulation; `.ci/run` runs 200 seeds."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.planted import FAULTS

_ROOT = Path(__file__).parent.parent.parent


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation in a separate process, because it replaces the clocks of Python."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)


def test_60_seeds_pass_all_checks_and_every_kind_of_event_occurs() -> None:
    ended = simulate("--seeds", "60")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    heading, *rows, total = ended.stdout.splitlines()
    assert heading.split() == ["occurred", "times", "seeds"]
    assert total.startswith("60 seeds, ")
    assert rows
    assert [row for row in rows if row.split()[-1] == "0"] == []


def test_two_processes_with_the_same_seed_print_the_same_trace() -> None:
    first, again = simulate("--seed", "3"), simulate("--seed", "3")
    assert first.returncode == again.returncode == 0, first.stdout + first.stderr
    assert first.stdout == again.stdout
    assert first.stdout.startswith("trace ")


@pytest.mark.parametrize("name", FAULTS)
def test_the_code_that_a_planted_defect_replaces_exists_exactly_once(name: str) -> None:
    fault = FAULTS[name]
    assert (_ROOT / fault.file).read_text("utf-8").count(fault.old) == 1
