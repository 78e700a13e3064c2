"""A user's scenarios from TOML: tools with canned results, a request, and the expected end.

[[tool]]            name, description, schema, changes (true if it changes the world)
[[tool.result]]     arguments, returns or fails
user, system        the messages
limit               the largest number of replies
[expect]            calls (as a set), words (in the answer), no_calls
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.files import read_toml
from temper_evals.scenarios.raw_answers import objection_to_raw
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Transcript, World
from temper_evals.scenarios.task import last_words
from temper_evals.scenarios.worlds import (
    CannedOutcome,
    CannedWorld,
    Setting,
    key_of,
    objection,
    validator_of,
)


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CannedResult(_Table):
    """The result of a call with these arguments, or its failure."""

    arguments: dict[str, JsonValue] = {}
    returns: JsonValue = None
    fails: str = ""


class OwnTool(_Table):
    """A tool; if it `changes` something, it returns a reference and needs no results."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default={"type": "object"}, alias="schema")
    changes: bool = False
    result: list[CannedResult] = []


class ExpectedCall(_Table):
    """A call that must be made."""

    name: str
    arguments: dict[str, JsonValue] = {}


class Expect(_Table):
    """The expected end: these calls and no other changes, these words in the answer."""

    calls: list[ExpectedCall] = []
    words: list[str] = []
    no_calls: bool = False


class OwnScenario(_Table):
    """The content of a scenario file."""

    user: str
    system: str = ""
    limit: int = Field(default=20, ge=1)
    tool: list[OwnTool] = []
    expect: Expect = Expect()


_TABLES: Mapping[str, type[_Table]] = {
    "": OwnScenario,
    "tool": OwnTool,
    "result": CannedResult,
    "expect": Expect,
    "calls": ExpectedCall,
}


