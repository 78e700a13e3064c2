"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Sequence

from proxy.conversation.tools import ToolCall
from proxy.guardrails.rescue.syntaxes.marked_json import marked_json
from proxy.guardrails.tool_prompts import fragments

_MARKS = tuple(
    f"<{slash}{word}>" for word in ("tools", "tool_call", "tool_response") for slash in ("", "/")
)


class HermesConvention(fragments.CallingConvention):
    """JSON between tags."""

    name = "hermes"
    syntaxes = ("hermes",)
    marks = _MARKS

    def explain(self, listed: str) -> str:
        return (
            f"# Tools\n\n<tools>\n{listed}\n</tools>\n\n"
            "To call one of these tools, write its name and its arguments as JSON between tags, "
            "once for each call:\n"
            '<tool_call>\n{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>\n'
            "You get the results between <tool_response> tags."
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        written = [
            f"<tool_call>\n{fragments.write_call(call, _MARKS)}\n</tool_call>" for call in calls
        ]
        return fragments.append_calls(text, "\n".join(written))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        return f"<tool_response>\n{fragments.write_result(name, text, _MARKS)}\n</tool_response>"


_WRAPPERS = ("tool_call", "TOOL_CALL", "minimax:tool_call", "seed:tool_call", "functioncall")
_OTHER_CLOSERS = ("</tool_calls>", "</function_call>")


# JSON between tags; several objects, a list or a code fence may stand between them.
HERMES = marked_json(
    "hermes",
    [f"<{tag}>" for tag in _WRAPPERS],
    (*(f"</{tag}>" for tag in _WRAPPERS), *_OTHER_CLOSERS),
)
