"""The suite as a task of Inspect AI, which asks the model and records what was said in its own way.

    inspect eval proxy/temper_suite --model openai-api/local/NAME -T families=chain,trap --epochs 5

What is right is judged as in `temper eval`; an epoch is a seed. Inspect keeps no bounds of numbers
in the schemas of tools, and offers no stream, so the figures of the two are not to be mixed.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.runs import asked_in
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
_OWN_MEMBERS = ("messages", "tools")
_MOST_CHARACTERS = 500


@task
def temper_suite(suite: str = "quick", families: str | Sequence[str] = ()) -> Task:
    """Make a task of a suite, `quick` or `full`, or of some of its families."""
    named = (families,) if isinstance(families, str) else tuple(families)
    samples = [
        Sample(input=one.user, id=one.name, metadata={"family": one.family})
        for one in tasks_of(suite, named)
    ]
    return Task(dataset=MemoryDataset(samples), solver=agent_loop(), scorer=judgement())


@solver
def agent_loop() -> Solver:
    """Ask, run what is called, and ask again: the plain loop of `temper eval`."""

    async def solve(state: TaskState, _generate: Generate) -> TaskState:
        own = task_named(str(state.sample_id))
        if own is None:
            raise InvalidConfiguration("sample", f"there is no task {state.sample_id!r}")
        world, seed = own.world(), state.epoch - 1
        state.messages = [_as_message(one) for one in asked_in(own, seed)]
        problem = await _run(own, seed, state, world)
        judged = own.judge(world, [_as_said(one) for one in state.messages])
        state.metadata[_JUDGEMENT] = {
            "right": judged.right and not problem,
            "why": problem or judged.why,
            "damage": judged.damage,
            "promoted": judged.promoted,
        }
        return state

    return solve


async def _run(own: PlannedTask, seed: int, state: TaskState, world: CannedWorld) -> str:
    """Run a task until the model answers; returns why it never came to that."""
    request = own.request(seed)
    extra = {name: one for name, one in request.items() if name not in _OWN_MEMBERS}
    config = GenerateConfig(extra_body=extra or None)
    for place in range(own.limit):
        choice = _choice(own.first_fields()) if place == 0 else "auto"
        try:
            output = await get_model().generate(
                state.messages, tools=_tools(own), tool_choice=choice, config=config
            )
        except RuntimeError as failure:  # what a provider says no to, once it was asked again
            return f"the request failed: {str(failure)[-_MOST_CHARACTERS:]}"
        state.output = output
        state.messages.append(output.message)
        if not output.message.tool_calls:
            return "" if output.stop_reason == "stop" else f"it ended with {output.stop_reason}"
        state.messages += [_answer_call(one, world) for one in output.message.tool_calls]
    return "it came to no answer within its limit"


def _tools(own: PlannedTask) -> list[ToolInfo]:
    return [
        ToolInfo(
            name=str(function["name"]),
            description=str(function["description"]),
            parameters=ToolParams.model_validate(function["parameters"]),
        )
        for function in map(function_of, own.setting.tools)
    ]


def _choice(first: JsonObject) -> ToolChoice:
    """Read what the first request demands: any call, this call, or nothing."""
    choice = first.get("tool_choice")
    if isinstance(choice, dict):
        return ToolFunction(name=str(function_of(choice)["name"]))
    return "any" if choice == "required" else "auto"


def _answer_call(call: ToolCall, world: CannedWorld) -> ChatMessageTool:
    """Run a call; what cannot be read goes back to the model, as in every loop of these tasks."""
    if call.parse_error is not None:
        told = error_text("the arguments are no JSON object")
    else:
        told = try_call(world, PlannedCall(call.function, call.arguments))
    return ChatMessageTool(content=told, tool_call_id=call.id, function=call.function)


def _as_message(message: JsonObject) -> ChatMessage:
    text = str(message["content"])
    is_system = message["role"] == "system"
    return ChatMessageSystem(content=text) if is_system else ChatMessageUser(content=text)


def _as_said(message: ChatMessage) -> JsonObject:
    """Write a message as the judges of a task read it."""
    calls: list[JsonValue] = []
    if isinstance(message, ChatMessageAssistant):
        calls = [
            {"id": one.id, "function": {"name": one.function, "arguments": _text(one)}}
            for one in message.tool_calls or ()
        ]
    said: JsonObject = {"role": message.role, "content": message.text}
    return {**said, "tool_calls": calls} if calls else said


def _text(call: ToolCall) -> str:
    return json.dump_text(call.arguments)


@scorer(metrics=[accuracy(), stderr(), grouped(accuracy(), "family")])
def judgement() -> Scorer:
    """Score by what the tasks themselves judged; damage and promoted calls are told beside it."""

    async def score(state: TaskState, _target: Target) -> Score:
        judged = state.metadata[_JUDGEMENT]
        return Score(
            value=CORRECT if judged["right"] else INCORRECT,
            answer=state.output.completion,
            explanation=judged["why"] or "right",
            metadata={"damage": judged["damage"], "promoted": judged["promoted"]},
        )

    return score
