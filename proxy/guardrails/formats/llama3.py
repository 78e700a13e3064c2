"""Llama 3.1: `<function=NAME>{...}</function>`, its convention for tools of one's own."""

from collections.abc import Sequence

from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.tool_prompts.fragments import (
    arguments_text,
    behind,
    duty,
    offered,
    result_object,
    tool_list,
)

_MARKS = ("<function=", "</function>", "<function_response>", "</function_response>")


class Llama3Convention:
    """A tag with the name around a JSON object of arguments."""

    name = "llama3"
    syntaxes = ("qwen_coder", "llama3", "bare_json")
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the tools, one a line, and how to call one."""
        return (
            "You can call these functions:\n"
            f"{tool_list(offered(tools, respond), _MARKS)}\n\n"
            "To call one, write a line in this form, the arguments as a JSON object, "
            "and one line more for each further call:\n"
            '<function=NAME>{"PARAMETER": "VALUE"}</function>\n'
            f"You get the results between <function_response> tags.{duty(respond)}"
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write each call on a line of its own."""
        lines = [
            f"<function={call.name}>{arguments_text(call, _MARKS)}</function>" for call in calls
        ]
        return behind(text, "\n".join(lines))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result between tags; which call it belongs to shows by its name."""
        return f"<function_response>{result_object(name, text, _MARKS)}</function_response>"
