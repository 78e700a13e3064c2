"""Runs each fuzz target briefly, and all stored findings; tests that new findings are reported.

`python -m tests.fuzz` searches for as long as one likes.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.mcp.server import ServerTimeouts
from tests.examples import examples
from tests.fuzz import __main__ as command
from tests.fuzz import campaign, watch
from tests.fuzz.campaign import CORPUS, Judging, corpus_of, folder_of, search
from tests.fuzz.catalogue import targets
from tests.fuzz.targets import Target, close, run
from tests.fuzz.tool_servers import GOOD_SCRIPT, judge_http, judge_pipe
from tests.timeouts import TIMEOUT_SECONDS

TARGETS, _ = targets()
KEPT = [(target, file) for target in TARGETS for file in corpus_of(target)]
FEW = 20
NO_TIMEOUTS = ServerTimeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS)


@pytest.fixture(autouse=True, scope="module")
def loop() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_every_fuzz_target_runs_without_a_finding(target: Target) -> None:
    @settings(max_examples=examples(FEW), deadline=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def judge(data: bytes) -> None:
        target.judge(data)

    judge()


@pytest.mark.parametrize(
    ("target", "file"), KEPT, ids=[f"{target.name}-{file.name}" for target, file in KEPT]
)
def test_inputs_of_earlier_findings_pass(target: Target, file: Path) -> None:
    target.judge(file.read_bytes())


def test_the_corpus_is_small_and_each_of_its_folders_belongs_to_a_target() -> None:
    known = {folder_of(target).name for target in TARGETS} | {"valkey-servers"}
    assert {folder.name for folder in CORPUS.iterdir()} <= known
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < 64 * 1024


def fails(data: bytes) -> None:
    assert b"x" not in data


def swells(data: bytes) -> None:
    del data
    bytearray(4 * watch.MOST_BYTES)  # enough even if the process frees memory meanwhile


def does_nothing(data: bytes) -> None:
    del data


@pytest.mark.parametrize(("judge", "kind"), [(fails, "AssertionError"), (swells, "Swelled")])
def test_failure_is_reported_and_its_input_stored(
    judge: Callable[[bytes], None], kind: str, tmp_path: Path
) -> None:
    judging = Judging(Target("planted", st.binary(), judge), tmp_path)
    judged = judging.judge(b"axb")
    assert judged is not None
    assert judged.startswith(kind)
    (finding,) = judging.tally.findings.values()
    assert finding.file is not None
    assert finding.file.read_bytes() == b"axb"
    assert kind in str(finding)
    assert f"--again {finding.file}" in str(finding)


def test_an_input_that_takes_too_long_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOST_SECONDS", 0.001)

    def spins(data: bytes) -> None:
        while data:  # until the watch stops it
            pass

    judging = Judging(Target("planted", st.binary(), spins), tmp_path)
    assert (judging.judge(b"a") or "").startswith("Stalled")
    assert judging.tally.cost.seconds > 0.001


def test_hanging_input_is_reported_and_stored(tmp_path: Path) -> None:
    def waits(_: bytes) -> None:
        run(asyncio.Event().wait())

    judging = Judging(Target("planted", st.binary(), waits), tmp_path, slowness=0.002)
    assert (judging.judge(b"a") or "").startswith("Stalled")
    assert [file.read_bytes() for file in (tmp_path / "planted").iterdir()] == [b"a"]


def test_only_the_smallest_input_of_equal_failures_is_stored(tmp_path: Path) -> None:
    judging = Judging(Target("planted", st.binary(), fails), tmp_path)
    for data in (b"axb", b"xb", b"axbc"):
        judging.judge(data)
    (file,) = (tmp_path / "planted").iterdir()
    assert file.read_bytes() == b"xb"
    assert judging.tally.runs == 3


def test_hypothesis_reduces_a_failing_input_to_the_smallest(tmp_path: Path) -> None:
    inputs = st.text("xyz").map(str.encode)
    judging = Judging(Target("planted", inputs, fails), tmp_path)
    search(judging, 0.5, 1)
    (finding,) = judging.tally.findings.values()
    assert finding.data == b"x"


@pytest.mark.parametrize(("judge", "status"), [(fails, 1), (does_nothing, 0)])
def test_command_reports_findings_and_sets_the_exit_status(
    judge: Callable[[bytes], None],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    planted = Target("planted", st.just(b"x"), judge, is_guided=False)
    monkeypatch.setattr(campaign, "CORPUS", tmp_path)
    monkeypatch.setattr(command, "targets", lambda: ([planted], ["elsewhere: left out"]))
    assert command.main(["--minutes", "0.02", "--seed", "1"]) == status
    output = capsys.readouterr().out
    assert "elsewhere: left out" in output
    assert ("again: python -m tests.fuzz --again" in output) == bool(status)
    assert output.splitlines()[-1] == ("0 passed, 1 failed" if status else "1 passed, 0 failed")
    kept = [*tmp_path.rglob("planted/*")]
    assert len(kept) == status
    assert not kept or command.main(["--again", str(kept[0])]) == 1


@pytest.mark.parametrize("transport", ["pipe", "http", "events"])
def test_the_seed_script_of_a_tool_server_gives_a_result(transport: str) -> None:
    if transport == "pipe":
        assert judge_pipe(GOOD_SCRIPT, NO_TIMEOUTS).startswith("done")
    else:
        kind = bytes([["http", "events"].index(transport)])
        assert judge_http(kind + GOOD_SCRIPT, NO_TIMEOUTS).startswith("done")
