"""A short run in which processes are killed, and the page section with its results."""

from pathlib import Path

import msgspec
import pytest

from benchmarks import __main__ as command
from benchmarks.faults.flatness import Sample
from benchmarks.faults.kill import End, Kills, section
from benchmarks.load.results import Machine

CHILDREN = Path("/proc/thread-self/children")
NEEDS_CHILDREN = pytest.mark.skipif(not CHILDREN.exists(), reason="reads the ids of workers")
MARKS = "<!-- figures: kill -->\n\n<!-- end of figures -->\n"
# with this seed, the benchmark kills a worker first and then an engine
SEED = "5"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kill") / "reliability.md"
    file.write_text(MARKS, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def kills(page: Path, programs_are_forks: None) -> Kills:
    file = page.with_suffix(".json")
    arguments = ["--seconds", "3", "--pause", "1", "--clients", "8", "--seed", SEED]
    command.main(["kill", *arguments, "--output", str(file), "--page", str(page)])
    return msgspec.json.decode(file.read_bytes(), type=Kills)


@pytest.mark.deep
@NEEDS_CHILDREN
def test_killing_workers_and_engines_loses_no_request(kills: Kills, page: Path) -> None:
    assert (kills.losses, kills.problems) == ([], [])
    assert kills.workers
    assert kills.ends[End.ANSWER.value]
    assert section(kills) in page.read_text(encoding="utf-8")


def test_section_has_counts_growth_and_losses() -> None:
    kills = Kills("2026-01-02", Machine("A CPU", 2, "Linux", "3.11"), "command", seconds=10)
    kills.engines, kills.workers = 3, 2
    kills.samples += [Sample(second, 300.0 + second, 100) for second in range(10)]
    kills.losses.append("status 500: no reason")
    for end in (End.ANSWER, End.ANSWER, End.LOST):
        kills.note(end)
    text = section(kills)
    assert "| requests | 3 in 10 s |" in text
    assert "| killed | 3 engines, 2 workers |" in text
    assert "| right answers | 2 |" in text
    assert "| not begun, and lost | 1 |" in text
    assert "MB: second fifth, last fifth | 302.5, 308.5 |" in text
    assert text.endswith("\n\n- status 500: no reason\n")
