"""Adds the missing key of an argument to a call, if the tools determine the key.

The readers of calls do not know the tools. They return an argument without a key under the key "".
If the model joins the tool's name and the key, the name of the returned call is the joined text
with the closing tag of the key: `run_shellcommand</arg_key>`.

In both of these calls, the tool is `run_shell` and its only parameter is `command`:

    <tool_call>run_shellcommand</arg_key><arg_value>ls</arg_value></tool_call>
    <function=run_shell>ls</function>
"""

from collections.abc import Sequence

from proxy.conversation.tools import Tool, WrittenCall, properties_of
from proxy.guardrails.names import find_tool

UNNAMED = ""


def complete(call: WrittenCall, tools: Sequence[Tool]) -> WrittenCall | None:
    """Return the call with its missing key added; None if no key or several keys are possible."""
    arguments = call.arguments
    if not isinstance(arguments, dict) or UNNAMED not in arguments:
        return call
    name, mark, _ = call.name.partition("</")
    pairs = _split_joined(name, tools) if mark else _find_parameter(name, tools)
    if len(pairs) != 1 or (key := pairs[0][1]) in arguments:
        return None
    named = {key if known == UNNAMED else known: value for known, value in arguments.items()}
    return WrittenCall(pairs[0][0], named, call.id)


def _split_joined(joined: str, tools: Sequence[Tool]) -> list[tuple[str, str]]:
    """Return all pairs of a tool name and a key whose concatenation is the text."""
    parts = ((joined[:index], joined[index:]) for index in range(1, len(joined)))
    by_name = {tool.name: properties_of(tool.parameters) for tool in tools}
    return [(name, key) for name, key in parts if name in by_name and key in by_name[name]]


def _find_parameter(name: str, tools: Sequence[Tool]) -> list[tuple[str, str]]:
    """Return the parameter that the tool requires, if there is exactly one and it is a string."""
    tool = find_tool(name, tools)
    if tool is None or not isinstance(tool.parameters, dict):
        return []
    required = tool.parameters.get("required")
    if not isinstance(required, list) or len(required) != 1:
        return []
    schema = properties_of(tool.parameters).get(str(required[0]))
    is_text = isinstance(schema, dict) and schema.get("type") == "string"
    return [(name, str(required[0]))] if is_text else []
