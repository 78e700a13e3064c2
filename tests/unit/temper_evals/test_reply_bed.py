import gzip
import io
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

from benchmarks.evals.replies import convert
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.reply_bed import (
    NEEDLESS,
    NO_CALL,
    RecordedSetup,
    ReplyCounts,
    count_replies,
    load_replies,
)
from temper_evals.report.terminal import show_replies
from tests.benchmarks.evals.test_thresholds import RUN

TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "math.add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = '<tool_call>{"name": "math.add", "arguments": {"a": %d}}</tool_call>'


def question(category: str, number: int, *truth: JsonObject) -> JsonObject:
    message: JsonObject = {"role": "user", "content": f"Add {number}."}
    return {
        "category": category,
        "id": number,
        "messages": [message],
        "tools": [TOOL],
        "truth": [*truth],
    }


def reply(category: str, number: int, text: str, *, handler_right: bool = True) -> JsonObject:
    head: JsonObject = {"category": category, "id": number, "text": text}
    return {**head, "own_handler_right": handler_right, "dotted": True}


QUESTIONS = [
    *(question("simple", number, {"math.add": {"a": [number]}}) for number in (1, 2, 3)),
    question("relevance", 4),
]
REPLIES = [
    reply("simple", 1, CALL % 1),
    reply("simple", 2, CALL % 9),
    reply("simple", 3, "It is three."),
    reply("relevance", 4, "There is nothing to add.", handler_right=False),
    reply("simple", 77, "To a question that the folder does not contain."),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "replies"
    path.mkdir()
    (path / "questions.jsonl.gz").write_bytes(gzip.compress(json.dump_lines(QUESTIONS)))
    (path / "small model.jsonl").write_bytes(json.dump_lines(REPLIES))
    return path


@pytest.mark.deep
async def test_recorded_replies_are_sent_through_temper_and_their_results_are_counted(
    folder: Path, tmp_path: Path
) -> None:
    choice = EvaluationChoice(replies=folder)
    records = await evaluate(choice, tmp_path / "out", lambda _progress: None)
    counts = count_replies(records.runs, load_replies(folder))
    simple = counts["temper", "small_model", "simple"]
    assert (simple.count, simple.right, simple.handler_right, simple.wrong, simple.lost) == (
        3,
        1,
        3,
        1,
        1,
    )
    other = counts["temper", "all", "relevance"]
    assert (other.count, other.right, other.handler_right, other.needless) == (1, 1, 0, 0)


def counts_of_run(*, handler_right: bool = True, **changes: object) -> ReplyCounts:
    counts = ReplyCounts()
    counts.add(structs.replace(RUN, generations=1, **changes), is_own_right=handler_right)
    return counts


def test_a_wrong_run_is_counted_by_its_cause_such_as_lost_or_needless() -> None:
    assert counts_of_run(right=False, why=NO_CALL).lost == 1
    retried = ReplyCounts()
    retried.add(structs.replace(RUN, right=False, why=NO_CALL, generations=2), is_own_right=True)
    assert (retried.lost, retried.retried, retried.again) == (0, 1, 1)
    assert counts_of_run(right=False, why="wrong value of a").wrong == 1
    missed_by_both = counts_of_run(right=False, why=NO_CALL, handler_right=False)
    assert (missed_by_both.lost, missed_by_both.retried, missed_by_both.wrong) == (0, 0, 0)
    assert counts_of_run(right=False, why=NEEDLESS).needless == 1
    failed = counts_of_run(right=False, why="500", ending="failed")
    assert (failed.failed, failed.wrong) == (1, 0)


def test_tool_names_have_no_dots_if_the_replies_were_recorded_without_dotted_names(
    folder: Path,
) -> None:
    plain = [{**reply, "dotted": False} for reply in REPLIES]
    (folder / "small model.jsonl").write_bytes(json.dump_lines(plain))
    (setup,) = load_replies(folder)
    assert b"math_add" in json.dump(setup.scenarios[0].request(0))
    assert isinstance(setup, RecordedSetup)


def test_load_replies_with_a_number_reads_that_many_replies_of_each_category(folder: Path) -> None:
    (setup,) = load_replies(folder, 1)
    assert [scenario.name for scenario in setup.scenarios] == ["simple-1", "relevance-4"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("questions.jsonl.gz", None, "has no questions.jsonl"),
        ("small model.jsonl", b"", "has no reply to any"),
        ("small model.jsonl", b"{\n", "line 1 is not JSON"),
    ],
)
def test_a_folder_without_questions_or_valid_replies_is_refused(
    name: str, content: bytes | None, problem: str, folder: Path
) -> None:
    path = folder / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InvalidConfiguration, match=problem):
        load_replies(folder)


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_of_replies_fits_into_80_columns(width: int) -> None:
    counts = ReplyCounts(*[1_240] * 9)
    key = "temper", "deepseek-ai_deepseek-coder-6.7b-instruct", "parallel_multiple_function"
    console = Console(file=io.StringIO(), width=width)
    show_replies(console, {key: counts})
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert ("failed" in text) is (width == 100)


def test_results_of_bfcl_are_converted_to_a_folder_of_replies(tmp_path: Path) -> None:
    data, results = tmp_path / "data", tmp_path / "result" / "some-model" / "non_live"
    (data / "possible_answer").mkdir(parents=True)
    results.mkdir(parents=True)
    message: JsonObject = {"role": "user", "content": "Add 1."}
    function: JsonObject = {"name": "math.add", "parameters": {"type": "dict", "properties": {}}}
    entry: JsonObject = {"id": "simple_0", "question": [[message]], "function": [function]}
    answer: JsonObject = {"id": "simple_0", "ground_truth": [{"math.add": {"a": [1]}}]}
    (data / "BFCL_v4_simple.json").write_bytes(json.dump_lines([entry]))
    (data / "possible_answer" / "BFCL_v4_simple.json").write_bytes(json.dump_lines([answer]))
    made: JsonObject = {"id": "simple_0", "result": "[math_add(a=1)]"}
    parsed: JsonObject = {"id": "simple_1", "result": [{"math_add": "{}"}]}
    (results / "BFCL_v4_simple_result.json").write_bytes(json.dump_lines([made, parsed]))
    assert convert(tmp_path / "result", data, tmp_path / "out") == {"some-model": 1}
    (setup,) = load_replies(tmp_path / "out")
    (only,) = setup.scenarios
    assert (only.name, only.reply.text) == ("simple-simple_0", "[math_add(a=1)]")
    assert only.question.truth == [{"math.add": {"a": [1]}}]
