"""A run of the fault benchmark with one request for each fault in `QUICK`."""

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
    file = tmp_path_factory.mktemp("soak") / "reliability.md"
    file.write_text("<!-- figures: soak -->\n\n<!-- end of figures -->\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def findings(page: Path, programs_are_forks: None) -> Findings:
    file = page.with_suffix(".json")
    numbers = [str(number_of(fault)) for fault in QUICK]
    arguments = ["--seconds", "1", "--seed", str(SEED), "--rest", "0", "--date", "2026-01-02"]
    files = ["--output", str(file), "--page", str(page)]
    command.main(["faults", *arguments, *files, "--only", *numbers])
    return msgspec.json.decode(file.read_bytes(), type=Findings)


@pytest.mark.deep
def test_a_run_with_one_request_for_each_fault_loses_no_request(findings: Findings) -> None:
    assert findings.lost == []
    assert [problem for problem in findings.problems if "before," not in problem] == []
    assert (findings.requests, set(findings.kinds)) == (len(QUICK), set(QUICK))


@pytest.mark.deep
def test_each_fault_has_its_expected_result(findings: Findings) -> None:
    assert findings.kinds["good: text"] == {"answer": 1}
    assert findings.kinds["backend: down"] == {"error": 1}
    assert findings.kinds["client: leaves within a stream"] == {"client left": 1}
    assert findings.generations >= len(QUICK)


@pytest.mark.deep
def test_page_contains_the_findings(findings: Findings, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert f"| requests | {findings.requests} in" in text
    assert "| lost | 0 |" in text
    assert "| good: text | 1 | 1 |  |  |  | 0 |" in text
    assert "Run on 2026-01-02: " in text
