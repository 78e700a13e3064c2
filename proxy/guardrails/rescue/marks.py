"""The marks around calls: what calls begin and end with, and control tokens that leak into text.

A value whose own end is missing, or doubtful, may run into the next call. It is no value then.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re

from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting

# The words in the tags of calls and of what stands around them: no argument is named like them.
TAGS = frozenset(
    (
        *("tool", "tool_call", "tool_calls", "tool_use", "TOOL_CALL", "TOOLCALL", "toolcall"),
        *("function", "functions", "function_call", "function_calls", "functioncall"),
        "function_invocation",
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


# Control tokens that end a reply or a turn, or introduce a call, and leak into the text.
SPECIAL_TOKENS = frozenset(
    (
        *("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>"),
        *("<s>", "</s>", "<bos>", "<eos>", "<|eot|>", "<|eom|>", "<|call|>", "<|return|>"),
        *("<turn|>", "<|turn>", "<end_of_turn>", "<|role_end|>", "<｜end▁of▁sentence｜>"),
        *("<|start|>assistant", "<|channel|>commentary", "<|channel|>analysis"),
        *("<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>", "<|tool▁calls▁begin|>"),
        *("<|tool_call_section_begin|>", "<|END_OF_TURN_TOKEN|>", "<|im_start|>assistant"),
        *("<|start_header_id|>assistant<|end_header_id|>", "<start_of_turn>model"),
        *("<|turn>model", "<|assistant|>", "<｜Assistant｜>"),
        *("<ifm|tool_calls>", "<|plamo:begin_tool_requests:plamo|>"),
        *("<|plamo:begin_tool_request:plamo|>", "<|open|>tools<|sep|>", "<|stop|>"),
        *("<|channel|> commentary", "<|channel|> analysis", "<|start|> assistant"),
        *("<｜tool▁calls｜>", "<|tool▁calls|>", "<|from|>assistant"),
        *("<|message_model|>", "<|content_model_end_sampling|>"),
    )
)
# Closing marks that models write once too often, or without the opening one.
STRAY_CLOSERS = frozenset(
    (
        *("</tool_call>", "</tool_calls>", "</function>", "</function_call>", "</think>"),
        *("</function_calls>", "</seed:tool_call>", "</minimax:tool_call>", "</invoke>"),
        *("<|/tool_calls|>", "</TOOLCALL>", "</toolcall>", "[/TOOL_CALL]", "</tool_use>"),
        *("</atem:function_calls>", "<|tool_call|>", "<|/tool_call|>", "<|tool_call:end|>"),
        *("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜ calls>"),
        *("<|tool_calls_section_end|>", "<｜tool▁calls▁end｜>", "<｜tool_calls_end｜>"),
        *("<|tool_call_section_end|>", "<|tool▁calls▁end|>", "<|tool▁call▁end|>"),
        *("<｜tool_call_end｜>", "<|tool_call_end|>", "<tool_call|>", "<end_function_call>"),
        *("</ifm|tool_calls>", "</ifm|tool_call>", "</longcat_tool_call>", "<|END_ACTION|>"),
        *("<|plamo:end_tool_request:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
        *("<|plamo:end_tool_arguments:plamo|>", "<|end_message|>", "<|close|>tools<|sep|>"),
        *("<|close|>message<|sep|>", "<|python_end|>", "<|action_end|>", "[/TOOL_CALLS]"),
        *("</dots_function_call>", "</function_invocation>", "<|tool:end|>"),
        *("]<]minimax[>[</tool_call>", "<|tools_suffix|>", "<｜tool▁call▁end｜>"),
    )
)
# Marks behind thoughts. Where no thoughts were begun, the prompt had begun them.
THOUGHT_ENDS = frozenset(
    (
        *("</think>", "</thinking>", "</thought>", "</reasoning>", "</seed:think>", "</mm:think>"),
        *(
            "</longcat_think>",
            "</ifm|think>",
            "<|think:end|>",
            "[/THINK]",
            "◁/think▷",
            "<|END_THINKING|>",
        ),
        *("</ifm|think_fast>", "</ifm|think_faster>"),
        *("<|plamo:end_think:plamo|>", "<|close|>think<|sep|>", "<channel|>"),
    )
)
# How control tokens begin: nobody can write them into a sentence by accident.
CONTROL_BEGINNINGS = (
    *("<|", "<｜", "[TOOL_CALLS]", "]<]", "to=functions", " to=functions", "<ifm|"),
    *("<tool_call:", "<tool_calls:", "<dots_function_call>"),
    *("<minimax:tool_call>", "<seed:tool_call>", "<longcat_tool_call>", "<start_function_call>"),
)
LONGEST_CLOSER = max(map(len, STRAY_CLOSERS))
# A control token that no family here is known to write, or half a fence, alone at the end.
_TOKEN = re.compile(r"(?:<[|｜][^\s<>|｜]+[|｜]>|```)\s*")
_TOKEN_BEGINS = re.compile(r"<(?:[|｜](?:[^\s<>|｜]+(?:[|｜](?:>\s*)?)?)?)?|``?|```\s*")
# What models write when they invent the result of their own call, with its end.
INVENTED_RESULTS = {
    "<tool_response>": Literals(("</tool_response>",)),
    "<|tool_response>": Literals(("<tool_response|>",)),
    "<tool_result>": Literals(("</tool_result>",)),
    "<tool_output>": Literals(("</tool_output>",)),
    "<function_results>": Literals(("</function_results>",)),
    "<function_response>": Literals(("</function_response>",)),
    "[TOOL_RESULTS]": Literals(("[/TOOL_RESULTS]",)),
    "<｜tool▁outputs▁begin｜>": Literals(("<｜tool▁outputs▁end｜>",)),
    "<｜tool▁output▁begin｜>": Literals(("<｜tool▁output▁end｜>",)),
    "<start_function_response>": Literals(("<end_function_response>",)),
    "<|START_TOOL_RESULT|>": Literals(("<|END_TOOL_RESULT|>",)),
}


def closer_in(literal: str | None, rest: str, *, is_all: bool) -> str | None:
    """Return the stray closing mark that was found, or what ends the reply instead of one.

    That is the half of a mark, a control token that nobody knows, or the end of a fence: no
    sentence ends with it.
    None where more text is needed; `is_all` if as much of the `rest` is there as is looked at.
    """
    if literal is None or literal in THOUGHT_ENDS:
        return None if literal is None else ""
    if literal and literal != FENCE:
        return literal if literal in STRAY_CLOSERS else ""
    if is_all and len(rest) > 1 and any(closer.startswith(rest) for closer in STRAY_CLOSERS):
        return rest
    if _TOKEN_BEGINS.fullmatch(rest) is None:
        return ""
    is_token = len(rest) < LONGEST_CLOSER and _TOKEN.fullmatch(rest) is not None
    return (rest if is_token else "") if is_all else None


_SHORTEST = 2


def is_half_closer(text: str) -> bool:
    """Whether a text is the beginning of a closing mark, and more than its first character."""
    return len(text) >= _SHORTEST and any(
        closer.startswith(text) and closer != text for closer in STRAY_CLOSERS
    )


def ends_here(cursor: Cursor) -> Waiting[bool]:
    """Return whether the text ends here, or within a closing mark that begins here."""
    while True:
        rest, is_all = cursor.glimpse(LONGEST_CLOSER)
        if is_all and rest:
            return is_half_closer(rest)
        if is_all:
            return True
        if rest and not any(closer.startswith(rest) for closer in STRAY_CLOSERS):
            return False
        yield
