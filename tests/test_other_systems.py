"""On a simulated other system, every module can be imported, and the pure parts work."""

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
    """The results by system, and the errors."""

    lost: dict[str, list[str]]
    hidden: dict[str, list[str]]
    errors: str


@pytest.fixture(scope="module")
def tried() -> Trial:
    ran = run("-m", "tests.other_systems", *SYSTEMS)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    lost, hidden = ({line["system"]: line[name] for line in lines} for name in ("lost", "hidden"))
    return Trial(lost, hidden, ran.stderr)


@pytest.mark.deep
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_can_be_imported(system: str, tried: Trial) -> None:
    assert tried.lost.get(system) == [], tried.errors


@pytest.mark.deep
def test_pure_modules_work_on_windows() -> None:
    folders = ("tests/unit/tools/test_run.py", "tests/unit/test_errors.py")
    ran = run(
        "-m", "pytest", "-p", "tests.other_systems", "-q", "-n", "0", *folders, system="win32"
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert " passed" in ran.stdout


@pytest.mark.deep
def test_modules_of_posix_are_hidden(tried: Trial) -> None:
    assert tried.hidden["win32"] == [*POSIX_MODULES]
