"""Mends what is broken in an incoming history, and only that, always in the same way.

llama-server answers 500 to every later turn once a history holds arguments that are not JSON, so
one bad call of the past would end a conversation. Untouched messages keep their exact bytes.
"""

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.facts import Fact, Healed


def heal_messages(
    messages: tuple[Message, ...],
) -> tuple[tuple[Message, ...], tuple[Fact, ...]]:
    """Return messages that any backend can read, and what was mended."""
    facts: list[Fact] = []
    healed = tuple(
        _heal_message(message, facts) if message.role == "assistant" else message
        for message in messages
    )
    return healed, tuple(facts)


def heal_tools(tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], tuple[Fact, ...]]:
    """Drop `description: null`, which OpenAI allows and llama-server answers with a 500."""
    facts: list[Fact] = []
    return tuple(_heal_tool(tool, facts) for tool in tools), tuple(facts)


def _heal_message(message: Message, facts: list[Fact]) -> Message:
    if message.text and not message.calls:
        return message
    source = json.parse(message.source)
    assert isinstance(source, dict)  # noqa: S101 - the dialect made the message from an object
    calls = source.get("tool_calls")
    before = len(facts)
    if isinstance(calls, list) and calls:
        source["tool_calls"] = [_heal_call(call, facts) for call in calls]
    elif "content" not in source:
        source["content"] = ""
        facts.append(Healed("content"))
    if len(facts) == before:
        return message
    return Message(
        message.role, message.text, json.dump(source), message.calls, message.tool_call_id
    )


def _heal_call(call: JsonValue, facts: list[Fact]) -> JsonValue:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    assert isinstance(function, dict)  # noqa: S101 - checked one line above
    written = function.get("arguments")
    arguments = _heal_arguments(written)
    if arguments == written and "type" in call:
        return call
    facts.append(Healed("arguments" if arguments != written else "type"))
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


def _heal_arguments(written: JsonValue) -> JsonValue:
    """Make arguments JSON: nothing means none, and what cannot be parsed is kept as a string."""
    if written is None or (isinstance(written, str) and not written.strip()):
        return "{}"
    if not isinstance(written, str):
        return written
    try:
        json.parse(written)
    except ValueError:
        kept: JsonObject = {"unparsable": written}
        return json.dump_text(kept)
    return written


def _heal_tool(tool: Tool, facts: list[Fact]) -> Tool:
    if b"null" not in tool.source:
        return tool
    source = json.parse(tool.source)
    assert isinstance(source, dict)  # noqa: S101 - the dialect made the tool from an object
    function = source.get("function")
    if not isinstance(function, dict) or function.get("description", "") is not None:
        return tool
    source["function"] = {key: value for key, value in function.items() if key != "description"}
    facts.append(Healed("description"))
    return Tool(tool.name, tool.parameters, json.dump(source))
