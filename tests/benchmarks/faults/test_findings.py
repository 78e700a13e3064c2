"""The verdict on a run of the fault benchmark, and the section of the page about it."""

from benchmarks.faults.demands import Kind
from benchmarks.faults.findings import Findings, Lost, section
from benchmarks.faults.flatness import Sample
from benchmarks.load.results import Machine

STEADY = [Sample(2.0 * i, 100.0, 20) for i in range(50)]
GROWING = [Sample(2.0 * i, 100.0 + i, 20) for i in range(50)]
LEAKING = [Sample(2.0 * i, 100.0, 20 + i) for i in range(50)]
LOST = Lost(17, "good: text", "another answer")


def findings(
    *samples: Sample, lost: tuple[Lost, ...] = (), problems: tuple[str, ...] = ()
) -> Findings:
    measured = Findings("2026-01-02", Machine("A CPU", 2, "Linux", "3.11"), 1)
    measured.samples += samples
    measured.lost += lost
    measured.problems += problems
    measured.note("good: text", Kind.ANSWER)
    measured.note("good: text", Kind.ERROR)
    measured.note("backend: down", Kind.ERROR)
    return measured


def test_a_run_is_good_if_nothing_is_lost_and_nothing_grows() -> None:
    assert findings(*STEADY).is_good
    assert not findings(*STEADY, lost=(LOST,)).is_good
    assert not findings(*STEADY, problems=("not over: 1 requests",)).is_good
    assert not findings(*GROWING).is_good
    assert not findings(*LEAKING).is_good


def test_client_results_are_counted_by_fault() -> None:
    measured = findings(*STEADY)
    assert (measured.requests, measured.count(Kind.ERROR), measured.count(Kind.LEFT)) == (3, 2, 0)
    assert "| good: text | 2 | 1 | 1 |  |  | 0 |" in section(measured)


def test_section_of_a_good_run_lists_no_problems() -> None:
    text = section(findings(*STEADY))
    assert "| memory, MB: second fifth, last fifth | 100, 100 |" in text
    assert "### Problems" not in text
    assert "**" not in text


def test_problems_are_highlighted() -> None:
    text = section(findings(*GROWING, lost=(LOST,), problems=("not over: 1 requests",)))
    assert "| lost | **1** |" in text
    assert "| memory, MB: second fifth, last fifth | **114.5, 144.5** |" in text
    assert "- not over: 1 requests\n- 17, good: text: `another answer`\n" in text
    assert "| good: text | 2 | 1 | 1 |  |  | **1** |" in text
