"""One entry of the history: a typed view for judging, and the client's own bytes for sending."""

from typing import TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import ToolCall


class Message(msgspec.Struct, frozen=True):
    """A message of the conversation.

    `text` is the content with its text parts joined. `source` is the message's JSON object as the
    client wrote it: it is sent to the backend as it is, so an untouched history keeps the
    backend's prompt cache. `failed` tells of a tool's result whether the tool failed, where that is
    known and need not be read out of its words.
    """

    role: str
    text: str
    source: bytes
    calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    failed: bool | None = None


Messages: TypeAlias = tuple[Message, ...]


def user_message(text: str) -> Message:
    return Message("user", text, json.dump({"role": "user", "content": text}))


def tool_result(call_id: str, text: str, *, failed: bool | None = None) -> Message:
    source = json.dump({"role": "tool", "tool_call_id": call_id, "content": text})
    return Message("tool", text, source, tool_call_id=call_id, failed=failed)


def call_object(call: ToolCall) -> JsonObject:
    """Return a call as the member `tool_calls` of a message has it."""
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def assistant_message(
    text: str, calls: tuple[ToolCall, ...] = (), *, reasoning: str = ""
) -> Message:
    """Make the message in which an assistant thought, said `text` and made `calls`."""
    source: JsonObject = {"role": "assistant", "content": text}
    if reasoning:
        source["reasoning_content"] = reasoning
    if calls:
        source["tool_calls"] = [call_object(call) for call in calls]
    return Message("assistant", text, json.dump(source), calls)
