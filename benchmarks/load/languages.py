"""The API dialects of clients: the same request in each, converted from chat completions."""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.worlds import objects_in


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: its path, and the conversion of a chat completion request."""

    path: str
    convert: Callable[[JsonObject], JsonObject]


def _as_messages(body: JsonObject) -> JsonObject:
    """Convert to the Messages API, in which tool results are blocks of user messages."""
    system, *others = objects_in(body["messages"])
    tools: list[JsonValue] = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": tool["parameters"],
        }
        for tool in _functions(body)
    ]
    conversation: JsonObject = {"system": system["content"], "messages": [*map(_message, others)]}
    rest: JsonObject = {"model": body["model"], "stream": body["stream"], "max_tokens": 4096}
    return {**rest, **conversation, "temperature": body["temperature"], "tools": tools}


def _message(message: JsonObject) -> JsonObject:
    if message["role"] == "tool":
        block: JsonObject = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": message["content"],
        }
        return {"role": "user", "content": [block]}
    calls: list[JsonValue] = [
        {"type": "tool_use", "id": call_id, "name": name, "input": json.parse(arguments)}
        for call_id, name, arguments in _calls(message)
    ]
    return {"role": message["role"], "content": calls or message["content"]}


def _as_responses(body: JsonObject) -> JsonObject:
    """Convert to the Responses API as Codex uses it: messages, calls and results in one list."""
    system, *others = objects_in(body["messages"])
    items: list[JsonValue] = [item for message in others for item in _items(message)]
    tools: list[JsonValue] = [{"type": "function", **tool} for tool in _functions(body)]
    conversation: JsonObject = {"instructions": system["content"], "input": items, "store": False}
    rest: JsonObject = {name: body[name] for name in ("model", "stream", "temperature")}
    return {**rest, **conversation, "tools": tools}


def _as_ollama(body: JsonObject) -> JsonObject:
    """Convert to Ollama's API, in which the arguments of calls are objects."""
    conversation: JsonObject = {"messages": [*map(_ollama_message, objects_in(body["messages"]))]}
    rest: JsonObject = {"model": body["model"], "stream": body["stream"], **conversation}
    return {**rest, "options": {"temperature": body["temperature"]}, "tools": body["tools"]}


def _ollama_message(message: JsonObject) -> JsonObject:
    calls: list[JsonValue] = [
        {"id": call_id, "function": {"name": name, "arguments": json.parse(arguments)}}
        for call_id, name, arguments in _calls(message)
    ]
    return {**message, "tool_calls": calls} if calls else message


def _items(message: JsonObject) -> list[JsonObject]:
    if message["role"] == "tool":
        output = {"call_id": message["tool_call_id"], "output": message["content"]}
        return [{"type": "function_call_output", **output}]
    calls: list[JsonObject] = [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in _calls(message)
    ]
    return calls or [{"type": "message", "role": message["role"], "content": message["content"]}]


def _calls(message: JsonObject) -> list[tuple[str, str, str]]:
    calls: list[tuple[str, str, str]] = []
    for call in objects_in(message.get("tool_calls", [])):
        (function,) = objects_in([call["function"]])
        calls.append((str(call["id"]), str(function["name"]), str(function["arguments"])))
    return calls


def _functions(body: JsonObject) -> list[JsonObject]:
    return objects_in([tool["function"] for tool in objects_in(body.get("tools", []))])


CHAT = Dialect("/v1/chat/completions", lambda body: body)
DIALECTS = {
    "messages": Dialect("/v1/messages", _as_messages),
    "responses": Dialect("/v1/responses", _as_responses),
    "ollama": Dialect("/api/chat", _as_ollama),
}
