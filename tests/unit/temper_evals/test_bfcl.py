import sys
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.bfcl import BfclScenario, installed_data, load_bfcl, objection_to_calls
from temper_evals.scenarios.scenario import PlannedCall

QUESTION: JsonObject = {
    "id": "multiple_0",
    "question": [[{"role": "user", "content": "How large is it?"}]],
    "function": [
        {
            "name": "triangle.area",
            "description": "The area.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "base": {"type": "float"},
                    "type": {"type": "string"},
                    "points": {"type": "tuple", "items": {"type": "any"}},
                },
                "required": ["base"],
            },
        }
    ],
}
TRUTH: JsonObject = {
    "triangle.area": {
        "base": [3],
        "type": ["", "right angled"],
        "where": ["", {"x": [1, 2], "y": ["", 4]}],
        "flags": ["", True],
        "points": ["", [1, 2]],
    }
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "possible_answer").mkdir()
    answer: JsonObject = {"id": "multiple_0", "ground_truth": [TRUTH]}
    (tmp_path / "BFCL_v4_multiple.json").write_bytes(json.dump(QUESTION) + b"\n")
    (tmp_path / "possible_answer" / "BFCL_v4_multiple.json").write_bytes(json.dump(answer))
    (tmp_path / "BFCL_v4_irrelevance.json").write_bytes(json.dump(QUESTION))
    return tmp_path


def judged(scenario: BfclScenario, *calls: PlannedCall) -> str:
    world = scenario.world()
    for call in calls:
        world.call(call.name, call.arguments)
    first: JsonObject = {"role": "assistant", "tool_calls": [{} for _ in calls]}
    return scenario.judge(world, [first]).why


def area(**arguments: JsonValue) -> PlannedCall:
    return PlannedCall("triangle_area", {**arguments})


def test_a_bfcl_question_becomes_a_request_with_json_schema_types(folder: Path) -> None:
    (scenario,) = load_bfcl(folder, "multiple")
    assert (scenario.name, scenario.family, scenario.first_fields()) == (
        "bfcl-multiple_0",
        "bfcl:multiple",
        {},
    )
    request = scenario.request(1)
    text = json.dump_text(request["tools"])
    assert '"name":"triangle_area"' in text
    for name in ("object", "number", "array"):
        assert f'"type":"{name}"' in text
    assert '"type":{"type":"string"}' in text


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (area(base=3), ""),
        (area(base=3.0, type="Right-Angled"), ""),
        (area(base=3, where={"x": 2}), ""),
        (area(base=3, points=[1, 2], flags=True), ""),
        (area(base=4), "wrong value of base"),
        (area(base="3"), "wrong value of base"),
        (area(base=True), "wrong value of base"),
        (area(), "missing argument base"),
        (area(base=3, height=1), "unknown argument height"),
        (area(base=3, where={"x": 3}), "wrong value of where"),
        (area(base=3, where={"y": 4}), "wrong value of where"),
        (area(base=3, where={"x": 1, "z": 1}), "wrong value of where"),
        (area(base=3, points=[1]), "wrong value of points"),
        (area(base=3, flags=1), "wrong value of flags"),
        (PlannedCall("area", {"base": 3}), "area instead of triangle.area"),
    ],
)
def test_a_call_is_right_if_each_argument_has_one_of_the_allowed_values(
    folder: Path, call: PlannedCall, why: str
) -> None:
    (scenario,) = load_bfcl(folder, "multiple")
    assert judged(scenario, call) == why


def test_expected_calls_are_right_in_any_order_but_a_missing_call_is_an_error() -> None:
    first: JsonObject = {"a": {"x": [1]}}
    second: JsonObject = {"a": {"x": [2]}}
    calls = [PlannedCall("a", {"x": 2}), PlannedCall("a", {"x": 1})]
    assert objection_to_calls(calls, [first, second]) == ""
    assert objection_to_calls(calls, [first, first]) == "wrong value of x"
    assert objection_to_calls([], [first]) == "0 calls instead of 1"


def test_every_call_is_judged_needless_if_no_function_fits(folder: Path) -> None:
    (scenario,) = load_bfcl(folder, "irrelevance")
    assert judged(scenario) == ""
    assert judged(scenario, area(base=3)) == "needless call: no function fits"
    assert scenario.world().calls == []
    assert not scenario.judge(scenario.world(), []).why


def test_the_error_for_a_missing_category_lists_the_existing_categories(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfiguration, match="found: irrelevance, multiple"):
        load_bfcl(folder, "parallel")
    with pytest.raises(InvalidConfiguration, match="no BFCL data"):
        load_bfcl(tmp_path / "possible_answer" / "x", "parallel")


def test_the_data_of_an_installed_package_is_found_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as uninstalled:
        uninstalled.setattr("importlib.util.find_spec", lambda _name: None)
        with pytest.raises(InvalidConfiguration, match="no-deps"):
            installed_data()
    package = tmp_path / "bfcl_eval"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bfcl_eval", raising=False)
    assert installed_data() == package / "data"
