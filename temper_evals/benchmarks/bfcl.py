"""BFCL with the questions, tools, stateful API classes and checkers of the package `bfcl-eval`.

The package is used without its dependencies, except for `mpmath`:

    pip install mpmath && pip install --no-deps bfcl-eval

A multi-turn task is a conversation of several user turns on one state, such as a file system. The
next turn begins when the model answers without a call. After the run, the package's checker
executes the model's calls and the right calls, and compares the states and the results.
"""

import ast
import itertools
import json as standard_json
import keyword
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.benchmarks.packages import import_package
from temper_evals.bfcl import (
    BfclScenario,
    BfclWorld,
    installed_data,
    read_category,
    read_lines,
    tool_of,
)
from temper_evals.loop import AgentLoop, Ending, ScenarioRun
from temper_evals.model_setups import AdaptedScenario
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Scenario, Transcript, World
from temper_evals.scenarios.worlds import error_text, function_of, objects_in, tool_name

MULTI_TURN = (
    *("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param"),
    "multi_turn_long_context",
)
# These categories are missing: Java and JavaScript, whose values are source code, and
# `live_relevance`, for which the package has no right answers.
SINGLE_TURN = (
    *("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    "live_irrelevance",
)
_PACKAGE = "bfcl_eval"
_STATE_CHECKER = f"{_PACKAGE}.eval_checker.multi_turn_eval.multi_turn_checker"
_EXECUTOR = f"{_PACKAGE}.eval_checker.multi_turn_eval.multi_turn_utils"
_CALL_CHECKER = f"{_PACKAGE}.eval_checker.ast_eval.ast_checker"
_PROMPTS = f"{_PACKAGE}.constants.default_prompts"
_CLASSES = f"{_PACKAGE}.constants.executable_backend_config"
_MOST_CHARACTERS = 300
_run_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class UserTurn:
    """A turn of the user: its messages, the offered tools, and the right calls and answer.

    The simulated model makes the calls in at most `most_replies` replies, because the benchmark
    limits the replies or judges only the first reply. It repeats `attack` after its answer if a
    tool result contained it.
    """

    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...]
    gold: tuple[PlannedCall, ...]
    answer: str = "That is done."
    most_replies: int = 8
    attack: str = ""


class BfclQuestion(BfclScenario):
    """A single-turn question, judged by the checker of the package."""

    def __init__(self, category: str, question: JsonObject, truth: Sequence[JsonObject]) -> None:
        super().__init__(category, question, truth)
        self._category = category
        self._functions = objects_in(question.get("function"))
        request = self.request(0)
        gold = tuple(_first_choice(call, self._functions) for call in self.truth)
        messages, tools = (tuple(objects_in(request[name])) for name in ("messages", "tools"))
        self.turns = (UserTurn(messages, tools, gold, most_replies=1),)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge the calls of the first reply with the checker of the package.

        In these calls, the names of tools have `_` in place of dots, as `tool_of` wrote them.
        """
        if not self.truth:
            return super().judge(end, transcript)
        assert isinstance(end, BfclWorld)  # noqa: S101 - made by `world`
        made = [{call.name: call.arguments} for call in end.calls_of_first_reply(transcript)]
        checker = _module(_CALL_CHECKER)
        language = checker.Language.PYTHON
        try:
            result = checker.ast_checker(
                self._functions, made, [*self.truth], language, self._category, "temper"
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # the checker raises these for values whose type differs from the right answer
            return Judgment(right=False, why=f"the checker failed: {error!r}")
        return _judgment(result)


class BfclConversation:
    """A multi-turn task; `limit` is the package's limit of replies for each turn."""

    def __init__(self, category: str, entry: JsonObject, truth: JsonValue) -> None:
        self.family = f"bfcl:{category}"
        self.name = f"bfcl-{entry.get('id')}"
        self.category, self.entry = category, entry
        self.truth = [
            [str(call) for call in turn] if isinstance(turn, list) else []
            for turn in (truth if isinstance(truth, list) else [])
        ]
        self.limit = int(_module(_PROMPTS).MAXIMUM_STEP_LIMIT)
        self.turns = tuple(self._turns())

    def _turns(self) -> Iterator[UserTurn]:
        """Yield the turns of the user with the offered tools and the right calls.

        A tool in `missed_function` is offered only from the turn that the entry names for it.
        """
        later = self.entry.get("missed_function")
        held_out = later if isinstance(later, dict) else {}
        names = [
            name for listed in held_out.values() if isinstance(listed, list) for name in listed
        ]
        classes = self.entry.get("involved_classes")
        all_tools = [
            tool
            for name in (classes if isinstance(classes, list) else [])
            for tool in _tools_of_class(str(name))
        ]
        offered = [tool for tool in all_tools if tool_name(tool) not in names]
        questions = self.entry.get("question")
        for number, messages in enumerate(questions if isinstance(questions, list) else []):
            added = held_out.get(str(number))
            if isinstance(added, list):
                offered += [tool for tool in all_tools if tool_name(tool) in added]
            gold = tuple(_read_gold(text, all_tools) for text in self.truth[number])
            yield UserTurn(tuple(objects_in(messages)) or _about_new_tools(), (*offered,), gold)

    def request(self, seed: int) -> JsonObject:
        first = self.turns[0]
        return {"messages": [*first.messages], "tools": [*first.tools], "seed": seed}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> "BfclState":
        return BfclState(self)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Execute the model's calls and the right calls; compare both states after each turn."""
        assert isinstance(end, BfclState)  # noqa: S101 - made by `world`
        try:
            if len(end.calls_by_turn) < len(self.turns):
                why = f"the run ended in turn {len(end.calls_by_turn)}"
                return Judgment(right=False, why=why)
            calls = [[[call] for call in turn] for turn in end.calls_by_turn]
            return _judgment(
                _module(_STATE_CHECKER).multi_turn_checker(
                    calls, self.truth, self.entry, self.category, end.key
                )
            )
        finally:
            end.forget()


