"""`python -m benchmarks instructions`: counts, and checks or writes the table of figures."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.instructions import figures
from benchmarks.instructions.counting import FIGURES, Proxy, count
from benchmarks.load.candidates import REPOSITORY
from benchmarks.load.peers import NotAvailable

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
TABLE = Path(__file__).with_name("figures.toml")
_SKIPPED, _GROWN, _NOT_COMPARABLE = 0, 1, 2  # exit codes

# Runs in the measured interpreter, which need not be the one that runs this command.
_LOOK = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
kind = f"{platform.python_version()}, {platform.machine()}, {platform.python_compiler()}"
print(json.dumps({"build": kind, "packages": {name: found(name) for name in sys.argv[1:]}}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A build of Python, and the versions of its packages."""

    build: str
    packages: dict[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--check", action="store_true", help="fail if a figure grew by over 3 %%")
    kind.add_argument("--write", action="store_true", help="update the table of figures")
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        help="the Python interpreter that runs Temper",
    )
    parser.add_argument(
        "--temper", type=Path, default=REPOSITORY, help="the checkout of Temper to count"
    )
    parser.add_argument("--keep", type=Path, help="keep the files of callgrind in this folder")
    parser.set_defaults(command=run)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    python: Path = chosen.python.absolute()
    pins = figures.pins(CONSTRAINTS.read_text("utf-8"))
    interpreter = look_at(python, pins)
    differing = [
        f"{name} {version}, not {pins[name]}"
        for name, version in interpreter.packages.items()
        if version != pins[name]
    ]
    if differing:
        _print_line(f"not the packages of {CONSTRAINTS.name}: {'; '.join(differing)}")
        if chosen.check or chosen.write:
            return _NOT_COMPARABLE
    table = figures.read(TABLE.read_text("utf-8"))
    if chosen.check and interpreter.build not in table:
        _print_line(f"skipped: no figures for Python {interpreter.build}")
        return _SKIPPED
    try:
        with _folder(chosen.keep) as folder:
            counts = count(Proxy(python, chosen.temper.resolve()), folder, _print_line)
    except NotAvailable as problem:
        _print_line(str(problem))
        return _NOT_COMPARABLE
    if chosen.write:
        TABLE.write_text(figures.write({**table, interpreter.build: counts}), "utf-8")
        return 0
    return report(table.get(interpreter.build, {}), counts, _print_line) if chosen.check else 0


def report(
    expected: figures.Counts, counts: figures.Counts, print_line: Callable[[str], None]
) -> int:
    """Print the changed figures; returns the exit code."""
    grown = 0
    for name, share in figures.compare(expected, counts):
        print_line(f"{FIGURES[name]}: {share:+.1%} of the table's {expected[name]:,}")
        grown += share > figures.MOST_GROWTH
    if grown:
        print_line("a figure grew by over 3 %: reduce the cost, or update the table with --write")
    return _GROWN if grown else 0


def look_at(python: Path, packages: Iterable[str]) -> Interpreter:
    """Return an interpreter's build, and the versions of these packages in it."""
    command = (str(python), "-c", _LOOK, *packages)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603
    return msgspec.json.decode(output, type=Interpreter)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
