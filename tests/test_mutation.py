import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import TARGETS

REPOSITORY = Path(__file__).parents[1]
CODE = """
UNITS = ("c", "f")


def is_warm(degrees: int, unit: str) -> bool:
    return unit in UNITS and degrees > 20
"""
TESTS = """
from weather import is_warm


def test_warm_is_more_than_twenty_degrees() -> None:
    assert is_warm(21, "c")
    assert not is_warm(20, "c")
    assert not is_warm(21, "k")
"""


@pytest.mark.deep
def test_a_mutant_that_no_test_notices_survives_and_others_are_killed(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "test_weather.py").write_text(TESTS, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "--target", "weather.py", "test_weather.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(tmp_path)))},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    *survivors, count = re.split(r"\n(?=\w)", run.stdout.strip())
    assert sorted(survivors) == [
        "weather.py:2: UNITS\n-'f'\n+'mutant'",
        "weather.py:2: UNITS\n-('c', 'f')\n+('c',)",
    ]
    assert count == "7 mutants: 2 survivors, 0 equivalent"
    assert run.returncode == 1


def test_each_function_listed_for_mutation_exists() -> None:
    for file, names in TARGETS.items():
        source = (REPOSITORY / file).read_text(encoding="utf-8")
        for name in names:
            owner, _, member = name.rpartition(".")
            assert not owner or f"class {owner}" in source
            assert re.search(rf"^(?: {{4}})?(?:async )?(?:def |){member}\b", source, re.MULTILINE)
