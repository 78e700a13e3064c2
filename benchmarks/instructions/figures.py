"""The table of instruction counts for each build of Python, and the comparison with it."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

# name of a figure -> instructions
Counts: TypeAlias = Mapping[str, int]

# two counts of the same code differ by far less than a percent
MOST_GROWTH = 0.03

_HEAD = """\
# Instructions by build of Python, with the packages of constraints.txt. Renew the table with
# `python -m benchmarks instructions --write`, in the commit that changes what it counts.
"""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)


def read(text: str) -> dict[str, Counts]:
    """Read a table: build of Python -> counts; raises ValueError."""
    table: dict[str, Counts] = {}
    for build, counts in tomllib.loads(text).items():
        if not isinstance(counts, dict) or not all(
            isinstance(count, int) for count in counts.values()
        ):
            raise ValueError(f"the figures of {build} must be integers")
        table[build] = counts
    return table


def write(table: Mapping[str, Counts]) -> str:
    return _HEAD + "".join(
        f'\n["{build}"]\n' + "".join(f"{name} = {count:_}\n" for name, count in counts.items())
        for build, counts in sorted(table.items())
    )


def compare(expected: Counts, counts: Counts) -> Iterator[tuple[str, float]]:
    """Yield each figure that both tables have, with its growth; 0.03 is three percent more."""
    for name, count in counts.items():
        if name in expected:
            yield name, (count - expected[name]) / expected[name]


def pins(constraints: str) -> dict[str, str]:
    """Read a constraints file: package -> version."""
    return dict(_PIN.findall(constraints))
