"""Calls that are a name and a JSON object of arguments, each behind a mark of its own.

Kimi, DeepSeek, PLaMo, Solar and gpt-oss (harmony) write it, with different marks. Functionary 3.2
writes `>>>NAME` and the object on the next line, version 2 messages with a header:
`<|recipient|>NAME`, a line end and `<|content|>`.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re
from dataclasses import dataclass

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason, Syntax, read_row
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting

_NAME = re.compile(r"[\w./:-]+")
_NUMBER = re.compile(r":\d+$")
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands around a name and its arguments.

    One of `required` is necessary, unless `before_name` stood before the name or `is_sure` says
    that the opening is enough. An id may stand before `before_name`.
    """

    required: tuple[str, ...]
    closers: tuple[str, ...]
    optional: tuple[str, ...] = ()
    before_name: str = ""
    has_id: bool = False
    is_sure: bool = False


class NamedJson:
    """A name, marks, a JSON object and closing marks."""

    is_marked = True

    def __init__(
        self, name: str, openings: tuple[str, ...], marks: Marks, place: Place = Place.ANYWHERE
    ) -> None:
        self.name = name
        self.openings = openings
        self.place = place
        self._required = frozenset(marks.required)
        self._marks = Literals((*marks.required, *marks.optional))
        self._ends = marks.closers
        self._closers = Literals(marks.closers)
        self._before = marks.before_name
        self._has_id = marks.has_id
        self._is_sure = marks.is_sure

    def read(self, cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        if self._has_id:
            yield from cursor.take(_NAME)
        is_sure = self._is_sure
        if self._before and (yield from cursor.literal(self._before)):
            is_sure = True
            yield from cursor.whitespace()
        name = _NUMBER.sub("", (yield from cursor.take(_NAME)))
        has_mark = yield from self._pass_marks(cursor)
        if not name or not (has_mark or is_sure):
            return NotACall(Reason.NOT_A_CALL)
        if (yield from self._pass_closers(cursor)):
            return Calls((WrittenCall(name, {}),))
        if not (yield from cursor.is_next("{")):
            return NotACall(Reason.NOT_A_CALL)
        found = yield from read_arguments(cursor, name, self._ends)
        if isinstance(found, NotACall):
            return found
        is_closed = yield from self._pass_closers(cursor)
        return Calls(found.calls, found.closed and is_closed)

    def _pass_marks(self, cursor: Cursor) -> Waiting[bool]:
        passed: set[str] = set()
        yield from cursor.whitespace()
        while mark := (yield from cursor.one_of(self._marks)):
            passed.add(mark)
            yield from cursor.whitespace()
        return not passed.isdisjoint(self._required)

    def _pass_closers(self, cursor: Cursor) -> Waiting[bool]:
        yield from cursor.whitespace()
        if (yield from cursor.literal(_FENCE)):
            yield from cursor.whitespace()
        is_closed = False
        while (yield from cursor.one_of(self._closers)):
            is_closed = True
        return is_closed


_KIMI = Marks(
    ("<|tool_call_argument_begin|>",),
    ("<|tool_call_end|>",),
    optional=("<|tool_call_begin|>",),
    is_sure=True,
)
KIMI = NamedJson(
    "kimi",
    (
        "<|tool_call_begin|>",
        "<|tool_calls_section_begin|>functions.",
        "<|tool_call_section_begin|><|tool_call_begin|>",
    ),
    _KIMI,
)
KIMI_START = NamedJson(
    "kimi_start",
    ("functions.",),
    Marks(("<|tool_call_argument_begin|>",), ("<|tool_call_end|>",)),
    Place.REPLY_START,
)


def _deepseek(bar: str) -> NamedJson:
    """Return the syntax with this bar in its control tokens; models also write the plain one."""
    separator = f"<{bar}tool▁sep{bar}>"
    return NamedJson(
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
PLAMO = NamedJson(
    "plamo",
    ("<|plamo:begin_tool_name:plamo|>",),
    Marks(
        ("<|plamo:begin_tool_arguments:plamo|>",),
        ("<|plamo:end_tool_arguments:plamo|>", "<|plamo:end_tool_request:plamo|>"),
        optional=("<|plamo:end_tool_name:plamo|>", "<|plamo:constrain|>json", "<|plamo:msg|>"),
    ),
)
SOLAR = NamedJson(
    "solar",
    ("<|tool_call:begin|>",),
    Marks(
        ("<|tool_call:args|>",),
        ("<|tool_call:end|>",),
        before_name="<|tool_call:name|>",
        has_id=True,
    ),
)
_HEADER_END = "<|message|>"
_HARMONY = Marks(
    (_HEADER_END,),
    ("<|call|>", "<|end|>", "<|channel|>final", _HEADER_END),
    optional=(
        *("<|channel|>commentary", "<|channel|>analysis", "<|channel|>"),
        *("<|constrain|>json", "<|constrain|>", "json", "code", "commentary", "analysis"),
    ),
)
_RECIPIENT = "to=functions."
_BEFORE_RECIPIENT = (
    *("<|start|>assistant ", "<|channel|>commentary ", "<|channel|>analysis ", " "),
    *("<|start|> assistant ", "<|channel|> commentary ", "<|channel|> analysis "),
)
# A reply can begin within the header; elsewhere "to" would hold back too many words.
HARMONY = NamedJson(
    "harmony",
    (
        *(before + _RECIPIENT for before in _BEFORE_RECIPIENT),
        *("<|channel|>commentary to=", "<|channel|> commentary to="),
    ),
    _HARMONY,
)
HARMONY_START = NamedJson("harmony_start", (_RECIPIENT,), _HARMONY, Place.REPLY_START)


_PLAIN_NAME = re.compile(r"[\w.-]+")
MARK = ">>>"
CONTENT = "<|content|>"
_NOBODY = "all"


class Functionary(Syntax):
    """Calls one behind the other, and nothing else in the reply.

    The same mark stands before an answer, with `all` in place of a name, and at Python's prompt.
    """

    name = "functionary"
    openings = (MARK,)
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        return (
            yield from read_row(cursor, lambda: _read_named(cursor), lambda: cursor.literal(MARK))
        )


class FunctionaryInText(Functionary):
    """The same on lines of its own behind other text; no bracket is held back for this mark."""

    name = "functionary_in_text"
    openings = (f"\n{MARK}",)
    place = Place.ANYWHERE


def _read_named(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_PLAIN_NAME)
    is_line = yield from cursor.literal("\n")
    if not name or not is_line or not (yield from cursor.is_next("{")):
        return NotACall(Reason.NOT_A_CALL)
    return (yield from read_arguments(cursor, name))


class FunctionaryHeader(Syntax):
    """A message to a tool; messages to `all` are for the user."""

    name = "functionary_header"
    openings = ("<|recipient|>", "<|from|>assistant\n<|recipient|>")

    def read(self, cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        name = yield from cursor.take(_PLAIN_NAME)
        yield from cursor.whitespace()
        has_content = yield from cursor.literal(CONTENT)
        yield from cursor.whitespace()
        is_call = has_content and (yield from cursor.is_next("{"))
        if name in ("", _NOBODY) or not is_call:
            return NotACall(Reason.NOT_A_CALL)
        return (yield from read_arguments(cursor, name))
