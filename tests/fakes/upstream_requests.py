"""Upstream requests for backends, and response bodies of backends."""

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import user_message
from proxy.conversation.requests import Parsing, Request, UpstreamRequest
from proxy.conversation.tools import Tool, ToolChoice, ToolUse

WEATHER: JsonObject = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object"}},
}


def upstream_request(
    *,
    tool_choice: ToolChoice = ToolUse.AUTO,
    parsing: Parsing = Parsing.BACKEND,
    schema: JsonObject | None = None,
    has_tools: bool = True,
    text: str = "[[weather]]",
) -> UpstreamRequest:
    """Return an upstream request with one message and one tool."""
    message = user_message(text)
    tools = (Tool("get_weather", {"type": "object"}, json.dump(WEATHER)),) if has_tools else ()
    fields = {"model": b'"m"', "messages": b"[" + message.source + b"]", "seed": b"7"}
    if tools:
        fields["tools"] = json.dump([WEATHER])
    if tool_choice is not ToolUse.AUTO:
        fields["tool_choice"] = json.dump(_written(tool_choice))
    request = Request("m", (message,), fields, tools, tool_choice)
    return UpstreamRequest(request, (message,), tools, tool_choice, parsing, schema)


def _written(tool_choice: ToolChoice) -> JsonValue:
    if isinstance(tool_choice, ToolUse):
        return tool_choice.value
    return {"type": "function", "function": {"name": tool_choice.name}}


def chunk(delta: JsonObject, reason: str | None = None) -> JsonObject:
    """Return one chunk of a stream."""
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [choice],
    }


def stream(*chunks: JsonValue, done: bool = True) -> bytes:
    """Return chunks as server-sent events."""
    body = b"".join(b"data: " + json.dump(each) + b"\n\n" for each in chunks)
    return body + b"data: [DONE]\n\n" if done else body


HELLO = stream(
    chunk({"role": "assistant", "content": None}), chunk({"content": "Hello"}), chunk({}, "stop")
)
