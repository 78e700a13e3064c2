"""BFCL's single-turn questions, read from its data files; the checker is Temper's.

`BFCL_v4_NAME.json` has one question per line, and `possible_answer/` has the right calls. Only the
first reply is judged, as in BFCL, because the tools cannot be executed. Models may have been
trained on these questions.
"""

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Transcript, World
from temper_evals.scenarios.worlds import objects_in

_PREFIX = "BFCL_v4_"
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
# BFCL's checker ignores these characters in strings
_IGNORED = re.compile(r"[ ,./\-_*^]")
# categories in which the right reply makes no call
_WITHOUT_CALLS = ("irrelevance", "live_irrelevance")


@dataclass
class BfclWorld:
    """Records the calls; every call gets the same result."""

    calls: list[PlannedCall] = field(default_factory=list)

    def call(self, name: str, arguments: JsonObject) -> str:
        self.calls.append(PlannedCall(name, arguments))
        return '{"status":"done"}'

    def calls_of_first_reply(self, transcript: Transcript) -> Sequence[PlannedCall]:
        """Return the calls that the first reply of a run has made."""
        first = transcript[0].get("tool_calls") if transcript else None
        return self.calls[: len(first)] if isinstance(first, list) else []


class BfclScenario:
    """A question with its possible answers."""

    # the first reply is judged, and the second reply ends the run
    limit = 2

    def __init__(self, category: str, question: JsonObject, truth: Sequence[JsonObject]) -> None:
        self.family = f"bfcl:{category}"
        self.name = f"bfcl-{question.get('id')}"
        self._has_no_call = category in _WITHOUT_CALLS
        self._question, self.truth = question, truth

    def request(self, seed: int) -> JsonObject:
        turns = self._question.get("question")
        messages = turns[0] if isinstance(turns, list) and turns else []
        tools: list[JsonValue] = [*map(tool_of, objects_in(self._question.get("function")))]
        return {"messages": messages, "tools": tools, "seed": seed}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> BfclWorld:
        """Return a world without calls."""
        return BfclWorld()

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge the calls of the first reply."""
        assert isinstance(end, BfclWorld)  # noqa: S101 - made by `world`
        made = end.calls_of_first_reply(transcript)
        if self._has_no_call:
            return Judgment(right=not made, why="needless call: no function fits" if made else "")
        why = objection_to_calls(made, self.truth)
        return Judgment(right=not why, why=why)


def installed_data() -> Path:
    """Return the data folder of an installed `bfcl-eval`; raises InvalidConfiguration."""
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        problem = "requires the data: pip install --no-deps bfcl-eval, or pass --bfcl FOLDER"
        raise InvalidConfiguration("--suite", problem)
    return Path(spec.origin).parent / "data"


def load_bfcl(folder: Path, category: str) -> list[BfclScenario]:
    """Load the questions of a category; raises InvalidConfiguration."""
    return [
        BfclScenario(category, question, truth)
        for question, truth in read_category(folder, category)
    ]


def read_category(folder: Path, category: str) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    """Yield the questions of a category with their right calls; raises InvalidConfiguration."""
    path = folder / f"{_PREFIX}{category}.json"
    if not path.is_file():
        known = sorted(path.stem.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*.json"))
        problem = f"no {path.name} in {folder}; found: {', '.join(known) or 'no BFCL data'}"
        raise InvalidConfiguration("--bfcl", problem)
    answers = folder / "possible_answer" / path.name
    listed = read_lines(answers) if answers.is_file() else []
    truths = {str(answer.get("id")): answer.get("ground_truth") for answer in listed}
    for question in read_lines(path):
        yield question, objects_in(truths.get(str(question.get("id"))))


def read_lines(path: Path) -> list[JsonObject]:
    """Read a file of JSON objects, one per line."""
    parsed = (json.parse(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
    return [value for value in parsed if isinstance(value, dict)]


def tool_of(function: JsonObject) -> JsonObject:
    """Convert a function of BFCL to a tool: `_` for dots in its name, types of JSON Schema."""
    name = str(function.get("name")).replace(".", "_")
    parameters = _schema(function.get("parameters", {}))
    return {"type": "function", "function": {**function, "name": name, "parameters": parameters}}


def _schema(value: JsonValue) -> JsonValue:
    match value:
        case dict():
            return {
                key: _type(member) if key == "type" else _schema(member)
                for key, member in value.items()
            }
        case list():
            return [_schema(item) for item in value]
        case _:
            return value


def _type(value: JsonValue) -> JsonValue:
    """Convert a type to JSON Schema.

    The value is an object if the key "type" is the name of a parameter, and not a keyword.
    """
    return _TYPES.get(value, value) if isinstance(value, str) else _schema(value)


def objection_to_calls(made: Sequence[PlannedCall], truth: Sequence[JsonObject]) -> str:
    """Describe the first difference from the right calls, whose order is free; "" if none."""
    if len(made) != len(truth):
        return f"{len(made)} calls instead of {len(truth)}"
    unmatched = [*made]
    for expected in truth:
        match = next((call for call in unmatched if not _objection(call, expected)), None)
        if match is None:
            return _objection(unmatched[0], expected)
        unmatched.remove(match)
    return ""


def _objection(call: PlannedCall, expected: JsonObject) -> str:
    name, allowed = next(iter(expected.items()))
    if call.name != name.replace(".", "_"):
        return f"{call.name} instead of {name}"
    values = allowed if isinstance(allowed, dict) else {}
    if extra := [argument for argument in call.arguments if argument not in values]:
        return f"unknown argument {extra[0]}"
    for parameter, choices in values.items():
        listed = choices if isinstance(choices, list) else []
        if parameter not in call.arguments:
            if "" not in listed:
                return f"missing argument {parameter}"
        elif not any(_is_same(call.arguments[parameter], choice) for choice in listed):
            return f"wrong value of {parameter}"
    return ""


def _is_same(value: JsonValue, expected: JsonValue) -> bool:
    """Compare as BFCL does: strings without case, spaces and punctuation; members recursively."""
    match value, expected:
        case str(), str():
            return _plain(value) == _plain(expected)
        case bool(), _:
            return value is expected
        case ((int() | float()), (int() | float())):
            return not isinstance(expected, bool) and value == expected
        case list(), list():
            pairs = zip(value, expected, strict=False)
            return len(value) == len(expected) and all(_is_same(*pair) for pair in pairs)
        case dict(), dict():
            return _has_members(value, expected)
        case _:
            return value == expected


def _has_members(value: Mapping[str, JsonValue], expected: Mapping[str, JsonValue]) -> bool:
    """Compare objects; each member has a list of allowed values, in which "" means absent."""
    if any(name not in expected for name in value):
        return False
    for name, allowed in expected.items():
        choices = allowed if isinstance(allowed, list) else [allowed]
        if name not in value:
            if "" not in choices:
                return False
        elif not any(_is_same(value[name], choice) for choice in choices):
            return False
    return True


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
