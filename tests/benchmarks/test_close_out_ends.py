import gzip
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.close_out_ends import count_ends, read_lines
from proxy.conversation import json
from proxy.conversation.json import JsonObject


def turn(result: str, *, is_right: bool, category: str = "base") -> JsonObject:
    call: JsonObject = {"id": "a", "function": {"name": "book", "arguments": "{}"}}
    return {
        "category": category,
        "entry_right": is_right,
        "messages": [
            {"role": "user", "content": "Book it."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": result},
        ],
    }


FAILED, WORKED = '{"error": "no such room"}', '{"booked": true}'
LINES = (
    turn(FAILED, is_right=True),
    turn(WORKED, is_right=True),
    turn(FAILED, is_right=False),
    turn(FAILED, is_right=False, category="miss_func"),
)


def test_ends_behind_a_failed_result_are_counted_by_category_and_by_what_was_right() -> None:
    found = count_ends(LINES)
    base, other = found["base"], found["miss_func"]
    assert (base.turns[True], base.asked[True]) == (2, 1)
    assert (base.turns[False], base.asked[False]) == (1, 1)
    assert (other.turns[True], other.asked[False]) == (0, 1)


@pytest.mark.parametrize("name", ["turns.jsonl", "turns.jsonl.gz"])
def test_the_command_writes_a_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    told = json.dump_lines(LINES)
    path.write_bytes(gzip.compress(told) if name.endswith(".gz") else told)
    assert len([*read_lines(path)]) == len(LINES)
    assert main(["ends", str(path)]) == 0
    assert "| base | 2 | 1 | 50.00 % |" in capsys.readouterr().out
