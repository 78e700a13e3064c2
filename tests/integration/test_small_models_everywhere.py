"""The failures of small models over HTTP: every API dialect, streamed or not, has the same answer.

`tests/playbooks/test_small_models.py` has the table of failures; this file has one of each class.
"""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.examples import mostly_deep
from tests.fakes.languages import LanguageReply, post
from tests.fakes.running_proxy import temper
from tests.fakes.scripted_backend import Ending, ReceivedRequest, Script
from tests.fakes.small_models import (
    BOOKING_REQUEST,
    FAILURES,
    RETRO,
    STANDUP_RUN,
    TOOLS,
    Conversation,
    ExecutedCall,
    write_call,
)
from tests.fakes.sse import START, says, text
from tests.timeouts import TIMEOUT_SECONDS

CLASSES = (
    "R1 bare",
    "R1 arguments as a text",
    "R1 a part is open",
    "R2 markup",
    "R2 ok",
    "R2 label",
    "R2 wrapped",
    "R3 a new call",
    "R3 a repeated call",
    "R3 a new call in tags",
    "R4 a repeated call",
    "R4 a new call in Python",
    "R4 an invalid call in a retry",
    "R5 lines",
    "R5 a placeholder",
    "R6",
    "R7",
    "R7 on one line",
    "R8 words",
    "R8 insisted on",
    "R9 an unknown syntax",
)
MARKUP = ('{"name"', "<tool_response>", "<tool_call>", "gave no usable reply")
PIECE = 7


def write_chat(conversation: Conversation) -> JsonObject:
    messages: list[JsonValue] = [{"role": "user", "content": conversation.request}]
    for call_id, run in _number(conversation):
        function: JsonObject = {"name": run.name, "arguments": json.dump_text(run.arguments)}
        call: JsonObject = {"id": call_id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": run.result})
    return {"messages": messages, "tools": _wrap_tools()}


def write_messages(conversation: Conversation) -> JsonObject:
    messages: list[JsonValue] = [{"role": "user", "content": conversation.request}]
    for call_id, run in _number(conversation):
        use: JsonObject = {"type": "tool_use", "id": call_id, "name": run.name}
        result: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": run.result}
        messages.append({"role": "assistant", "content": [{**use, "input": run.arguments}]})
        messages.append({"role": "user", "content": [result]})
    tools: list[JsonValue] = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": tool["parameters"],
        }
        for tool in TOOLS
    ]
    return {"messages": messages, "tools": tools, "max_tokens": 4_000}


def write_responses(conversation: Conversation) -> JsonObject:
    items: list[JsonValue] = [{"role": "user", "content": conversation.request}]
    for call_id, run in _number(conversation):
        call: JsonObject = {"type": "function_call", "call_id": call_id, "name": run.name}
        items.append({**call, "arguments": json.dump_text(run.arguments)})
        items.append({"type": "function_call_output", "call_id": call_id, "output": run.result})
    tools: list[JsonValue] = [{"type": "function", "strict": False, **tool} for tool in TOOLS]
    return {"input": items, "tools": tools, "store": False}


def write_ollama(conversation: Conversation) -> JsonObject:
    messages: list[JsonValue] = [{"role": "user", "content": conversation.request}]
    for _, run in _number(conversation):
        call: JsonObject = {"function": {"name": run.name, "arguments": run.arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_name": run.name, "content": run.result})
    return {"messages": messages, "tools": _wrap_tools()}


def _number(conversation: Conversation) -> list[tuple[str, ExecutedCall]]:
    return [(f"call_{number}", run) for number, run in enumerate(conversation.executed)]


def _wrap_tools() -> list[JsonValue]:
    return [{"type": "function", "function": tool} for tool in TOOLS]


DIALECTS: dict[str, tuple[str, Callable[[Conversation], JsonObject]]] = {
    "chat": ("/v1/chat/completions", write_chat),
    "messages": ("/v1/messages", write_messages),
    "responses": ("/v1/responses", write_responses),
    "ollama": ("/api/chat", write_ollama),
}


async def send(
    conversation: Conversation, dialect: str, *, stream: bool
) -> tuple[LanguageReply, list[ReceivedRequest]]:
    """Send a conversation; returns the answer, and the requests that the backend received."""
    path, write = DIALECTS[dialect]
    replies = [
        says(*(reply[start : start + PIECE] for start in range(0, len(reply), PIECE)))
        for reply in conversation.replies
    ]
    body: JsonObject = {"model": "m", "stream": stream, **write(conversation)}
    async with temper(*replies) as proxy:
        got = await post(proxy, path, body)
        return got, proxy.backend.upstream_requests


@pytest.mark.parametrize("name", mostly_deep(CLASSES))
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_failure_of_a_small_model_has_the_same_calls_and_text_in_every_dialect(
    dialect: str, name: str, stream: bool
) -> None:
    conversation = FAILURES[name]
    got, received = await send(conversation, dialect, stream=stream)
    assert (got.status, got.error) == (200, "")
    assert got.called == conversation.calls
    assert got.text == conversation.text
    assert not any(mark in got.text for mark in MARKUP)
    assert not any((run.name, run.arguments) in got.called for run in conversation.executed)
    assert len(received) == len(conversation.attempts)
    for before, after in pairwise(received):
        assert after.messages[: len(before.messages)] == before.messages
    is_constrained = [
        "response_format" in request.fields or "json_schema" in request.fields
        for request in received
    ]
    assert is_constrained == [kind in ("ending", "constrained") for kind in conversation.attempts]


COPIES = 3
MANY = 200
PAUSE_SECONDS = 0.01


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_generation_is_stopped_at_the_third_copy_of_a_call(dialect: str) -> None:
    conversation = Conversation(BOOKING_REQUEST, (STANDUP_RUN,), ())
    path, write = DIALECTS[dialect]
    line = f"{write_call('add_event', RETRO)}\n"
    # a pause before each further copy, in which the proxy reads the earlier copies
    pauses = [asyncio.Event() for _ in range(MANY)]
    further = [step for pause in pauses for step in (pause, text(line))]
    endless = Script((START + text(*[line] * COPIES), *further, Ending.NEVER))

    async def go_on() -> None:
        for pause in pauses:
            await asyncio.sleep(PAUSE_SECONDS)
            pause.set()

    async with (
        temper(endless) as proxy,
        asyncio.TaskGroup() as group,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        model = group.create_task(go_on())
        body: JsonObject = {"model": "m", "stream": True, **write(conversation)}
        got = await post(proxy, path, body)
        (received,) = proxy.backend.upstream_requests
        await received.left.wait()
        model.cancel()
    assert got.called == (("add_event", RETRO),)
    assert got.text == ""
