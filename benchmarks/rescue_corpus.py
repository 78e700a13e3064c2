"""An adapter for the scorer of the rescue corpus; the scorer compares results with labels.

`rescue` does not know the model; `rescue_told` gets the model's family.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import TextDelta
from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails import names
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReplyReader
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.schemas.arguments import BrokenArguments, check

SYNTAXES_OF = {
    "gemma": ("gemma", "bare_gemma"),
    "glm": ("argument_pairs",),
    "qwen3-coder": ("qwen_coder",),
    "deepseek-v3": ("deepseek", "invoke"),
    "minimax": ("invoke",),
    "mistral": ("mistral",),
    "kimi": ("kimi", "kimi_k3"),
    "lfm2": ("marked_python", "lfm2"),
    "llama3-pythonic": ("python_list",),
    "granite": ("granite",),
}


class Rescued(TypedDict):
    """The result in the format that the scorer expects."""

    tool_calls: list[JsonObject]
    content: str


def rescue(raw: str, tools: Sequence[JsonObject] | None) -> Rescued:
    """Read a reply as Temper does: returns calls of offered tools, with coerced arguments."""
    return rescue_first(raw, tools, ())


def rescue_first(raw: str, tools: Sequence[JsonObject] | None, first: Sequence[str]) -> Rescued:
    """Read a reply; the syntaxes named in `first` are tried before all other syntaxes."""
    offered = tuple(_tool(tool) for tool in tools or ())
    reader = ReplyReader(OfferedTools(offered, TextPolicy.ACCEPT, order_syntaxes(tuple(first))))
    reader.read(TextDelta(raw))
    _, reply = reader.finish("stop")
    calls = [checked for call in reply.calls if (checked := _checked(call, offered))]
    return {"tool_calls": calls, "content": reply.text}


def rescue_told(
    raw: str, tools: Sequence[JsonObject] | None, case: Mapping[str, JsonValue]
) -> Rescued:
    """Read a reply with the syntaxes of its family first."""
    family = str(case["family"])
    known = (first for start, first in SYNTAXES_OF.items() if family.startswith(start))
    return rescue_first(raw, tools, next(known, ()))


def _tool(tool: JsonObject) -> Tool:
    function = tool.get("function")
    members = function if isinstance(function, dict) else tool
    schema = members.get("parameters")
    return Tool(str(members.get("name")), schema if isinstance(schema, dict) else {}, b"")


def _checked(call: WrittenCall, offered: Sequence[Tool]) -> JsonObject | None:
    tool = names.find_tool(call.name, offered)
    if tool is None:
        return None
    checked = check(tool, call.arguments, may_close=True)
    value = call.arguments if isinstance(checked, BrokenArguments) else checked.value
    return {"name": tool.name, "arguments": value}
