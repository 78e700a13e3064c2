"""`[AVAILABLE_TOOLS]`, `[TOOL_CALLS]` and `[TOOL_RESULTS]`: the convention of Mistral, version 3.

A list of objects is asked for rather than the newer `NAME[ARGS]{...}`: where a backend swallows
the mark because it is a control token, a list is still a call and a bare name is not.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.tool_prompts.fragments import (
    behind,
    call_object,
    duty,
    escape,
    offered,
    result_object,
    tool_list,
)

_MARKS = (
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[INST]", "[/INST]"),
)


class MistralConvention:
    """Lists of JSON objects behind marks in brackets; calls and results share an id."""

    name = "mistral"
    syntaxes = ("mistral", "bare_json")
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the tools as a list, and how to call one."""
        listed = tool_list(offered(tools, respond), _MARKS, ", ")
        return (
            f"[AVAILABLE_TOOLS][{listed}][/AVAILABLE_TOOLS]\n\n"
            "To call one or several of these tools, write [TOOL_CALLS] and a JSON list, "
            "and nothing behind it:\n"
            '[TOOL_CALLS][{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}]\n'
            f"You get the results between [TOOL_RESULTS] and [/TOOL_RESULTS].{duty(respond)}"
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write all calls as one list."""
        written = ", ".join(_with_id(call_object(call, _MARKS), call.id) for call in calls)
        return behind(text, f"[TOOL_CALLS][{written}]")

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result between marks."""
        result = _with_id(result_object(name, text, _MARKS), call_id, "call_id")
        return f"[TOOL_RESULTS]{result}[/TOOL_RESULTS]"


def _with_id(written: str, call_id: str, key: str = "id") -> str:
    if not call_id:
        return written
    return f'{written[:-1]}, "{key}": {escape(json.dump_text(call_id), _MARKS)}}}'
