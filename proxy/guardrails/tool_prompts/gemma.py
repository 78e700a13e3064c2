"""JSON in a code block: the convention of Gemma 3, which has no marks of its own for tools.

Google documents a plain prompt with the tools as JSON schemas and calls as JSON with `parameters`.
The code block lets a call stand behind other text, and Gemma writes it anyway.
"""

from collections.abc import Sequence

from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.tool_prompts.fragments import (
    behind,
    call_object,
    duty,
    offered,
    result_object,
    tool_list,
)

_FENCE = "```"
_MARKS = ("``",)  # of more than two in a row none is left as it is
_NEXT = ",\n"


class GemmaConvention:
    """JSON objects in one code block."""

    name = "gemma"
    syntaxes = ("fenced_json", "bare_json", "python_reply")
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the tools as a list, and how to call one."""
        return (
            "You can call these functions:\n"
            f"[\n{tool_list(offered(tools, respond), _MARKS, _NEXT)}\n]\n\n"
            "To call one or several of them, end your reply with a JSON code block, "
            "one object for each call:\n"
            f'{_FENCE}json\n{{"name": "FUNCTION", "parameters": {{"PARAMETER": "VALUE"}}}}\n'
            f"{_FENCE}\n"
            f"You get the results in tool_output code blocks.{duty(respond)}"
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write all calls into one code block."""
        written = "\n".join(call_object(call, _MARKS, "parameters") for call in calls)
        return behind(text, f"{_FENCE}json\n{written}\n{_FENCE}")

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result into a code block; which call it belongs to shows by its name."""
        return f"{_FENCE}tool_output\n{result_object(name, text, _MARKS)}\n{_FENCE}"
