"""Calls that are a name and a JSON object of arguments, each after a mark.

Kimi, DeepSeek, PLaMo, Solar and gpt-oss (harmony) write it, with different marks. Functionary 3.2
writes `>>>NAME` and the object on the next line; version 2 writes messages with a header:
`<|recipient|>NAME`, a line end and `<|content|>`.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re
from dataclasses import dataclass, replace

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.rows import FENCE, read_row
from proxy.guardrails.rescue.syntax import Calls, NoCall, Place, Reading, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

_NAME = re.compile(r"[\w./:\\-]+")
_NUMBER = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks around a name and its arguments.

    One of `required` has to be present, unless `before_name` was present or `is_sure` says that the
    opening is enough. An id may precede `before_name`.
    """

    required: tuple[str, ...]
    closers: tuple[str, ...]
    optional: tuple[str, ...] = ()
    before_name: str = ""
    has_id: bool = False
    is_sure: bool = False


def named_json(
    name: str, openings: tuple[str, ...], marks: Marks, place: Place = "anywhere"
) -> Syntax:
    """Return the syntax of a name, marks, a JSON object and closing marks."""
    return Syntax(name, openings, lambda cursor, opening: _read(cursor, marks), place)


def _read(cursor: Cursor, marks: Marks) -> Reading:
    yield from cursor.whitespace()
    if marks.has_id:
        yield from cursor.take(_NAME)
    is_sure = marks.is_sure
    if marks.before_name and (yield from cursor.literal(marks.before_name)):
        is_sure = True
        yield from cursor.whitespace()
    name = _NUMBER.sub("", (yield from cursor.take(_NAME)))
    has_mark = yield from _pass_marks(cursor, marks)
    if not name or not (has_mark or is_sure):
        raise NoCall
    if (yield from _pass_closers(cursor, marks)):
        return Calls((WrittenCall(name, {}),))
    if not (yield from cursor.is_next("{")):
        raise NoCall
    found = yield from read_arguments(cursor, name, marks.closers)
    is_closed = yield from _pass_closers(cursor, marks)
    return Calls(found.calls, found.closed and is_closed)


def _pass_marks(cursor: Cursor, marks: Marks) -> Waiting[bool]:
    known = literals_of(*marks.required, *marks.optional)
    is_any_required = False
    yield from cursor.whitespace()
    while mark := (yield from cursor.one_of(known)):
        is_any_required |= mark in marks.required
        yield from cursor.whitespace()
    return is_any_required


def _pass_closers(cursor: Cursor, marks: Marks) -> Waiting[bool]:
    yield from cursor.whitespace()
    if (yield from cursor.literal(FENCE)):
        yield from cursor.whitespace()
    is_closed = False
    while (yield from cursor.one_of(literals_of(*marks.closers))):
        is_closed = True
    return is_closed


_KIMI = Marks(
    ("<|tool_call_argument_begin|>",),
    ("<|tool_call_end|>",),
    optional=("<|tool_call_begin|>",),
    is_sure=True,
)
KIMI = named_json(
    "kimi",
    (
        "<|tool_call_begin|>",
        "<|tool_calls_section_begin|>functions.",
        "<|tool_call_section_begin|><|tool_call_begin|>",
    ),
    _KIMI,
)
KIMI_START = named_json(
    "kimi_start",
    ("functions.",),
    Marks(("<|tool_call_argument_begin|>",), ("<|tool_call_end|>",)),
    "reply_start",
)


def _deepseek(bar: str) -> Syntax:
    """Return the syntax for this bar in the control tokens; models also write the plain one."""
    separator = f"<{bar}tool▁sep{bar}>"
    return named_json(
        "deepseek" if bar == "｜" else "deepseek_plain",
        (
            f"<{bar}tool▁call▁begin{bar}>",
            f"<{bar}tool▁calls▁begin{bar}>function{separator}",
            f"<{bar}tool▁calls{bar}>function{separator}",
        ),
        Marks(
            (separator, "```json"),
            (f"<{bar}tool▁call▁end{bar}>",),
            optional=("```",),
            before_name=f"function{separator}",
        ),
    )


