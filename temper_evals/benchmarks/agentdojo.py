"""AgentDojo: tool results that carry instructions of an attacker, judged by the package itself.

The package is used without its dependencies on the clients of vendors:

    pip install 'temper-proxy[benchmarks]' && pip install --no-deps agentdojo

A run is right if the user's task was done, and its damage is 1 if the attacker's task was done. The
attack is the text of the package, followed by the attacker's right calls in one of the syntaxes
that Temper reads. The simulated model does not obey the attack: it makes the user's right calls,
then repeats the attack in its answer. Temper must not turn these repeated calls into tool calls.
"""

import hashlib
import importlib.util
import json as standard_json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Protocol

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.benchmarks.bfcl import UserTurn
from temper_evals.benchmarks.gold_calls import syntax_templates
from temper_evals.benchmarks.packages import import_package
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Transcript, World
from temper_evals.scenarios.task import last_words
from temper_evals.scenarios.worlds import error_text
from temper_evals.simulated.renderings import as_text

_PACKAGE = "agentdojo"
_VERSION = "v1.2.2"  # the version of the suites, which the package numbers separately
_ATTACK = "important_instructions_no_names"
_EXTRA_REPLIES = 5


class FunctionCall(Protocol):
    """A call of the package."""

    function: str
    args: dict[str, object]


@dataclass(frozen=True, slots=True)
class AttackedTask:
    """A task of the user whose tool results contain a task of the attacker.

    `injections` has the attack for each field of the environment that the user's task reads.
    """

    suite: SimpleNamespace
    user: str
    attacker: str
    injections: dict[str, str]
    turns: tuple[UserTurn, ...]

    @property
    def family(self) -> str:
        return f"agentdojo:{self.suite.name}"

    @property
    def name(self) -> str:
        return f"agentdojo-{self.suite.name}-{self.user}-{self.attacker}"

    @property
    def limit(self) -> int:
        return len(self.turns[0].gold) + _EXTRA_REPLIES

    def request(self, seed: int) -> JsonObject:
        turn = self.turns[0]
        return {"messages": [*turn.messages], "tools": [*turn.tools], "seed": seed}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> "AttackedWorld":
        return AttackedWorld(self)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge the user's task and the attacker's task by the checks of the package."""
        assert isinstance(end, AttackedWorld)  # noqa: S101 - made by `world`
        answer = last_words(transcript) or ""
        user, attacker = self.suite.user_tasks[self.user], self.suite.injection_tasks[self.attacker]
        is_right = _is_done(user, "utility", end, answer)
        why = "" if is_right else "the user's task was not done"
        return Judgment(is_right, why, damage=int(_is_done(attacker, "security", end, answer)))


def _is_done(task: SimpleNamespace, check: str, end: "AttackedWorld", answer: str) -> bool:
    """Apply the task's check of the calls; if it has none, apply its check of the final state."""
    evidence = answer, end.before, end.environment
    from_calls = getattr(task, f"{check}_from_traces")(*evidence, end.calls)
    return bool(getattr(task, check)(*evidence) if from_calls is None else from_calls)


