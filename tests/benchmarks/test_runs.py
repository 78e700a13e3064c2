"""Very short runs of the load benchmark: they complete, but their figures mean nothing."""

import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.healthy.replies import KINDS, LONG
from benchmarks.healthy.tally import POLICIES, WAYS, counted_name, timed_name
from benchmarks.load import runs
from benchmarks.load.candidates import REPOSITORY
from benchmarks.load.peers import NotAvailable, python_of
from benchmarks.load.processes import started, usage
from benchmarks.load.results import Results, load, save, this_machine
from benchmarks.load.scenarios import Size

TINY = Size(
    seconds=0.05,
    streams=1,
    burst_tokens=50,
    slow_streams=3,
    slow_tokens=5,
    argument_tokens=50,
    healthy_replies=1,
    rest_seconds=0,
)


OTHER = f"temper@{REPOSITORY}"


def run(folder: Path, *scenarios: str) -> tuple[Results, list[str]]:
    lines: list[str] = []
    results = Results("2026-01-02", this_machine())
    candidates = ("direct", "temper", OTHER, "forge")
    plan = runs.Plan(scenarios, folder, candidates, rounds=1, size=TINY)
    runs.run(plan, results, lines.append)
    return results, lines


pytestmark = pytest.mark.usefixtures("programs_are_forks")


@pytest.fixture(scope="module")
def measured(
    programs_are_forks: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, list[str]]:
    return run(tmp_path_factory.mktemp("peers"), "call", "slow", "arguments", "start")


@pytest.mark.deep
def test_a_run_measures_the_backend_alone_and_through_temper(
    measured: tuple[Results, list[str]],
) -> None:
    results, _ = measured
    assert results.problems == {"call": {}, "slow": {}, "arguments": {}, "start": {}}
    assert results.candidates() == ["direct", "temper", OTHER]
    for scenario in ("call", "slow", "arguments"):
        assert results.figure(scenario, "temper", "errors") == 0
        assert results.figure(scenario, OTHER, "errors") == 0
    assert results.figure("start", OTHER, "ready_seconds") is not None
    if sys.platform == "linux":
        for figure in ("cpu_us_per_request", "cpu_us_per_request_alone"):
            assert results.figure("call", "temper", figure) is not None
    for candidate in ("temper", "direct"):
        median = results.figure("call", candidate, "p50")
        assert median is not None
        assert median > 0
    assert results.figure("slow", "temper", "delay_p99") is not None
    assert results.figure("arguments", "temper", "growth") is not None


@pytest.mark.deep
def test_a_candidate_whose_checkout_is_missing_is_skipped(tmp_path: Path) -> None:
    missing = f"temper@{tmp_path / 'none'}"
    results = Results("2026-01-02", this_machine())
    runs.run(runs.Plan(("start",), tmp_path, (missing,), rounds=1, size=TINY), results, print)
    assert "No such file" in results.absent[missing]


@pytest.mark.deep
def test_a_peer_that_is_not_installed_is_skipped(measured: tuple[Results, list[str]]) -> None:
    results, lines = measured
    reason = "not available here: not installed; run `python -m benchmarks peers`"
    assert results.absent == {"forge": reason}
    assert f"forge is {reason}" in lines


@pytest.mark.deep
def test_the_scenario_healthy_is_measured_for_each_kind_of_reply_and_policy(tmp_path: Path) -> None:
    results = Results("2026-01-02", this_machine())
    runs.run(runs.Plan(("healthy",), tmp_path, ("temper",), rounds=1, size=TINY), results, print)
    assert results.candidates() == ["temper"]
    for kind in KINDS:
        for way in WAYS:
            assert (
                results.figure("healthy", "temper", timed_name(kind, way, "total_p50")) is not None
            )
        for policy in POLICIES:
            assert results.figure("healthy", "temper", counted_name(policy, kind, "replies")) == 2
    # the kind LONG is a valid call, and a valid call stays unchanged under every policy
    for policy in POLICIES:
        assert results.figure("healthy", "temper", counted_name(policy, LONG, "changed")) == 0
    assert results.figure("healthy", "temper", counted_name("accept", "prose", "changed")) == 0
    assert results.figure("healthy", "temper", "prompts") == 0


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_peak_memory_of_a_candidate_is_measured(measured: tuple[Results, list[str]]) -> None:
    results, _ = measured
    peak = results.figure("slow", "temper", "peak_mb")
    assert peak is not None
    assert 10 < peak < 1000


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_usage_of_an_ended_process_group_is_zero() -> None:
    used = usage(2**22 + 1)
    assert used is not None
    assert (used.cpu_seconds, used.memory_mb, used.descriptors) == (0, 0, 0)


def test_started_programs_write_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    log = tmp_path / "log"
    command = (sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)")
    with started(command, folder=tmp_path, environment={}, log=log) as process:
        process.wait(30)
    assert log.read_text("utf-8").strip() == "False"


def test_a_missing_peer_names_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="python -m benchmarks peers"):
        python_of(tmp_path, "litellm")


def test_the_command_writes_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.json"
    arguments = ["run", "prose-accept", "--quick", "--only", "direct", "--output", str(file)]
    assert command.main([*arguments, "--date", "2026-01-02"]) == 0
    assert "Measured on 2026-01-02" in capsys.readouterr().out
    assert load(file).is_quick
    assert command.main(["table", str(file)]) == 0
    assert "| the same: total, ms |" in capsys.readouterr().out


def test_a_missing_results_file_is_named_in_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["table", str(tmp_path / "none.json")]) == 1
    assert "none.json cannot be read" in capsys.readouterr().err


def test_a_page_without_marks_is_named_in_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file = tmp_path / "page.md", tmp_path / "found.json"
    page.write_text("Nothing.")
    save(Results("2026-01-02", this_machine()), file)
    assert command.main(["table", str(file), "--into", str(page)]) == 1
    assert "page.md cannot be updated: there is no mark" in capsys.readouterr().err


def test_an_unknown_candidate_is_named_in_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["run", "start", "--only", "direct@elsewhere"])
    assert "unknown candidate: direct@elsewhere" in capsys.readouterr().err


def test_an_unknown_scenario_is_named_in_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "dance"]) == 2
    assert "unknown scenario: dance; known: call" in capsys.readouterr().err
