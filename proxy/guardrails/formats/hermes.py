"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from proxy.guardrails.rescue.marks import result_marks
from proxy.guardrails.tool_prompts import fragments

_RESULT, _END_OF_RESULT = result_marks("tool_response")
HERMES_CONVENTION = fragments.CallingConvention(
    name="hermes",
    syntaxes=("hermes",),
    marks=(
        *(f"<{slash}{word}>" for word in ("tools", "tool_call") for slash in ("", "/")),
        *(_RESULT, _END_OF_RESULT),
    ),
    instructions=(
        "# Tools\n\n<tools>\n%s\n</tools>\n\n"
        "To call one of these tools, write its name and its arguments as JSON between tags, "
        "once for each call:\n"
        '<tool_call>\n{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>\n'
        f"You get the results between {_RESULT} tags."
    ),
    call='<tool_call>\n{"name": %(quoted)s, "arguments": %(arguments)s}\n</tool_call>',
    result=(f'{_RESULT}\n{{"name": %(quoted)s, "content": %(content)s}}\n{_END_OF_RESULT}'),
)
