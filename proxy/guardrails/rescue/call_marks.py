"""What a call begins with, in whichever syntax, for readings that must not swallow another call.

A value whose own end is missing, or doubtful, may run into the next call. It is no value then.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re

# The words in the tags of calls and of what stands around them: no argument is named like them.
TAGS = frozenset(
    (
        *("tool", "tool_call", "tool_calls", "tool_use", "TOOL_CALL", "TOOLCALL", "toolcall"),
        *("function", "functions", "function_call", "function_calls", "functioncall"),
        *("functionname", "invoke", "longcat_tool_call", "dots_function_call"),
        "start_function_call",
        *("parameter", "param", "arg_key", "arg_value", "tool_sep"),
    )
)
_WORDS = "|".join(sorted(TAGS, key=len, reverse=True))
_ENVELOPE = r"\{\s*[\"'](?:name|tool|tool_name|function|function_name|action|tool_calls)[\"']\s*:"
_MARK = re.compile(
    rf"<(?:\w+[:|])?(?:{_WORDS})\b"
    r"|<[|｜](?!\"\|>)|<tools>\s*[\[{]"
    r"|\[/?TOOL_CALLS?\]|\[Calling tool:|\[ARGS\]"
    r"|to=functions\.|functools\[|function call<|Action: ?```json"
    r"|\]<\]minimax\[>\[<|<ifm\|"
)
_CALL = re.compile(rf"{_MARK.pattern}|{_ENVELOPE}")
# What closes a call, or ends a reply.
CLOSING = re.compile(
    rf"</(?:\w+[:|])?(?:{_WORDS})\b|</?[|｜]|<tool_call\|>|<end_function_call>|\[/TOOL_CALL"
    r"|</s>|<eos>|<end_of_turn>|```|[\]})]"
)


def holds_mark(text: str) -> bool:
    """Return whether a text holds a mark with which a call begins, or a control token."""
    return _MARK.search(text) is not None


def holds_call(text: str) -> bool:
    """Return whether a text holds such a mark, or the beginning of a call in plain JSON."""
    return _CALL.search(text) is not None