class FileScenario:
    """A scenario from a file."""

    def __init__(self, name: str, scenario: OwnScenario) -> None:
        self.family = "own"
        self.name = name
        self.limit = scenario.limit
        self.setting = Setting(name, _tools(scenario), _outcomes(scenario), _writers(scenario))
        self._table = scenario

    def request(self, seed: int) -> JsonObject:
        system: list[JsonValue] = [{"role": "system", "content": self._table.system}]
        user: JsonValue = {"role": "user", "content": self._table.user}
        messages = [*(system if self._table.system else []), user]
        tools: JsonObject = {"tools": [*self.setting.tools]} if self.setting.tools else {}
        return {"messages": messages, "seed": seed, **tools}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> CannedWorld:
        return CannedWorld(self.setting)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge a run by its calls and by its answer."""
        assert isinstance(end, CannedWorld)  # noqa: S101 - made by `world`
        calls = {key_of(call.name, call.arguments) for call in end.calls}
        expected = Counter(key_of(call.name, call.arguments) for call in self._expected)
        changes = Counter(key_of(change.name, change.arguments) for change in end.changes)
        extra = [*(changes - expected).elements()]
        why = self._objection(calls, {*expected}, extra) or self._objection_to_words(transcript)
        return Judgment(right=not why, why=why, damage=len(extra))

    @property
    def _expected(self) -> list[PlannedCall]:
        return [PlannedCall(call.name, call.arguments) for call in self._table.expect.calls]

    def _objection(self, calls: set[str], expected: set[str], extra: Sequence[str]) -> str:
        if self._table.expect.no_calls and calls:
            return "needless call of a tool"
        if lacking := sorted(expected - calls):
            return f"missing call: {lacking[0]}"
        return f"unrequested change: {extra[0]}" if extra else ""

    def _objection_to_words(self, transcript: Transcript) -> str:
        answer = last_words(transcript)
        if answer is None:
            return "no answer"
        lacking = [
            word for word in self._table.expect.words if word.casefold() not in answer.casefold()
        ]
        if lacking:
            return f"the answer lacks {lacking[0]!r}"
        return objection_to_raw(answer, transcript, self.setting.tools)


def load_scenarios(folder: Path) -> list[FileScenario]:
    """Load every `*.toml` of a folder; raises InvalidConfiguration."""
    scenarios = [load_scenario(path) for path in sorted(folder.glob("*.toml"))]
    if not scenarios:
        raise InvalidConfiguration("--scenarios", f"{folder} contains no *.toml")
    return scenarios


def load_scenario(path: Path) -> FileScenario:
    """Load a scenario; raises InvalidConfiguration, for example if no run could be right."""
    try:
        table = OwnScenario.model_validate(read_toml(path))
    except ValidationError as error:
        problem = _describe_error(error.errors(include_input=False)[0])
        raise InvalidConfiguration(str(path), problem) from error
    scenario = FileScenario(path.stem, table)
    if problem := next(_problems(table, scenario.setting), ""):
        raise InvalidConfiguration(str(path), problem)
    return scenario


def _describe_error(error: ErrorDetails) -> str:
    """Return the location and the problem of an invalid entry; entries are counted from 1.

    The problem of an unknown key is followed by the known keys.
    """
    location = " ".join(str(part + 1) if isinstance(part, int) else part for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return f"{location}: {error['msg']}"
    tables = [part for part in error["loc"][:-1] if isinstance(part, str)]
    table = _TABLES[tables[-1] if tables else ""]
    known = ", ".join(field.alias or name for name, field in table.model_fields.items())
    return f"{location}: unknown key; known: {known}"


def _problems(scenario: OwnScenario, setting: Setting) -> Iterator[str]:
    """Yield contradictions between tools, results and expectations."""
    names = [tool.name for tool in scenario.tool]
    yield from (
        f"two tools have the name {name!r}" for name, times in Counter(names).items() if times > 1
    )
    for tool in scenario.tool:
        yield from (f"tool {tool.name!r}: {problem}" for problem in _problems_of_tool(tool))
    if scenario.expect.no_calls and scenario.expect.calls:
        yield "expect: calls and no_calls exclude each other"
    for number, call in enumerate(scenario.expect.calls, 1):
        problem = objection(setting.tools, call.name, call.arguments)
        if problem is None and call.name not in setting.writers:
            has_result = key_of(call.name, call.arguments) in setting.outcomes
            problem = None if has_result else "the tool has no result for these arguments"
        if problem is not None:
            yield f"expect calls {number}, {call.name!r}: {problem}"


def _problems_of_tool(tool: OwnTool) -> Iterator[str]:
    try:
        validator = validator_of(tool.parameters)
    except ValueError as error:
        yield f"invalid schema: {str(error).partition(chr(10))[0]}"
        return
    keys = set[str]()
    for number, result in enumerate(tool.result, 1):
        if (violation := next(iter(validator.iter_errors(result.arguments)), None)) is not None:
            yield f"result {number}: the arguments do not match the schema: {violation.message}"
        if result.fails and result.returns is not None:
            yield f"result {number}: returns and fails exclude each other"
        if tool.changes and result.returns is not None:
            yield f"result {number}: a tool with `changes` returns a reference: remove `returns`"
        if (key := key_of(tool.name, result.arguments)) in keys:
            yield f"result {number}: duplicate arguments"
        keys.add(key)


def _tools(scenario: OwnScenario) -> tuple[JsonObject, ...]:
    return tuple(
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in scenario.tool
    )


def _outcomes(scenario: OwnScenario) -> dict[str, tuple[CannedOutcome, ...]]:
    return {
        key_of(tool.name, result.arguments): (
            CannedOutcome(result.fails, fails=True)
            if result.fails
            else CannedOutcome(result.returns),
        )
        for tool in scenario.tool
        for result in tool.result
    }


def _writers(scenario: OwnScenario) -> frozenset[str]:
    return frozenset(tool.name for tool in scenario.tool if tool.changes)
