"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Sequence

from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.rescue.syntaxes.marked_json import MarkedJson
from proxy.guardrails.tool_prompts.fragments import (
    behind,
    call_object,
    duty,
    offered,
    result_object,
    tool_list,
)

_MARKS = tuple(
    f"<{slash}{word}>" for word in ("tools", "tool_call", "tool_response") for slash in ("", "/")
)


class HermesConvention:
    """JSON between tags."""

    name = "hermes"
    syntaxes = ("hermes",)
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the tools between tags, and how to call one."""
        return (
            "# Tools\n\n"
            f"<tools>\n{tool_list(offered(tools, respond), _MARKS)}\n</tools>\n\n"
            "To call one of these tools, write its name and its arguments as JSON between tags, "
            "once for each call:\n"
            '<tool_call>\n{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>\n'
            f"You get the results between <tool_response> tags.{duty(respond)}"
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write each call between tags of its own."""
        written = [f"<tool_call>\n{call_object(call, _MARKS)}\n</tool_call>" for call in calls]
        return behind(text, "\n".join(written))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result between tags; which call it belongs to shows by its name."""
        return f"<tool_response>\n{result_object(name, text, _MARKS)}\n</tool_response>"


_WRAPPERS = ("tool_call", "TOOL_CALL", "minimax:tool_call", "seed:tool_call", "functioncall")
_OTHER_CLOSERS = ("</tool_calls>", "</function_call>")


class Hermes(MarkedJson):
    """JSON between tags; several objects, a list or a code fence may stand between them."""

    def __init__(self) -> None:
        super().__init__(
            "hermes",
            [f"<{tag}>" for tag in _WRAPPERS],
            (*(f"</{tag}>" for tag in _WRAPPERS), *_OTHER_CLOSERS),
        )
