"""The suite as a task of Inspect AI, which sends the requests and writes its logs.

    inspect eval proxy/temper_suite --model openai-api/local/NAME -T families=chain,trap --epochs 5

`temper eval` judges in the same way; an epoch is a seed. Inspect drops numeric bounds from the
schemas of tools and does not stream, so its figures must not be mixed with those of `temper eval`.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.runs import first_messages
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.suite import suite as tasks_of
from temper_evals.scenarios.suite import task_named
from temper_evals.scenarios.task import PlannedTask, try_call
from temper_evals.scenarios.worlds import CannedWorld, error_text, function_of

try:
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        GenerateConfig,
        get_model,
    )
    from inspect_ai.scorer import (
        CORRECT,
        INCORRECT,
        Score,
        Scorer,
        Target,
        accuracy,
        grouped,
        scorer,
        stderr,
    )
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.tool import ToolCall, ToolChoice, ToolFunction, ToolInfo, ToolParams
except ImportError as error:
    problem = "needs Inspect AI: pip install 'temper-proxy[inspect]'"
    raise InvalidConfiguration("temper_evals.inspect", problem) from error

_JUDGEMENT = "judgement"
_MEMBERS_OF_INSPECT = ("messages", "tools")
_MOST_CHARACTERS = 500


@task
def temper_suite(suite: str = "quick", families: str | Sequence[str] = ()) -> Task:
    """Return a suite, `quick` or `full`, or some of its families as a task of Inspect."""
    named = (families,) if isinstance(families, str) else tuple(families)
    samples = [
        Sample(input=task.user, id=task.name, metadata={"family": task.family})
        for task in tasks_of(suite, named)
    ]
    return Task(dataset=MemoryDataset(samples), solver=agent_loop(), scorer=judgement())


@solver
def agent_loop() -> Solver:
    """Return the agent loop of `temper eval`: request a reply, run its calls, repeat."""

    async def solve(state: TaskState, _generate: Generate) -> TaskState:
        task = task_named(str(state.sample_id))
        if task is None:
            raise InvalidConfiguration("sample", f"unknown task {state.sample_id!r}")
        world, seed = task.world(), state.epoch - 1
        state.messages = [_as_message(message) for message in first_messages(task, seed)]
        problem = await _run(task, seed, state, world)
        judged = task.judge(world, [_as_json(message) for message in state.messages])
        state.metadata[_JUDGEMENT] = {
            "right": judged.right and not problem,
            "why": problem or judged.why,
            "damage": judged.damage,
            "promoted": judged.promoted,
        }
        return state

    return solve


async def _run(task: PlannedTask, seed: int, state: TaskState, world: CannedWorld) -> str:
    """Run a task until the model answers; returns the reason if it never does."""
    request = task.request(seed)
    extra = {name: value for name, value in request.items() if name not in _MEMBERS_OF_INSPECT}
    config = GenerateConfig(extra_body=extra or None)
    for number in range(task.limit):
        choice = _choice(task.first_fields()) if number == 0 else "auto"
        try:
            output = await get_model().generate(
                state.messages, tools=_tools(task), tool_choice=choice, config=config
            )
        except RuntimeError as failure:  # the provider refused the request after all retries
            return f"the request failed: {str(failure)[-_MOST_CHARACTERS:]}"
        state.output = output
        state.messages.append(output.message)
        if not output.message.tool_calls:
            return "" if output.stop_reason == "stop" else f"it ended with {output.stop_reason}"
        state.messages += [
            _answer_call(tool_call, world) for tool_call in output.message.tool_calls
        ]
    return "no answer within the limit"


def _tools(task: PlannedTask) -> list[ToolInfo]:
    return [
        ToolInfo(
            name=str(function["name"]),
            description=str(function["description"]),
            parameters=ToolParams.model_validate(function["parameters"]),
        )
        for function in map(function_of, task.setting.tools)
    ]


def _choice(first: JsonObject) -> ToolChoice:
    """Return the tool choice of the first request: any call, a named call, or auto."""
    choice = first.get("tool_choice")
    if isinstance(choice, dict):
        return ToolFunction(name=str(function_of(choice)["name"]))
    return "any" if choice == "required" else "auto"


def _answer_call(call: ToolCall, world: CannedWorld) -> ChatMessageTool:
    """Run a call; an unreadable call becomes an error result, as in the loop of `temper eval`."""
    if call.parse_error is not None:
        content = error_text("the arguments are not a JSON object")
    else:
        content = try_call(world, PlannedCall(call.function, call.arguments))
    return ChatMessageTool(content=content, tool_call_id=call.id, function=call.function)


def _as_message(message: JsonObject) -> ChatMessage:
    text = str(message["content"])
    is_system = message["role"] == "system"
    return ChatMessageSystem(content=text) if is_system else ChatMessageUser(content=text)


def _as_json(message: ChatMessage) -> JsonObject:
    """Convert a message to the JSON form that `PlannedTask.judge` reads."""
    calls: list[JsonValue] = []
    if isinstance(message, ChatMessageAssistant):
        calls = [
            {
                "id": tool_call.id,
                "function": {"name": tool_call.function, "arguments": _text(tool_call)},
            }
            for tool_call in message.tool_calls or ()
        ]
    sent: JsonObject = {"role": message.role, "content": message.text}
    return {**sent, "tool_calls": calls} if calls else sent


def _text(call: ToolCall) -> str:
    return json.dump_text(call.arguments)


@scorer(metrics=[accuracy(), stderr(), grouped(accuracy(), "family")])
def judgement() -> Scorer:
    """Score by the task's judgment; damage and promoted calls become metadata."""

    async def score(state: TaskState, _target: Target) -> Score:
        judged = state.metadata[_JUDGEMENT]
        return Score(
            value=CORRECT if judged["right"] else INCORRECT,
            answer=state.output.completion,
            explanation=judged["why"] or "right",
            metadata={"damage": judged["damage"], "promoted": judged["promoted"]},
        )

    return score
