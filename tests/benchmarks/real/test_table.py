"""The tables of real models, and the files with their figures."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.real import command
from benchmarks.real.arms import ArmStarter, OpenArm, launch_plan, read_counts
from benchmarks.real.judging import OUT_OF_TIME, MadeCall, Reply, TaskRun
from benchmarks.real.records import Record, Records, TokenCounts
from benchmarks.real.relay import Relay
from benchmarks.real.table import markdown
from benchmarks.real.tasks import TASKS
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.loop import ModelTarget

METRICS = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 174
llamacpp:prompt_tokens_cached_total 172
llamacpp:tokens_predicted_total 46
llamacpp:tokens_predicted_seconds_total 4.81
"""
STATUS, WELCOME = 2, 8  # numbers of tasks: STATUS needs one call, WELCOME none
ORDER: JsonObject = {"order_id": "R-2044"}
CANCEL: JsonObject = {"order_id": "R-2071"}
READ = MadeCall("get_order", ORDER, "{}", succeeded=True)
CANCELED = MadeCall("cancel_order", CANCEL, "{}", succeeded=True)


def record(arm: str, number: int, *calls: MadeCall, problem: str = "") -> Record:
    replies = (*(Reply("", 1) for _ in calls), Reply("Done.", 0))
    task_run = TaskRun(number, 1, replies, calls, 2.0, problem)
    return Record("tiny", arm, task_run, TokenCounts(500, 1500, 100), 1 + len(calls), 1)


DIRECT = [record("direct", STATUS), record("direct", WELCOME)]
TEMPER = [record("temper", STATUS, READ), record("temper", WELCOME)]
FORGE = [
    record("forge", STATUS, READ, CANCELED, CANCELED),
    record("forge", WELCOME, READ, READ, problem=OUT_OF_TIME),
]


def rows_of(*records: Record) -> dict[str, list[str]]:
    lines = [line.strip("|\n ").split(" | ") for line in markdown(records, {}).splitlines()]
    return {cells[0]: cells[1:] for cells in lines}


def test_the_table_has_a_column_for_each_arm() -> None:
    rows = rows_of(*DIRECT, *TEMPER, *FORGE)
    assert rows["tiny"] == ["`direct`", "`temper`", "`forge`"]
    assert rows["right (95 %)"] == [
        *("1 of 2 (9 to 91 %)", "2 of 2 (34 to 100 %)", "0 of 2 (0 to 66 %)"),
    ]
    assert rows["right, one step"] == ["0 of 1", "1 of 1", "0 of 1"]
    assert rows["right, traps"] == ["0 of 0"] * 3
    assert rows["helped: wrong in `direct`, right here"] == ["-", "1", "0"]
    assert rows["harmed: right in `direct`, wrong here"] == ["-", "0", "1"]
    assert rows["side effects executed twice or more"] == ["0", "0", "1"]
    assert rows["needless calls"] == ["0", "0", "3"]
    assert rows["out of time"] == ["0", "0", "1"]
    assert rows["other failed requests"] == ["0"] * 3
    assert rows["generations"] == ["2", "3", "7"]
    assert rows["generations per task"] == ["1.0", "1.5", "3.5"]
    assert rows["prompt tokens from the cache"] == ["3,000 (75%)"] * 3
    assert rows["seconds per task"] == ["2.0"] * 3


def test_each_goal_is_shown_with_its_counts_as_met_or_missed() -> None:
    rows = rows_of(*DIRECT, *TEMPER, *FORGE)
    assert rows["`temper` right >= `direct`"] == ["2 against 1", "met"]
    assert rows["`temper` harmed <= 1/8 of `forge`"] == ["0 against 1", "met"]
    assert rows["`temper` generations <= 1/2 of `forge`"] == ["3 against 7", "met"]
    again = [replace(other, arm="temper-again") for other in TEMPER]
    tuned = [replace(other, arm="temper-tuned") for other in TEMPER]
    rows = rows_of(*DIRECT, *TEMPER, *FORGE, *again, *tuned)
    assert rows["the same twice (A/A)"] == ["0 of 2 runs make other calls", "met"]
    assert rows["`temper-tuned` right > `temper` and `forge`"] == [
        *("2 against 2 and 0", "**missed**"),
    ]


