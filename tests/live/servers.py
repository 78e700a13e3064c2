"""Checks that hold for every real server behind Temper, and for any model."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, cast

from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.answers import Answer
from tests.fakes.running_proxy import RunningProxy
from tests.fakes.scripts import TOOLS

Open: TypeAlias = Callable[[], AbstractAsyncContextManager[RunningProxy]]


def question(model: str, **others: JsonValue) -> JsonObject:
    """Return a request that requires a call."""
    prompt = "What is the weather in Paris? Use the tool."
    messages: list[JsonValue] = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "tools": list(TOOLS), **others}


async def check_required_call(temper: Open, body: JsonObject, *, stream: bool) -> None:
    async with temper() as proxy:
        answer = await proxy.ask({**body, "tool_choice": "required"}, stream=stream)
    assert answer.error is None
    assert [name for name, _ in answer.called][:1] == ["get_weather"]
    assert answer.reason == "tool_calls"


async def answer_after_a_call(temper: Open, body: JsonObject, *instructions: JsonValue) -> Answer:
    """Let the model make a call, and return its answer to the result of the call."""
    async with temper() as proxy:
        call = (await proxy.ask({**body, "tool_choice": "required"})).calls[0]
        history: list[JsonValue] = [
            *instructions[:1],
            *cast("list[JsonValue]", body["messages"]),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "sunny, 21 degrees"},
            *instructions[1:],
        ]
        answer = await proxy.ask({**body, "messages": history, "tool_choice": "none"})
    assert answer.error is None
    assert answer.text
    return answer
