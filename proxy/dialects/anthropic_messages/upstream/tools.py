"""Tools in Anthropic's words, and how the model may use them.

A schema is copied as it was written; Anthropic wants it to be one of an object and to say so.
`strict` is left out: arguments are checked here, and there it excludes half of what schemas know.
"""

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Parsing, Question
from proxy.conversation.tools import NamedTool, Tool, ToolUse

_OBJECT = b'"object"'
_BLANK = frozenset({b"null", b'""'})


def encode_tool(tool: Tool) -> bytes:
    """Write a tool."""
    function = json.split_object(json.split_object(tool.source)["function"])
    members = {"name": json.dump(tool.name)}
    if (description := function.get("description", b"null").strip()) not in _BLANK:
        members["description"] = description
    return json.join_object({**members, "input_schema": _schema(tool, function)})


def _schema(tool: Tool, function: dict[str, bytes]) -> bytes:
    if not isinstance(tool.parameters, dict):
        return json.dump({"type": "object"})
    raw = function.get("parameters", b"null").strip()
    if not raw.startswith(b"{"):
        return json.dump(tool.parameters)
    if tool.parameters.get("type") == "object":
        return raw
    return json.join_object({**json.split_object(raw), "type": _OBJECT})


def encode_choice(question: Question) -> JsonObject | None:
    """Write how the model may use its tools; None where that is at will.

    Whatever the choice is, the tools stay where they are, and with them what was cached. There is
    no grammar: where the whole output has to satisfy a schema, the model has to call.
    """
    if not question.tools:
        return None
    choice = question.tool_choice
    if question.schema is None and (question.parsing is Parsing.OURS or choice is ToolUse.NONE):
        return {"type": "none"}
    is_single = question.calls_singly or not question.request.parallel_tool_calls
    only: JsonObject = {"disable_parallel_tool_use": True}
    alone = only if is_single or question.schema is not None else {}
    match choice:
        case NamedTool(name):
            return {"type": "tool", "name": name, **alone}
        case _ if question.schema is not None or choice is ToolUse.REQUIRED:
            return {"type": "any", **alone}
        case _:
            return {"type": "auto", **alone} if alone else None


def is_forced(choice: JsonObject | None) -> bool:
    """Tell whether the model has to call a tool."""
    return choice is not None and choice["type"] in ("any", "tool")
