"""On simulated Windows and macOS, every module can be imported, and modules without I/O work."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.other_systems import POSIX_MODULES
from tests.test_repository import REPOSITORY

SYSTEMS = ("win32", "darwin")


def run(*arguments: str, system: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "TEMPER_TESTS_SYSTEM": system},
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class Trial:
    """For each system, the modules that could not be imported (`lost`) and the hidden modules."""

    lost: dict[str, list[str]]
    hidden: dict[str, list[str]]
    errors: str


@pytest.fixture(scope="module")
def trial() -> Trial:
    ran = run("-m", "tests.other_systems", *SYSTEMS)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    lost, hidden = ({line["system"]: line[name] for line in lines} for name in ("lost", "hidden"))
    return Trial(lost, hidden, ran.stderr)


@pytest.mark.deep
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_can_be_imported(system: str, trial: Trial) -> None:
    assert trial.lost.get(system) == [], trial.errors


@pytest.mark.deep
def test_modules_without_io_work_on_windows() -> None:
    folders = ("tests/unit/tools/test_run.py", "tests/unit/test_errors.py")
    ran = run(
        "-m", "pytest", "-p", "tests.other_systems", "-q", "-n", "0", *folders, system="win32"
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert " passed" in ran.stdout


@pytest.mark.deep
def test_posix_modules_are_hidden_on_windows(trial: Trial) -> None:
    assert trial.hidden["win32"] == [*POSIX_MODULES]