DEEPSEEK = _deepseek("｜")
DEEPSEEK_PLAIN = _deepseek("|")
PLAMO = named_json(
    "plamo",
    ("<|plamo:begin_tool_name:plamo|>",),
    Marks(
        ("<|plamo:begin_tool_arguments:plamo|>",),
        ("<|plamo:end_tool_arguments:plamo|>", "<|plamo:end_tool_request:plamo|>"),
        optional=("<|plamo:end_tool_name:plamo|>", "<|plamo:constrain|>json", "<|plamo:msg|>"),
    ),
)
SOLAR = named_json(
    "solar",
    ("<|tool_call:begin|>",),
    Marks(
        ("<|tool_call:args|>",),
        ("<|tool_call:end|>",),
        before_name="<|tool_call:name|>",
        has_id=True,
    ),
)
HEADER_END = "<|message|>"
_HARMONY = Marks(
    (HEADER_END,),
    ("<|call|>", "<|end|>", "<|channel|>final", HEADER_END),
    optional=(
        *("<|channel|>commentary", "<|channel|>analysis", "<|channel|>"),
        *("<|constrain|>json", "<|constrain|>", "json", "code", "commentary", "analysis"),
    ),
)
_RECIPIENT = "to=functions."
_CHANNELS = ("commentary", "analysis")
_BEFORE_RECIPIENT = (
    *("<|start|>assistant ", "<|channel|>commentary ", "<|channel|>analysis ", " "),
    *("<|start|> assistant ", "<|channel|> commentary ", "<|channel|> analysis "),
)
# A reply can begin inside the header; elsewhere "to" would hold back too many words.
HARMONY = named_json(
    "harmony",
    (
        *(before + _RECIPIENT for before in _BEFORE_RECIPIENT),
        *("<|channel|>commentary to=", "<|channel|> commentary to="),
    ),
    _HARMONY,
)
HARMONY_START = named_json("harmony_start", (_RECIPIENT,), _HARMONY, "reply_start")
# An engine that drops the control tokens leaves the words between them (Rapid-MLX#480):
# `analysisI list the files.assistantcommentary to=functions.NAME json{...}`. The splitter of
# thoughts removes the first part. Elsewhere these words would hold back too many others.
_WORDS = replace(
    _HARMONY,
    closers=("<|call|>", "<|end|>", "call", "assistantfinal"),
    optional=(*_HARMONY.optional, "message"),
    is_sure=True,
)


def _read_harmony_words(cursor: Cursor, opening: str) -> Reading:
    return read_row(
        cursor,
        lambda cursor: _read(cursor, _WORDS),
        lambda cursor: cursor.literal(f"assistantcommentary {_RECIPIENT}"),
    )


HARMONY_WORDS = Syntax(
    "harmony_words",
    (
        *(f"{role}{channel} {_RECIPIENT}" for role in ("", "assistant") for channel in _CHANNELS),
        f"assistant {_RECIPIENT}",
    ),
    _read_harmony_words,
    "reply_start",
)


_PLAIN_NAME = re.compile(r"[\w.-]+")
MARK = ">>>"
CONTENT = "<|content|>"
_NOBODY = "all"


def _read_rows(cursor: Cursor, opening: str) -> Reading:
    """Read calls one after another, and nothing else in the reply.

    The same mark precedes an answer, with `all` instead of a name, and Python's prompt.
    """
    return read_row(cursor, _read_named, lambda cursor: cursor.literal(MARK))


def _read_named(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_PLAIN_NAME)
    is_line = yield from cursor.literal("\n")
    if not name or not is_line or not (yield from cursor.is_next("{")):
        raise NoCall
    return (yield from read_arguments(cursor, name))


def _read_message(cursor: Cursor, opening: str) -> Reading:
    """Read a message to a tool; messages to `all` are for the user."""
    yield from cursor.whitespace()
    name = yield from cursor.take(_PLAIN_NAME)
    yield from cursor.whitespace()
    has_content = yield from cursor.literal(CONTENT)
    yield from cursor.whitespace()
    is_call = has_content and (yield from cursor.is_next("{"))
    if name in ("", _NOBODY) or not is_call:
        raise NoCall
    return (yield from read_arguments(cursor, name))


FUNCTIONARY = Syntax("functionary", (MARK,), _read_rows, "reply_start", is_marked=False)
# On lines of its own after other text. No bracket is held back for this mark.
FUNCTIONARY_IN_TEXT = Syntax("functionary_in_text", (f"\n{MARK}",), _read_rows, is_marked=False)
_HEADER_BEGINS = ("<|recipient|>", "<|from|>assistant\n<|recipient|>")
FUNCTIONARY_HEADER = Syntax("functionary_header", _HEADER_BEGINS, _read_message)
MARKED = (
    *(KIMI, DEEPSEEK, DEEPSEEK_PLAIN, HARMONY, HARMONY_START, HARMONY_WORDS, PLAMO, SOLAR),
    FUNCTIONARY_HEADER,
)
