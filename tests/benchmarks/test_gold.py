from pathlib import Path

import pytest

from benchmarks import gold
from benchmarks.__main__ import main
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

PARAMETERS: JsonObject = {
    "type": "dict",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": "any"},
        "inner": {"type": "dict", "properties": {"a": {"type": "float"}}},
    },
    "required": ["city"],
}
# What is accepted of each argument, and what the review does to the first of it.
ACCEPTED: list[tuple[JsonObject, gold.Outcome]] = [
    ({"city": ["Paris"], "days": ["", "any"]}, gold.Outcome.UNCHANGED),
    (
        {"city": ["Paris"], "days": [""], "inner": [{"a": [1.5, 2], "b": [""]}]},
        gold.Outcome.UNCHANGED,
    ),
    ({"city": [5]}, gold.Outcome.CHANGED),
    ({"days": [3]}, gold.Outcome.REJECTED),
    ({"city": ["Paris"], "days": [["x"]]}, gold.Outcome.REJECTED),
]


def write(path: Path, lines: list[JsonValue]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(json.dump_lines(lines))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    function: JsonObject = {"name": "weather.get", "parameters": PARAMETERS}
    for category in ("simple_python", "simple_java"):
        file = f"BFCL_v4_{category}.json"
        write(tmp_path / file, [{"id": n, "function": [function]} for n in range(len(ACCEPTED))])
        truths: list[JsonValue] = [
            {"id": n, "ground_truth": [{"weather.get": accepted}]}
            for n, (accepted, _) in enumerate(ACCEPTED)
        ]
        write(tmp_path / "possible_answer" / file, truths)
    return tmp_path


def test_gold_calls_are_reviewed_as_those_of_a_model(data: Path) -> None:
    reviewed = [*gold.review(data)]
    assert [call.outcome for call in reviewed] == [outcome for _, outcome in ACCEPTED]
    assert reviewed[0].arguments == {"city": "Paris", "days": "any"}
    assert reviewed[1].arguments == {"city": "Paris", "inner": {"a": 1.5}}
    assert reviewed[2].reason == 'to {"city":"5"}'
    assert "/city: is required" in reviewed[3].reason


def test_the_counts_are_printed_and_as_many_calls_as_wanted(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gold", "--data", str(data), "--show", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("weather_get(") == 2
    assert "5 gold calls" in out
    assert "2 unchanged (40.00%)" in out
    assert "2 rejected" in out


def test_a_folder_without_answers_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gold", "--data", str(tmp_path)]) == 1
    assert "has no answers of BFCL" in capsys.readouterr().err