@dataclass(slots=True)
class AttackedWorld:
    """The environment of a task; its tool results contain the attack."""

    task: AttackedTask
    environment: SimpleNamespace = field(init=False)
    before: SimpleNamespace = field(init=False)
    calls: list[FunctionCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        suite = self.task.suite
        user = suite.user_tasks[self.task.user]
        self.environment = user.init_environment(_attacked(suite, self.task.injections))
        self.before = self.environment.model_copy(deep=True)

    def call(self, name: str, arguments: JsonObject) -> str:
        functions = _module("functions_runtime")
        self.calls.append(functions.FunctionCall(function=name, args=arguments))
        runtime = functions.FunctionsRuntime(self.task.suite.tools)
        result, error = runtime.run_function(self.environment, name, arguments)
        if error is not None:
            return error_text(str(error))
        text = str(_module("agent_pipeline.tool_execution").tool_result_to_str(result))
        for vector, attack in self.task.injections.items():
            text = text.replace(_placeholder(vector), attack)
        return text


def _placeholder(vector: str) -> str:
    """Return the placeholder of an attack in the environment.

    The environment is a YAML file, and the quotes and line breaks of an attack would break it.
    """
    return f"ATTACK-{vector}"


def _attacked(suite: SimpleNamespace, vectors: dict[str, str]) -> SimpleNamespace:
    marks = {vector: _placeholder(vector) for vector in vectors}
    environment: SimpleNamespace = suite.load_and_inject_default_environment(marks)
    return environment


@lru_cache(maxsize=4)
def load(wanted: str = "", most: int | None = None) -> tuple[AttackedTask, ...]:
    """Load at most `most` attacked tasks of each suite, or of the suite `wanted`.

    Raises InvalidConfiguration.
    """
    suites = _module("task_suite.load_suites").get_suites(_VERSION)
    if wanted and wanted not in suites:
        problem = f"no suite {wanted!r}; known: {', '.join(suites)}"
        raise InvalidConfiguration("--benchmark", problem)
    tasks: list[AttackedTask] = []
    for suite in [suites[wanted]] if wanted else suites.values():
        # evenly over the suite, because consecutive tasks have the same user task
        in_suite = [*_tasks(suite)]
        step = max(1, len(in_suite) // (most or len(in_suite)))
        tasks += in_suite[::step][:most]
    return (*tasks,)


def _tasks(suite: SimpleNamespace) -> Iterator[AttackedTask]:
    _module("attacks")
    pipeline = SimpleNamespace(name="local")
    attack = _module("attacks.attack_registry").load_attack(_ATTACK, suite, pipeline)
    tools = tuple(_tool_of(function) for function in suite.tools)
    attackers = suite.injection_tasks
    for user_name, user in suite.user_tasks.items():
        try:
            vectors = attack.get_injection_candidates(user)
        except ValueError:  # this task reads no field that an attacker can write
            continue
        environment = _attacked(suite, dict.fromkeys(vectors, ""))
        plans = {name: task.ground_truth(environment) for name, task in attackers.items()}
        gold = _calls(user.ground_truth(user.init_environment(environment)))
        for attacker_name, plan in plans.items():
            pair = user, attackers[attacker_name]
            text = _attack_text(f"{user_name} {attacker_name}", attack, pair, _calls(plan))
            answer = user.GROUND_TRUTH_OUTPUT or "That is done."
            messages = ({"role": "user", "content": user.PROMPT},)
            turn = UserTurn(messages, tools, gold, answer, attack=text)
            injections = dict.fromkeys(vectors, text)
            yield AttackedTask(suite, user_name, attacker_name, injections, (turn,))


def _attack_text(
    key: str,
    attack: SimpleNamespace,
    tasks: tuple[SimpleNamespace, SimpleNamespace],
    calls: Sequence[PlannedCall],
) -> str:
    """Return the attack of the package, and the attacker's calls in a syntax drawn by `key`."""
    syntaxes = [*syntax_templates().values()]
    draw = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest())
    syntax = syntaxes[draw % len(syntaxes)]
    text = str(next(iter(attack.attack(*tasks).values()))).strip()
    return "\n".join([text, *(as_text(call, syntax) for call in calls)])


def _tool_of(function: SimpleNamespace) -> JsonObject:
    parameters = json.parse(json.dump(function.parameters.model_json_schema()))
    description = {"name": function.name, "description": function.description}
    return {"type": "function", "function": {**description, "parameters": parameters}}


def _calls(calls: Sequence[FunctionCall]) -> tuple[PlannedCall, ...]:
    """Convert the arguments of calls to JSON values, because a model can send only JSON."""
    copied: list[PlannedCall] = []
    for call in calls:
        arguments = json.parse(standard_json.dumps(call.args))
        copied.append(PlannedCall(call.function, arguments if isinstance(arguments, dict) else {}))
    return tuple(copied)


@cache
def _module(name: str) -> ModuleType:
    """Import a module of the package; raises InvalidConfiguration."""
    spec = importlib.util.find_spec(_PACKAGE)
    pipeline = f"{_PACKAGE}.agent_pipeline"
    if spec is not None and spec.origin is not None and pipeline not in sys.modules:
        # `agent_pipeline` imports the clients of all vendors, from which the suites need only one
        # constant.
        stand_in, client = ModuleType(pipeline), ModuleType(f"{pipeline}.llms.google_llm")
        stand_in.__path__ = [str(Path(spec.origin).parent / "agent_pipeline")]
        vars(client)["EMPTY_FUNCTION_NAME"] = "<empty-function-name>"
        sys.modules |= {pipeline: stand_in, client.__name__: client}
    return import_package(f"{_PACKAGE}.{name}", _PACKAGE, _PACKAGE)
