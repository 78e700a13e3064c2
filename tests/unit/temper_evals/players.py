"""Players that act in place of a model: by the plan, without calls, or with random calls."""

import random
from collections.abc import Callable
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.invention import invent_arguments
from temper_evals.scenarios.scenario import CallTools, GiveAnswer, Judgment, PlannedCall
from temper_evals.scenarios.task import PlannedTask, try_call
from temper_evals.scenarios.worlds import CannedWorld, schema_of, tool_name

Player: TypeAlias = Callable[[PlannedTask, list[JsonObject]], "tuple[PlannedCall, ...] | str"]


def messages_of(task: PlannedTask) -> list[JsonObject]:
    messages = task.request(0)["messages"]
    assert isinstance(messages, list)
    return [message for message in messages if isinstance(message, dict)]


def calling(calls: tuple[PlannedCall, ...], first: int) -> JsonObject:
    tool_calls: list[JsonValue] = [
        {
            "id": f"c{first + index}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dump_text(call.arguments)},
        }
        for index, call in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def play(task: PlannedTask, player: Player) -> tuple[CannedWorld, list[JsonObject]]:
    """Let a player act until it answers, or for `task.limit` moves."""
    messages = messages_of(task)
    transcript: list[JsonObject] = []
    world = task.world()
    for _ in range(task.limit):
        move = player(task, [*messages, *transcript])
        if isinstance(move, str):
            transcript.append({"role": "assistant", "content": move})
            break
        first = len(transcript)
        transcript.append(calling(move, first))
        for index, call in enumerate(move):
            content = try_call(world, call)
            result: JsonObject = {"tool_call_id": f"c{first + index}", "content": content}
            transcript.append({"role": "tool", **result})
    return world, transcript


def follow_plan(task: PlannedTask, seen: list[JsonObject]) -> tuple[PlannedCall, ...] | str:
    match task.position(seen).action:
        case CallTools(calls):
            return calls[:1] if task.expected.single else calls
        case GiveAnswer(text):
            return text
        case _:
            return "I do not know."


def make_no_calls(_task: PlannedTask, _seen: list[JsonObject]) -> tuple[PlannedCall, ...] | str:
    return "Done."


def make_random_calls(task: PlannedTask, seen: list[JsonObject]) -> tuple[PlannedCall, ...] | str:
    """Make two random valid calls, then answer with their results."""
    results = [str(message["content"]) for message in seen if message.get("role") == "tool"]
    if len(results) > 1:
        return " ".join(results)
    draw = random.Random(f"{task.name} {len(seen)}")
    name = tool_name(draw.choice(task.setting.tools))
    schema = schema_of(task.setting.tools, name) or {}
    return (PlannedCall(name, invent_arguments(schema, draw)),)


def judged(task: PlannedTask, player: Player) -> Judgment:
    world, transcript = play(task, player)
    return task.judge(world, transcript)
