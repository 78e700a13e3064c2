"""A few seeds of the simulation; `.ci/run` runs 200."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.planted import FAULTS

_ROOT = Path(__file__).parent.parent.parent


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in a process, because the simulation replaces the clocks of its process."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)


def test_every_request_of_a_seed_ends_once_and_everything_occurs() -> None:
    ended = simulate("--seeds", "60")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    heading, *rows, total = ended.stdout.splitlines()
    assert heading.split() == ["occurred", "times", "seeds"]
    assert total.startswith("60 seeds, ")
    assert rows
    assert [row for row in rows if row.split()[-1] == "0"] == []


def test_a_seed_has_the_same_trace_in_every_process() -> None:
    first, again = simulate("--seed", "3"), simulate("--seed", "3")
    assert first.returncode == again.returncode == 0, first.stdout + first.stderr
    assert first.stdout == again.stdout
    assert first.stdout.startswith("trace ")


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_match_the_code(name: str) -> None:
    fault = FAULTS[name]
    assert (_ROOT / fault.file).read_text("utf-8").count(fault.old) == 1