@dataclass(slots=True)
class BfclState:
    """The state of a conversation: instances of the package's API classes, changed by calls.

    `calls_by_turn` has a list for each turn that has begun. A call is Python source, because the
    package executes source.
    """

    task: BfclConversation
    calls_by_turn: list[list[str]] = field(default_factory=lambda: [[]])
    key: str = field(default_factory=lambda: f"temper{next(_run_numbers)}")

    def begin_turn(self) -> None:
        self.calls_by_turn.append([])

    def call(self, name: str, arguments: JsonObject) -> str:
        text = _as_source(name, arguments, self.task.turns)
        self.calls_by_turn[-1].append(text)
        if text == _UNKNOWN:
            return error_text(f"unknown tool {name!r}, or invalid parameter names")
        entry = self.task.entry
        results, _ = _module(_EXECUTOR).execute_multi_turn_func_call(
            [text],
            entry["initial_config"],
            entry["involved_classes"],
            self.key,
            entry["id"],
            long_context="long_context" in self.task.category,
        )
        return str(results[0])

    def forget(self) -> None:
        """Remove the instances, which the package keeps in the globals of its executor."""
        executor_globals = vars(_module(_EXECUTOR))
        for name in [name for name in executor_globals if name.startswith(f"{self.key}_")]:
            del executor_globals[name]


class TurnLoop(AgentLoop):
    """The agent loop of conversations: after each answer, the next turn of the user begins."""

    async def run(
        self, scenario: Scenario, seed: int, world: World, run: ScenarioRun | None = None
    ) -> ScenarioRun:
        """Run the turns in order; stop after a turn that does not end with an answer."""
        run = run or ScenarioRun()
        if not isinstance(world, BfclState):
            return await super().run(scenario, seed, world, run)
        seconds = 0.0
        for number, turn in enumerate(world.task.turns):
            if number:
                world.begin_turn()
                run.transcript += turn.messages
                run.ending = Ending.LIMIT
            most = run.requests + scenario.limit
            await super().run(_TurnView(scenario, turn, most), seed, world, run)
            seconds += run.seconds
            if run.ending is not Ending.ANSWERED:
                break
        run.seconds = seconds
        return run


@dataclass(frozen=True, slots=True)
class _TurnView(AdaptedScenario):
    """One turn of a conversation as a scenario, with the tools of that turn."""

    turn: UserTurn
    most: int

    @property
    def limit(self) -> int:
        return self.most

    def request(self, seed: int) -> JsonObject:
        return {**self.scenario.request(seed), "tools": [*self.turn.tools]}


BfclTask = BfclQuestion | BfclConversation


@lru_cache(maxsize=4)
def load(wanted: str, most: int | None = None) -> tuple[BfclTask, ...]:
    """Load the categories whose names begin with `wanted`, `most` tasks of each.

    Raises InvalidConfiguration.
    """
    folder = installed_data()
    chosen = [name for name in (*MULTI_TURN, *SINGLE_TURN) if name.startswith(wanted)]
    if not chosen:
        known = ", ".join((*MULTI_TURN, *SINGLE_TURN))
        raise InvalidConfiguration("--benchmark", f"no category {wanted!r}; known: {known}")
    tasks: list[BfclTask] = []
    for category in chosen:
        if category in SINGLE_TURN:
            questions = itertools.islice(read_category(folder, category), most)
            tasks += [BfclQuestion(category, *question) for question in questions]
        else:
            tasks += _conversations(folder, category)[:most]
    return (*tasks,)


