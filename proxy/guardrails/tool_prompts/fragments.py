"""The pieces of JSON from which conventions are put together, safe inside any of their marks.

A mark within JSON can only stand in a string. There its first character is written as an escape:
the value stays the same, and the mark is none.
"""

from collections.abc import Iterable, Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.transcript import object_of


def escape(document: str, marks: Iterable[str]) -> str:
    """Write JSON without any of `marks` in it."""
    for mark in marks:
        document = document.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return document


def offered(tools: Sequence[Tool], respond: Tool | None) -> tuple[Tool, ...]:
    """Return the tools in the order in which they are shown, the synthetic one last."""
    return tuple(tools) if respond is None else (*tools, respond)


def tool_list(tools: Sequence[Tool], marks: Iterable[str], separator: str = "\n") -> str:
    """Write tools as the client described them."""
    return separator.join(escape(tool.source.decode(), marks) for tool in tools)


def duty(respond: Tool | None) -> str:
    """Tell the model that it must always call something, where it can answer by a call."""
    if respond is None:
        return ""
    return f" Every reply is a call: to answer the user, call {respond.name}."


def arguments_text(call: ToolCall, marks: Iterable[str]) -> str:
    """Write the arguments object of a call, in the words of the history where they are valid."""
    if object_of(call.arguments) is not None:
        return escape(call.arguments.strip() or "{}", marks)
    kept: JsonObject = {"unparsable": call.arguments}
    return escape(json.dump_text(kept), marks)


def call_object(call: ToolCall, marks: Iterable[str], key: str = "arguments") -> str:
    """Write a call as an object with its name and, under `key`, its arguments."""
    name = escape(json.dump_text(call.name), marks)
    return f'{{"name": {name}, "{key}": {arguments_text(call, marks)}}}'


def content_of(result: str, marks: Iterable[str]) -> str:
    """Write a result as JSON: as it is if it is an object or a list, else as a string."""
    try:
        is_structure = isinstance(json.parse(result), dict | list)
    except ValueError:
        is_structure = False
    return escape(result.strip() if is_structure else json.dump_text(result), marks)


def result_object(name: str, result: str, marks: Iterable[str]) -> str:
    """Write a result as an object with the name of the tool and the content."""
    name = escape(json.dump_text(name), marks)
    return f'{{"name": {name}, "content": {content_of(result, marks)}}}'


def behind(text: str, calls: str) -> str:
    """Write calls in a paragraph of their own behind what was said with them."""
    return f"{text}\n\n{calls}" if text.strip() else calls
