"""Llama 3.1: `<function=NAME>{...}</function>`, its convention for tools of one's own."""

from collections.abc import Sequence

from proxy.conversation.tools import ToolCall
from proxy.guardrails.tool_prompts import fragments

_MARKS = ("<function=", "</function>", "<function_response>", "</function_response>")


class Llama3Convention(fragments.CallingConvention):
    """A tag with the name around a JSON object of arguments."""

    name = "llama3"
    syntaxes = ("qwen_coder", "llama3", "bare_json")
    marks = _MARKS

    def explain(self, listed: str) -> str:
        return (
            f"You can call these functions:\n{listed}\n\n"
            "To call one, write a line in this form, the arguments as a JSON object, "
            "and one line more for each further call:\n"
            '<function=NAME>{"PARAMETER": "VALUE"}</function>\n'
            "You get the results between <function_response> tags."
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        lines = [
            f"<function={call.name}>{fragments.write_arguments(call, _MARKS)}</function>"
            for call in calls
        ]
        return fragments.append_calls(text, "\n".join(lines))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        return (
            f"<function_response>{fragments.write_result(name, text, _MARKS)}</function_response>"
        )
