"""A whole run, of a few requests that end soon: its figures mean nothing."""

from itertools import count
from pathlib import Path

import msgspec
import pytest

from benchmarks import __main__ as command
from benchmarks.faults.findings import Findings
from benchmarks.faults.mixture import draw

SEED = 3
QUICK = (
    *("good: a call", "good: text", "good: an answer next to tools", "good: to a slow reader"),
    *("model: a call written as text", "model: a bad call, good after a retry"),
    *("model: a reply that its server cannot parse", "backend: down"),
    "backend: disconnects within a call",
    *("backend: refuses", "backend: loading", "backend: no HTTP", "client: a bad field"),
    *("client: leaves within a stream", "client: leaves before the first token"),
    "client: sends twice with one key",
)


def number_of(fault: str) -> int:
    return next(number for number in count() if draw(SEED, number)[0].name == fault)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("soak") / "soak.md"


@pytest.fixture(scope="module")
def found(page: Path, programs_are_forks: None) -> Findings:
    file = page.with_suffix(".json")
    numbers = [str(number_of(fault)) for fault in QUICK]
    arguments = ["--seconds", "1", "--seed", str(SEED), "--rest", "0", "--date", "2026-01-02"]
    files = ["--output", str(file), "--page", str(page)]
    command.main(["faults", *arguments, *files, "--only", *numbers])
    return msgspec.json.decode(file.read_bytes(), type=Findings)


def test_nothing_is_lost(found: Findings) -> None:
    assert found.lost == []
    assert [one for one in found.problems if "before," not in one] == []
    assert (found.requests, set(found.kinds)) == (len(QUICK), set(QUICK))


def test_each_fault_comes_to_the_end_that_is_right(found: Findings) -> None:
    assert found.kinds["good: text"] == {"answer": 1}
    assert found.kinds["backend: down"] == {"error": 1}
    assert found.kinds["client: leaves within a stream"] == {"client left": 1}
    assert found.generations >= len(QUICK)


def test_the_page_tells_what_was_found(found: Findings, page: Path) -> None:
    told = page.read_text(encoding="utf-8")
    assert f"| requests | {found.requests} in" in told
    assert "| lost | 0 |" in told
    assert "| good: text | 1 | 1 |  |  |  | 0 |" in told
    assert "Run on 2026-01-02: " in told
