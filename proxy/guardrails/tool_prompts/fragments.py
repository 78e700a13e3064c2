"""The pieces of JSON from which conventions are put together, safe inside any of their marks.

A mark within JSON can only stand in a string. There its first character is written as an escape:
the value stays the same, and the mark is none.
"""

from collections.abc import Iterable, Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.transcript import parse_arguments


def escape(document: str, marks: Iterable[str]) -> str:
    for mark in marks:
        document = document.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return document


def list_tools(tools: Sequence[Tool], respond: Tool | None) -> tuple[Tool, ...]:
    """Return the tools in the order in which they are shown, the synthetic one last."""
    return tuple(tools) if respond is None else (*tools, respond)


def write_tools(tools: Sequence[Tool], marks: Iterable[str], separator: str = "\n") -> str:
    return separator.join(escape(tool.source.decode(), marks) for tool in tools)


def demand_call(respond: Tool | None) -> str:
    """Tell the model that it must always call something, where it can answer by a call."""
    if respond is None:
        return ""
    return f" Every reply is a call: to answer the user, call {respond.name}."


def write_arguments(call: ToolCall, marks: Iterable[str]) -> str:
    """Write the arguments object of a call, in the words of the history where they are valid."""
    if parse_arguments(call.arguments) is not None:
        return escape(call.arguments.strip() or "{}", marks)
    kept: JsonObject = {"unparsable": call.arguments}
    return escape(json.dump_text(kept), marks)


def write_call(call: ToolCall, marks: Iterable[str], key: str = "arguments") -> str:
    """Write a call as an object with its name and, under `key`, its arguments."""
    name = escape(json.dump_text(call.name), marks)
    return f'{{"name": {name}, "{key}": {write_arguments(call, marks)}}}'


def write_content(result: str, marks: Iterable[str]) -> str:
    """Write a result as JSON: as it is if it is an object or a list, else as a string."""
    try:
        is_structure = isinstance(json.parse(result), dict | list)
    except ValueError:
        is_structure = False
    return escape(result.strip() if is_structure else json.dump_text(result), marks)


def write_result(name: str, result: str, marks: Iterable[str]) -> str:
    name = escape(json.dump_text(name), marks)
    return f'{{"name": {name}, "content": {write_content(result, marks)}}}'


def append_calls(text: str, calls: str) -> str:
    return f"{text}\n\n{calls}" if text.strip() else calls