def _conversations(folder: Path, category: str) -> list[BfclConversation]:
    name = f"BFCL_v4_{category}.json"
    answers = {line.get("id"): line for line in read_lines(folder / "possible_answer" / name)}
    return [
        BfclConversation(category, entry, answers[entry.get("id")].get("ground_truth"))
        for entry in read_lines(folder / name)
    ]


@cache
def _module(name: str) -> ModuleType:
    """Import a module of the package; raises InvalidConfiguration without `mpmath`."""
    # The package's table of models imports the clients of all vendors. The checker reads only one
    # flag from it: whether dots in tool names were replaced by `_`, which is true here. A
    # module with this flag replaces the table.
    table = f"{_PACKAGE}.constants.model_config"
    if table not in sys.modules:
        stand_in = ModuleType(table)
        flags = SimpleNamespace(underscore_to_dot=True)
        vars(stand_in)["MODEL_CONFIG_MAPPING"] = defaultdict(lambda: flags)
        sys.modules[table] = stand_in
    return import_package(name, "bfcl")


@cache
def _tools_of_class(name: str) -> tuple[JsonObject, ...]:
    file = _module(_CLASSES).MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
    functions = read_lines(installed_data() / "multi_turn_func_doc" / str(file))
    return tuple(map(tool_of, functions))


def _about_new_tools() -> tuple[JsonObject, ...]:
    text = str(_module(_PROMPTS).DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC)
    return ({"role": "user", "content": text},)


def _judgment(result: Mapping[str, object]) -> Judgment:
    if result.get("valid") is True:
        return Judgment(right=True)
    why = result.get("error_message") or result.get("error")
    return Judgment(right=False, why=f"{result.get('error_type')}: {why}"[:_MOST_CHARACTERS])


# no such function exists, so the package returns an error for it
_UNKNOWN = "unknown_tool()"


def _as_source(name: str, arguments: JsonObject, turns: Sequence[UserTurn]) -> str:
    """Write a call as Python source, which the package evaluates.

    The name must be that of a tool, and the names of arguments must be identifiers. Otherwise a
    model could run any code.
    """
    known = {tool_name(tool) for tool in turns[-1].tools}
    is_safe = all(key.isidentifier() and not keyword.iskeyword(key) for key in arguments)
    if name not in known or not is_safe:
        return _UNKNOWN
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _read_gold(source: str, tools: Sequence[JsonObject]) -> PlannedCall:
    """Parse a right call from Python source; positional arguments get the schema's names."""
    node = ast.parse(source, mode="eval").body
    assert isinstance(node, ast.Call)  # noqa: S101 - true for all of the package's answers
    name = ast.unparse(node.func)
    schema = next(function_of(tool) for tool in tools if tool_name(tool) == name)["parameters"]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = [*properties] if isinstance(properties, dict) else []
    pairs = [*zip(names, node.args, strict=False)]
    pairs += [(str(argument.arg), argument.value) for argument in node.keywords]
    # converted to JSON values, because a model can send only JSON
    values = standard_json.dumps({key: ast.literal_eval(value) for key, value in pairs})
    arguments = json.parse(values)
    return PlannedCall(name, arguments if isinstance(arguments, dict) else {})


def _first_choice(truth: JsonObject, functions: Sequence[JsonObject]) -> PlannedCall:
    """Return the first allowed call, without the optional arguments that may be absent."""
    name, allowed = next(iter(truth.items()))
    function = next((each for each in functions if each.get("name") == name), {})
    schema = function.get("parameters")
    required = schema.get("required") if isinstance(schema, dict) else None
    arguments = _first_members(allowed, required if isinstance(required, list) else ())
    return PlannedCall(name.replace(".", "_"), arguments)


def _first_members(allowed: JsonValue, required: Sequence[JsonValue] = ()) -> JsonObject:
    chosen: JsonObject = {}
    for name, choices in allowed.items() if isinstance(allowed, dict) else ():
        listed = choices if isinstance(choices, list) else [choices]
        if name in required:
            listed = [choice for choice in listed if choice != ""] or listed
        if listed and (listed[0] != "" or name in required):
            chosen[name] = _first_value(listed[0])
    return chosen


def _first_value(value: JsonValue) -> JsonValue:
    """Return the first allowed value; an object has a list of allowed values for each member."""
    if isinstance(value, dict):
        return _first_members(value)
    return [_first_value(item) for item in value] if isinstance(value, list) else value
