"""Temper on a system that this one is not: nothing of POSIX alone at import, and the pure parts."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_can_be_imported(system: str) -> None:
    ran = run("-m", "tests.other_systems", system)
    assert ran.returncode == 0, ran.stderr


def test_what_is_pure_works_on_windows() -> None:
    folders = ("tests/unit/tool_rounds", "tests/unit/inference", "tests/unit/test_errors.py")
    ran = run(
        "-m", "pytest", "-p", "tests.other_systems", "-q", "-n", "0", *folders, system="win32"
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert " passed" in ran.stdout


def test_modules_of_posix_are_hidden() -> None:
    program = (
        "import importlib, tests.other_systems as here\n"
        "here.become('win32')\n"
        "for name in here.POSIX_MODULES:\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError: print(name)\n"
    )
    assert run("-c", program).stdout.split() == [*POSIX_MODULES]
