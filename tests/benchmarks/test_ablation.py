"""The command `benchmarks ablation`, which turns off one heuristic after the other."""

import argparse
import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import ablation
from benchmarks.ablation import Answer, Outcome, add_arguments, in_fork, judge, play, row
from benchmarks.ablation_switches import list_switches, split_alternatives
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.reply_bed import RecordedQuestion, RecordedReply, ReplyScenario

TOOL: JsonObject = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {}}}},
}
REQUEST: JsonObject = {
    "model": "m",
    "messages": [{"role": "user", "content": "Look at it."}],
    "tools": [TOOL],
}
CALL = '{"name": "look", "arguments": {"at": "it"}}'
CORPUS: JsonObject = {"id": "a", "raw": CALL, "kind": "positive", "tools": [TOOL]}
SCORE = """
def offered(case): return case["tools"]
def args_of(arguments): return arguments
def judge(case, found): return (True, len(found["calls"]) == 1, True)
"""


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a", ["a"]),
        ("a|b", ["a", "b"]),
        (r"(?:a|b)|\||[|\]]|c", ["(?:a|b)", r"\|", r"[|\]]", "c"]),
    ],
)
def test_a_pattern_is_split_only_at_its_top_level_alternatives(
    pattern: str, parts: list[str]
) -> None:
    assert split_alternatives(pattern) == parts


def test_a_switch_is_off_only_in_the_forked_process() -> None:
    switches = {list_switch.name: list_switch for list_switch in list_switches()}
    assert len(switches) > 100
    assert {name.split()[0] for name in switches} >= {"provenance", "words.toml", "languages"}

    def turned_off() -> Outcome:
        for switch in ("provenance row 16", "words.toml forbids", "languages quotes"):
            switches[switch].turn_off()
        return Outcome({"calls": play(REQUEST, [CALL]).calls})

    assert in_fork(turned_off) == Outcome({"calls": []})
    assert play(REQUEST, [CALL]).calls == [("look", {"at": "it"})]


def test_a_fork_that_fails_has_no_outcome() -> None:
    assert in_fork(lambda: Outcome({}, Counter(right=1))) == Outcome({}, Counter(right=1))
    assert in_fork(lambda: os._exit(1)) is None
    assert "fails" in row("x", None, Outcome())


def test_recorded_replies_are_played_until_the_turn_ends() -> None:
    assert play(REQUEST, ["No."]) == Answer([], "No.", 1)
    assert play(REQUEST, ["I will look at it now:", CALL]).generations == 2


@pytest.mark.parametrize(
    ("calls", "truth", "retries", "kind"),
    [
        ([], [], 1, "right"),
        ([("look", {})], [], 1, "needless"),
        ([("look", {"at": "it"})], [{"look": {"at": ["it"]}}], 1, "right"),
        ([("look", {"at": "me"})], [{"look": {"at": ["it"]}}], 1, "wrong"),
        ([], [{"look": {"at": ["it"]}}], 1, "lost"),
        ([], [{"look": {"at": ["it"]}}], 2, ""),
    ],
)
def test_calls_are_judged_as_right_needless_wrong_or_lost(
    calls: list[tuple[str, JsonObject]], truth: list[JsonObject], retries: int, kind: str
) -> None:
    reply = RecordedReply("simple", "0", "", own_handler_right=True, dotted=True)
    scenario = ReplyScenario(RecordedQuestion([], [], truth), reply, 0)
    assert judge(scenario, Answer([*calls], "", retries)) == kind


def test_the_table_has_a_row_for_each_switch(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(SCORE)
    (tmp_path / "dev.jsonl").write_bytes(json.dump(CORPUS))
    output = tmp_path / "table.md"
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = ["--corpus", str(tmp_path), "--only", "row 1$", "--output", str(output)]
    ablation.run(parser.parse_args([*options, "--step", "500"]))
    _, _, base, without = output.read_text().splitlines()
    assert base.split(" | ")[2] == "1"
    assert without.startswith("| provenance row 1 |  |")
