"""`Thought:`, `Action:`, `Action Input:`, `Final Answer:`: reasoning and acting in turns.

The form that agents used before models had tools. The synthetic answer tool is not listed: the
final answer stands for it.
"""

import re
from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.tool_prompts.fragments import arguments_text, content_of, tool_list

_NAME = re.compile(r"[\w.:/-]+")
_ACTION = (
    "Thought: what you think about the next step\n"
    "Action: the name of one tool\n"
    'Action Input: {"PARAMETER": "VALUE"}'
)
_FINAL = "Thought: what you think about the answer\nFinal Answer: your complete answer to the user"
_RESULTS = "You get the result as `Observation:`. Never write one yourself: stop behind the input."


class ReActConvention:
    """One action at a time, each on labelled lines."""

    name = "react"
    syntaxes = ("react",)
    stops = ("\nObservation:",)
    answer_label = "Final Answer: "

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the tools, one a line, and what a reply has to look like."""
        listed = f"Tools, one a line:\n{tool_list(tools, ())}\n\n"
        call = f"To call a tool, write three labelled lines, the last with JSON:\n{_ACTION}\n"
        final = "" if respond is None else f"\n\nTo answer the user, write:\n{_FINAL}"
        return f"{listed}{call}{_RESULTS}{final}"

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write each call as an action; what was said before it was a thought."""
        thought = f"Thought: {text.strip()}\n" if text.strip() else ""
        return thought + "\n".join(map(_action, calls))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result as JSON on its own line: no label can begin within it."""
        return f"Observation: {content_of(text, ())}"


def _action(call: ToolCall) -> str:
    name = call.name if _NAME.fullmatch(call.name) else json.dump_text(call.name)
    return f"Action: {name}\nAction Input: {arguments_text(call, ())}"