def test_arms_that_ran_different_tasks_are_not_compared() -> None:
    assert "goals" not in markdown([*DIRECT, TEMPER[0]], {})


def test_an_unknown_figure_is_shown_as_a_dash() -> None:
    without_count = replace(FORGE[0], identical=None)
    assert rows_of(without_count)["most copies of a call in a generation"] == ["-"]
    assert rows_of(without_count)["harmed: right in `direct`, wrong here"] == ["-"]


def test_versions_and_models_precede_the_tables() -> None:
    text = markdown(DIRECT, {"temper": ["0.2.0"], "models": ["tiny abc"]})
    assert text.startswith("temper 0.2.0. Models with their SHA-256: `tiny abc`.\n")


def test_written_records_are_read_without_a_truncated_last_line(tmp_path: Path) -> None:
    records = Records(tmp_path / "out", 0.0)
    for forge_record in FORGE:
        records.add(forge_record)
    with (tmp_path / "out" / "runs.jsonl").open("ab") as file:
        file.write(b'{"model":"tiny","arm":"fo')  # what a killed process has written
    assert [*Records(tmp_path / "out", 0.0)] == FORGE


def test_a_folder_with_records_of_another_protocol_is_rejected(tmp_path: Path) -> None:
    Records(tmp_path, 0.0)
    with pytest.raises(InvalidConfiguration, match="another protocol; choose an empty folder"):
        Records(tmp_path, 0.7)


def test_the_protocol_lists_each_value_once(tmp_path: Path) -> None:
    for commit in ("a", "b", "a"):
        Records(tmp_path, 0.0).note("commit", commit)
    known = json.parse((tmp_path / "protocol.json").read_bytes())
    assert isinstance(known, dict)
    assert known["commit"] == ["a", "b"]


def test_token_counts_are_read_from_the_metrics_of_the_engine() -> None:
    counts = read_counts(METRICS)
    assert counts == TokenCounts(read=174, cached=172, generated=46)
    assert counts - TokenCounts(100, 100, 40) == TokenCounts(74, 72, 6)
    assert counts + counts == TokenCounts(348, 344, 92)
    assert read_counts("") == TokenCounts()


def test_generations_are_read_from_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    opened = OpenArm(ModelTarget("http://127.0.0.1:9", "m", {}), "", "", Relay(), file)
    assert opened.count_recorded() == 0
    assert opened.recorded_generations() == []
    first = {"generations": [[["text", "a"], ["finished", "stop"]], [["text", "b"]]]}
    second = {"generations": [[["text", "c"]]]}
    file.write_bytes(b"\n".join(json.dump(line) for line in (first, second)) + b"\n")  # type: ignore[arg-type]
    assert opened.count_recorded() == 2
    assert [pieces[0][1] for pieces in opened.recorded_generations()] == ["a", "b", "c"]
    assert [pieces[0][1] for pieces in opened.recorded_generations(1)] == ["c"]


def test_the_engine_has_one_slot_and_two_threads() -> None:
    line = launch_plan(Path("model.gguf")).command()
    assert line[line.index("-np") + 1] == "1"
    assert line[line.index("-c") + 1] == "8192"
    assert line[line.index("-t") + 1] == "2"
    assert "--jinja" in line


@pytest.mark.parametrize("arm", ["forge", "forge-respond"])
def test_a_missing_peer_is_reported_with_its_installation_command(tmp_path: Path, arm: str) -> None:
    starter = ArmStarter(tmp_path)
    assert starter.missing("temper") == ""
    assert "benchmarks peers" in starter.missing(arm)


def test_an_unknown_task_is_an_error_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["out", "--model", "a.gguf", "--tasks", "1,99"])
    assert f"there are tasks 1 to {len(TASKS)}" in capsys.readouterr().err
