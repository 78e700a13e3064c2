"""Those who play a scenario: one that knows what is right, one that idles, one that gambles."""

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
    asked = task.request(0)["messages"]
    assert isinstance(asked, list)
    return [one for one in asked if isinstance(one, dict)]


def calling(calls: tuple[PlannedCall, ...], first: int) -> JsonObject:
    written: list[JsonValue] = [
        {
            "id": f"c{first + place}",
            "type": "function",
            "function": {"name": one.name, "arguments": json.dump_text(one.arguments)},
        }
        for place, one in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": written}


def play(task: PlannedTask, player: Player) -> tuple[CannedWorld, list[JsonObject]]:
    """Let a player play to its end; returns the world and what was said."""
    asked = messages_of(task)
    said: list[JsonObject] = []
    world = task.world()
    for _ in range(task.limit):
        move = player(task, [*asked, *said])
        if isinstance(move, str):
            said.append({"role": "assistant", "content": move})
            break
        first = len(said)
        said.append(calling(move, first))
        for place, call in enumerate(move):
            content = try_call(world, call)
            told: JsonObject = {"tool_call_id": f"c{first + place}", "content": content}
            said.append({"role": "tool", **told})
    return world, said


def knowing(task: PlannedTask, seen: list[JsonObject]) -> tuple[PlannedCall, ...] | str:
    match task.position(seen).action:
        case CallTools(calls):
            return calls[:1] if task.expected.single else calls
        case GiveAnswer(text):
            return text
        case _:
            return "I do not know."


def idling(_task: PlannedTask, _seen: list[JsonObject]) -> tuple[PlannedCall, ...] | str:
    return "Done."


def gambling(task: PlannedTask, seen: list[JsonObject]) -> tuple[PlannedCall, ...] | str:
    """Call any tool with any valid arguments, twice, and say all that came back."""
    results = [str(one["content"]) for one in seen if one.get("role") == "tool"]
    if len(results) > 1:
        return " ".join(results)
    draw = random.Random(f"{task.name} {len(seen)}")
    name = tool_name(draw.choice(task.setting.tools))
    schema = schema_of(task.setting.tools, name) or {}
    return (PlannedCall(name, invent_arguments(schema, draw)),)


def judged(task: PlannedTask, player: Player) -> Judgment:
    world, said = play(task, player)
    return task.judge(world, said)
