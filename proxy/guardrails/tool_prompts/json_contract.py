"""`{"type": "tool_call", ...}` or `{"type": "final", ...}`: a contract for models with no habit.

The synthetic answer tool is not listed: the final form stands for it.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.tool_prompts.fragments import arguments_text, content_of, tool_list

_CALL = '{"type": "tool_call", "name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}'
_FINAL = '{"type": "final", "content": "YOUR COMPLETE ANSWER"}'
_SEVERAL = "one object a line for several calls"
_RESULTS = 'You get the results as objects of the type "tool_result".'


class JsonContractConvention:
    """The whole reply is one JSON object, or one a line for several calls."""

    name = "json"
    syntaxes = ("bare_json", "fenced_json")
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the tools, one a line, and what a reply has to look like."""
        listed = f"Tools, one a line:\n{tool_list(tools, ())}\n\n"
        if respond is None:
            form = f"To call a tool, reply with JSON and nothing else, {_SEVERAL}:\n{_CALL}"
        else:
            form = (
                f"Always reply with JSON and nothing else. To call a tool, {_SEVERAL}:\n{_CALL}\n"
                f"To answer the user:\n{_FINAL}"
            )
        return f"{listed}{form}\n{_RESULTS}"

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write each call on a line of its own; what was said is the `content` of the first."""
        said = [text if text.strip() else "", *("" for _ in calls)]
        return "\n".join(map(_call_object, calls, said))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result as an object; which call it belongs to shows by its name."""
        tool = json.dump_text(name)
        return f'{{"type": "tool_result", "name": {tool}, "content": {content_of(text, ())}}}'


def _call_object(call: ToolCall, said: str) -> str:
    content = f'"content": {json.dump_text(said)}, ' if said else ""
    name = json.dump_text(call.name)
    arguments = arguments_text(call, ())
    return f'{{"type": "tool_call", {content}"name": {name}, "arguments": {arguments}}}'
