"""Strategies for calls, and functions that write calls in a convention and read them again."""

import hypothesis.strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool, ToolCall, WrittenCall
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Syntax
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.tool_prompts.fragments import Convention
from proxy.guardrails.tool_prompts.json_contract import json_contract
from tests.fakes.playbook import make_tool

RESPOND = make_respond_tool(())
SEND = make_tool("send", {"type": "object", "properties": {"to": {"type": "string"}}})
WAIT = Tool("wait", True, b'{"type": "function",\n "function": {"name": "wait"}}')

MARKUP = (
    *("</tool_call>", "<tool_call>", "<tools>", "</tool_response>", "<|im_end|>", "<think>"),
    *("[TOOL_CALLS]", "[/TOOL_RESULTS]", "[/INST]", "[ARGS]", "<function=f>", "</function>"),
    *("```", "``", "```json\n", "\n```", '"', '"}', '"}}', "'", '", "', "\\", "\\u003c", "\\n"),
    *("{", "}", "]", ": ", ",", "//", "/*", "<", "&quot;", '{"type": "final"}', "\n", "\x00"),
)
texts = st.lists(st.sampled_from(MARKUP) | st.text(max_size=6), max_size=6).map("".join)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
arguments: st.SearchStrategy[JsonObject] = st.dictionaries(texts, values, max_size=4)
names = st.from_regex(r"[A-Za-z_][\w.:/-]{0,20}", fullmatch=True)


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    """Make a call as it occurs in a history."""
    text = json.dump_text(draw(arguments))
    return ToolCall(draw(st.sampled_from(("", "call_1", "a-2"))), draw(names), text)


def syntaxes_of(convention: Convention, respond_name: str | None = None) -> tuple[Syntax, ...]:
    """Return the syntaxes with which replies in a convention are read."""
    syntaxes = (json_contract(respond_name),) if convention.name == "json" else ()
    return (*syntaxes, *order_syntaxes(convention.syntaxes))


def read_again(
    convention: Convention, text: str, offered: list[str], respond_name: str | None = None
) -> list[WrittenCall]:
    """Return the calls that the syntaxes of a convention read in a message."""
    findings = find_calls(text, syntaxes_of(convention, respond_name), offered)
    return [
        call for finding in findings if isinstance(finding, FoundCalls) for call in finding.calls
    ]


def write_and_read(convention: Convention, *calls: ToolCall, text: str = "") -> list[WrittenCall]:
    """Write calls in a convention, and return the calls that are read from this text."""
    call_text = convention.write_calls(text, calls)
    return read_again(convention, call_text, [call.name for call in calls])


def exactly(call: WrittenCall) -> tuple[str, str]:
    """Return a call in a form that distinguishes 1, 1.0 and true, which are equal in Python."""
    return call.name, json.dump_text(call.arguments)


def as_written(call: ToolCall) -> tuple[str, str]:
    """Return the form of a call after it was written and read again."""
    return call.name, json.dump_text(json.parse(call.arguments))
