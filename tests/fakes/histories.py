"""Message histories as clients write them, and as backends receive them."""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.dialects.openai_chat.decode import decode_request


def history(*messages: JsonObject) -> tuple[Message, ...]:
    """Decode messages as they arrive from a client."""
    if not messages:
        return ()
    return decode_request(json.dump({"messages": list(messages)})).messages


def written(messages: Sequence[Message]) -> list[JsonValue]:
    """Return the messages as sent to a backend; their typed fields must match the source bytes."""
    sent = [json.parse(message.source) for message in messages]
    reread = history(*(item for item in sent if isinstance(item, dict)))
    assert [(message.role, message.text, message.tool_call_id) for message in reread] == [
        (message.role, message.text, message.tool_call_id) for message in messages
    ]
    assert [[(call.id, call.name) for call in message.calls] for message in reread] == [
        [(call.id, call.name) for call in message.calls] for message in messages
    ]
    return sent


def unpaired(messages: Sequence[Message]) -> int:
    """Count the calls without a result, and the results without a call."""
    waiting: dict[str, int] = {}
    lonely = 0
    for message in messages:
        for call_id in {call.id for call in message.calls}:
            lonely += waiting.pop(call_id, 0)
        for call in message.calls:
            waiting[call.id] = waiting.get(call.id, 0) + 1
        if message.role in ("tool", "function"):
            answered = message.tool_call_id or ""
            lonely += waiting.get(answered, 0) < 1
            waiting[answered] = max(0, waiting.get(answered, 0) - 1)
    return lonely + sum(waiting.values())


def said(role: str, content: JsonValue, **more: JsonValue) -> JsonObject:
    """Return a message without calls."""
    return {"role": role, "content": content, **more}


def call(call_id: str | None, name: str = "look", arguments: JsonValue = "{}") -> JsonObject:
    """Return a call, without an id if it is None."""
    function: JsonObject = {"name": name, "arguments": arguments}
    tool_call: JsonObject = {"type": "function", "function": function}
    return tool_call if call_id is None else {"id": call_id, **tool_call}


def called(*calls: JsonValue, **more: JsonValue) -> JsonObject:
    """Return an assistant message with calls."""
    return {"role": "assistant", **more, "tool_calls": list(calls)}


def result(call_id: str | None, content: JsonValue = "seen", **more: JsonValue) -> JsonObject:
    """Return a tool result, without an id if it is None."""
    message = said("tool", content, **more)
    return message if call_id is None else {**message, "tool_call_id": call_id}


def make_tool(name: str, *required: str, **properties: JsonValue) -> JsonValue:
    """Return a function tool."""
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(required),
    }
    function: JsonObject = {"name": name, "description": f"{name}.", "parameters": parameters}
    return {"type": "function", "function": function}
