"""The table of real models, and the files that its figures come from."""

import argparse
from pathlib import Path

import pytest

from benchmarks.real import command
from benchmarks.real.arms import (
    TokenCounts,
    Workplace,
    launch_plan,
    read_counts,
    recorded_generations,
)
from benchmarks.real.judging import JudgedRun, Reply, TaskRun, Verdict
from benchmarks.real.table import ArmReport, markdown
from proxy.conversation import json

METRICS = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 174
llamacpp:prompt_tokens_cached_total 172
llamacpp:tokens_predicted_total 46
llamacpp:tokens_predicted_seconds_total 4.81
"""


def judged(number: int, verdict: Verdict, *replies: Reply) -> JudgedRun:
    run = TaskRun(number, 1, replies, (), 2.0)
    return JudgedRun(run, verdict, (), has_apology=False, has_answer=True)


RIGHT = judged(1, Verdict(), Reply("", 1, 2), Reply("Done.", 0, 1))
WRONG = judged(8, Verdict(needless=("send {}",), repeated=("send {}", "send {}")), Reply("Hi.", 0))


def test_the_table_sums_up() -> None:
    tokens = TokenCounts(read=1000, cached=3000, generated=200)
    report = ArmReport("tiny", "temper", [RIGHT, WRONG], ["chain", "none"], tokens, 4, 3)
    rows = dict(line.strip("|\n ").split(" | ", 1) for line in markdown([report]).splitlines()[2:])
    assert rows["right"] == "1 of 2"
    assert rows["right, several steps"] == "1 of 1"
    assert rows["right, one step"] == "0 of 0"
    assert rows["right, no tool"] == "0 of 1"
    assert rows["side effects executed twice or more"] == "2"
    assert rows["needless calls"] == "1"
    assert rows["client requests"] == "3"
    assert rows["generations per request"] == "1.33"
    assert rows["most copies of a call in a generation"] == "3"
    assert rows["prompt tokens from the cache"] == "3,000 (75%)"
    assert rows["seconds"] == "4"


def test_unknown_figure_is_a_dash() -> None:
    table = markdown([ArmReport("tiny", "forge", [RIGHT], ["chain"])])
    assert "| generations | - |" in table
    assert "| generations per request | - |" in table
    assert "| most copies of a call in a generation | - |" in table
    assert "| prompt tokens from the cache | 0 |" in table


def test_the_document_has_every_transcript() -> None:
    document = ArmReport("tiny", "direct", [WRONG], ["none"]).document()
    runs = document["runs"]
    assert isinstance(runs, list)
    assert isinstance(runs[0], dict)
    assert runs[0]["right"] is False
    assert runs[0]["verdict"] == "needless send {}; repeated send {}, send {}"
    assert json.parse(json.dump(document)) == json.parse(json.dump(document))


def test_tokens_are_counted_by_the_engine() -> None:
    counts = read_counts(METRICS)
    assert counts == TokenCounts(read=174, cached=172, generated=46)
    assert counts - TokenCounts(100, 100, 40) == TokenCounts(74, 72, 6)
    assert read_counts("") == TokenCounts()


def test_generations_are_read_from_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    first = {"generations": [[["text", "a"], ["finished", "stop"]], [["text", "b"]]]}
    second = {"generations": [[["text", "c"]]]}
    file.write_bytes(b"\n".join(json.dump(line) for line in (first, second)) + b"\n")  # type: ignore[arg-type]
    assert [pieces[0][1] for pieces in recorded_generations(file)] == ["a", "b", "c"]


def test_the_engine_has_one_slot_and_two_threads() -> None:
    line = launch_plan(Path("model.gguf")).command()
    assert line[line.index("-np") + 1] == "1"
    assert line[line.index("-c") + 1] == "8192"
    assert line[line.index("-t") + 1] == "2"
    assert "--jinja" in line


def test_an_arm_that_is_not_installed_says_so(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    assert workplace.missing("temper") == ""
    assert "benchmarks peers" in workplace.missing("forge")


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_tasks_are_named_by_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed("--model", "a.gguf").tasks == [*range(1, 25)]
    assert parsed("--model", "a.gguf", "--tasks", "1,5").tasks == [1, 5]
    for wrong in ("0", "25", "one"):
        with pytest.raises(SystemExit):
            parsed("--model", "a.gguf", "--tasks", wrong)
    assert "there are tasks 1 to 24" in capsys.readouterr().err


def test_a_missing_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = parsed("--model", "no-such-model.gguf")
    assert chosen.command(chosen) == 2
    assert "no-such-model.gguf" in capsys.readouterr().err
