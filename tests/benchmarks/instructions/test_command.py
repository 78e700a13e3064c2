"""The command `benchmarks instructions`, which compares counted instructions with a table."""

import sys
from pathlib import Path

import pytest

from benchmarks.instructions import command, counting, figures
from benchmarks.instructions.counting import FIGURES, Proxy, count
from benchmarks.load.peers import NotAvailable

TABLE = dict.fromkeys(FIGURES, 1000)


def report(figures: dict[str, int]) -> tuple[int, list[str]]:
    output: list[str] = []
    return command.report(TABLE, figures, output.append), output


def test_if_instructions_grow_by_three_percent_the_command_exits_with_0() -> None:
    code, output = report({"start": 1000, "calls": 1030, "tokens": 500})
    assert code == 0
    assert output[1:] == [
        "200 calls, not streamed: +3.0% of the table's 1,000",
        "a stream of 200 tokens: -50.0% of the table's 1,000",
    ]


def test_if_instructions_grow_by_more_than_three_percent_the_command_exits_with_1() -> None:
    code, output = report({"start": 1000, "calls": 1031, "tokens": 1000})
    assert code == 1
    assert "--write" in output[-1]


def test_every_row_of_the_stored_table_has_every_count() -> None:
    table = figures.read(command.TABLE.read_text("utf-8"))
    assert table
    assert all(counts.keys() == FIGURES.keys() for counts in table.values())


def test_every_library_of_temper_is_pinned() -> None:
    pins = figures.pins(command.CONSTRAINTS.read_text("utf-8"))
    assert {"fastapi", "pydantic", "uvicorn", "uvloop"} <= pins.keys()


def test_an_interpreter_is_described_by_its_build_and_package_versions() -> None:
    interpreter = command.look_at(Path(sys.executable), ["pytest", "no-such-package"])
    assert interpreter.build.startswith("{}.{}.{}, ".format(*sys.version_info[:3]))
    assert interpreter.packages == {"pytest": pytest.__version__, "no-such-package": "none"}


def test_without_valgrind_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotAvailable, match="valgrind is not on PATH"):
        count(Proxy(Path(sys.executable), tmp_path), tmp_path, print)


def test_the_total_is_read_only_from_a_complete_dump() -> None:
    assert counting.total_in(b"fn=(1) main\n1 7\n\ntotals: 1234\n") == 1234
    assert counting.total_in(b"summary: 1234\nfn=(1) main\n1 7\n") is None


def test_a_process_counts_as_running_while_any_of_its_threads_runs(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert counting.is_running(tmp_path)
    (tmp_path / "7" / "stat").write_text("7 (a) thread) S 1 2\n", "utf-8")
    assert not counting.is_running(tmp_path)
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "stat").write_text("8 (python) R 1 2\n", "utf-8")
    assert counting.is_running(tmp_path)
