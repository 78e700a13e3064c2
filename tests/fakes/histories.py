"""Histories as clients write them, and what has become of them."""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.dialects.openai_chat.decode import decode_request


def history(*messages: JsonObject) -> tuple[Message, ...]:
    """Read messages as they come from a client."""
    if not messages:
        return ()
    return decode_request(json.dump({"messages": list(messages)})).messages


def written(messages: Sequence[Message]) -> list[JsonValue]:
    """Return what is sent to a backend; what we know of a message must be what it says."""
    sent = [json.parse(message.source) for message in messages]
    reread = history(*(one for one in sent if isinstance(one, dict)))
    assert [(one.role, one.text, one.tool_call_id) for one in reread] == [
        (one.role, one.text, one.tool_call_id) for one in messages
    ]
    assert [[(call.id, call.name) for call in one.calls] for one in reread] == [
        [(call.id, call.name) for call in one.calls] for one in messages
    ]
    return sent


def unpaired(messages: Sequence[Message]) -> int:
    """Count the calls without a result, and the results without a call."""
    waiting: dict[str, int] = {}
    lonely = 0
    for message in messages:
        for call_id in {one.id for one in message.calls}:
            lonely += waiting.pop(call_id, 0)
        for one in message.calls:
            waiting[one.id] = waiting.get(one.id, 0) + 1
        if message.role in ("tool", "function"):
            answered = message.tool_call_id or ""
            lonely += waiting.get(answered, 0) < 1
            waiting[answered] = max(0, waiting.get(answered, 0) - 1)
    return lonely + sum(waiting.values())


def said(role: str, content: JsonValue, **more: JsonValue) -> JsonObject:
    """Write a message without calls."""
    return {"role": role, "content": content, **more}


def call(call_id: str | None, name: str = "look", arguments: JsonValue = "{}") -> JsonObject:
    """Write a call, without an id if it is None."""
    function: JsonObject = {"name": name, "arguments": arguments}
    written: JsonObject = {"type": "function", "function": function}
    return written if call_id is None else {"id": call_id, **written}


def called(*calls: JsonValue, **more: JsonValue) -> JsonObject:
    """Write a message of the assistant with calls."""
    return {"role": "assistant", **more, "tool_calls": list(calls)}


def result(call_id: str | None, content: JsonValue = "seen", **more: JsonValue) -> JsonObject:
    """Write a result, without an id if it is None."""
    message = said("tool", content, **more)
    return message if call_id is None else {**message, "tool_call_id": call_id}


def make_tool(name: str, *required: str, **properties: JsonValue) -> JsonValue:
    """Write a tool."""
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(required),
    }
    function: JsonObject = {"name": name, "description": f"{name}.", "parameters": parameters}
    return {"type": "function", "function": function}
