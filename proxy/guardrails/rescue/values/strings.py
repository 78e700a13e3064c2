"""Reads quoted strings in the JSON or Python of models, from text that is still arriving.

Models often do not escape the quotation marks inside a string. So a quotation mark ends the string
only if the text after the mark can follow a string, as it always does in valid JSON. If the
unescaped marks inside a string come in pairs, its end is certain. If a mark is unpaired, the string
may have ended at this mark already. If the string quotes JSON or a call, its apparent end may
belong to the quotation.

    {"text": "He said "no"."}      PAIRED     neither a comma nor a bracket follows `"no"`
    {"text": "a 5" disk"}          UNPAIRED   accepted only as the last string of the value
    {"text": "{"name": "f"}"}      TORN       the string quotes JSON, so its end is not certain
    {"text": "a", "b": "c"}        NONE       two members
"""

# ruff: noqa: RUF001 - the patterns contain typographic quotation marks

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.marks import CLOSING, contains_call
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.escapes import WHOLE_ESCAPE, decode, read_escape
from proxy.guardrails.rescue.values.scalars import Unreadable

QUOTES = ('"', "'")
CURLY_QUOTES = {"“": "”", "‘": "’"}
_END_LOOKAHEAD = 256  # characters after a quotation mark that decide whether it ends the string

_COMMENTS = ("//", "/*", "# ")
_KEY = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|“[^”]*”|‘[^’]*’|(?:[\w$.-]|\\_)+)\s*[:=]""",
    re.DOTALL,
)
_KEY_PREFIX = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*\\?|'(?:[^'\\]|\\.)*\\?|"(?:[^"\\]|\\.)*"\s*|'(?:[^'\\]|\\.)*'\s*"""
    r"""|“[^”]*|‘[^’]*|(?:“[^”]*”|‘[^’]*’)\s*|(?:[\w$.-]|\\_)+(?:\\|\s*))""",
    re.DOTALL,
)
_ITEM = re.compile(r"""["'“‘\[{(0-9-]|(?:true|false|null|True|False|None)\b|[A-Za-z_.]+\(""")
_ITEM_PREFIX = re.compile(r"[\w.]+")
_AFTER_CONTAINER = "\"'“‘{[<,/#"
_AFTER_COMMA = "/<&"
_POSSIBLE_AFTER_COMMA = f"{_AFTER_COMMA}#“‘"

# The rules of `_can_follow` as patterns, for the most frequent marks that do not end a string. With
# the patterns, one match consumes a text with many quotation marks. This is faster than one
# decision for each mark.
_SPACE = r"\s{0,40}+"
_NO_KEY_QUOTED = rf"""(?:"[^"\\]{{0,80}}+"|'[^'\\]{{0,80}}+'){_SPACE}(?=[^\s:=])"""
_NO_KEY_BARE = r"[\w$.-]{0,80}+(?:\s{1,40}+(?=[^\s:=])|(?=[^\s\w$.:=\\-]))"
_NO_ITEM = rf"(?!{_ITEM.pattern})[\w.]{{0,80}}+(?=[^\w.])"


@dataclass(frozen=True, slots=True)
class StringContext:
    """The position of a string in its value; `ends` are the marks that may follow the value.

    `closer` is the closing bracket of the container that contains the string. `outer` is the
    closing bracket of the next container around this container. Each is "" if there is no such
    container.
    """

    closer: str = ""
    outer: str = ""
    is_list: bool = False
    is_key: bool = False
    ends: tuple[str, ...] = ()


def can_end(cursor: Cursor, context: StringContext, length: int) -> bool:
    """Return whether the next `length` characters are certainly a complete string."""
    if not context.closer or context.is_key:
        return True
    text, _ = cursor.look_ahead(_END_LOOKAHEAD, length)
    return _can_follow(text, context) is True


def is_end(cursor: Cursor, context: StringContext) -> Waiting[bool]:
    """Return whether the quotation mark before the cursor ends the string."""
    if not context.closer or context.is_key:
        return True
    while True:
        text, is_all = cursor.look_ahead(_END_LOOKAHEAD)
        answer = _can_follow(text, context)
        if answer is None and is_all:
            return not text.strip() or text.lstrip()[0] in (",", context.closer)
        if answer is not None:
            return answer
        yield


@lru_cache(maxsize=256)
def pattern_inside(quote: str, context: StringContext) -> re.Pattern[str]:
    """Return a pattern for the text of a string, including quotation marks that do not end it.

    A match ends with a quotation mark or an escape, and before any of the marks `context.ends`.
    """
    beginnings = _class({end[0] for end in context.ends})
    ends = "|".join(map(re.escape, context.ends))
    plain = rf"[^{quote}\\{beginnings}]++" + (rf"|(?!{ends})[{beginnings}]" if ends else "")
    pattern = rf"(?:(?:{plain})*+(?:{WHOLE_ESCAPE}|{quote}(?={_not_after(context)})))++"
    return re.compile(possessive(pattern), re.DOTALL)


def _not_after(context: StringContext) -> str:
    """Return a pattern for text that certainly cannot follow a string."""
    closer = _class(context.closer)
    expected = _class({*"\"'“‘,/#", context.closer, *(end[0] for end in context.ends)})
    not_next = (
        rf"(?![\s{closer}{_POSSIBLE_AFTER_COMMA}])(?:{_NO_ITEM})"
        if context.is_list
        else rf"(?:{_NO_KEY_QUOTED}|(?![\s{closer}{_POSSIBLE_AFTER_COMMA}\"']){_NO_KEY_BARE})"
    )
    return "|".join(
        (
            rf"{_SPACE}[^\s{expected}]",
            rf"{_SPACE},{_SPACE}{not_next}",
            "[\"']" if context.is_list else _SPACE + _NO_KEY_QUOTED,
            rf"{_SPACE}[{closer}]{_SPACE}{_not_after_container(context)}",
        )
    )


def _not_after_container(context: StringContext) -> str:
    if context.outer:
        return rf"[^\s{_class(_AFTER_CONTAINER + context.outer)}]"
    return "[\"')]" if context.closer == ")" else "(?!)"


def _class(characters: Iterable[str]) -> str:
    return "".join(map(re.escape, sorted(characters)))


def _can_follow(text: str, context: StringContext) -> bool | None:
    """Return whether this text can follow a string; None if more text is needed."""
    has_space_before, text = text[:1].isspace(), text.lstrip()
    if not text:
        return None
    if text[0] == context.closer:
        return _can_follow_container(text[1:].lstrip(), context)
    if text[0] == ",":
        return _can_be_next(text[1:].lstrip(), context)
    if text[0] in QUOTES or text[0] in CURLY_QUOTES:  # a comma is missing, or the string continues
        return has_space_before if context.is_list else _matches(_KEY, _KEY_PREFIX, text)
    if text[0] == "#" and not has_space_before:
        return False
    return _is_at((*_COMMENTS, *context.ends), text)


def _can_follow_container(text: str, context: StringContext) -> bool | None:
    """Return whether this text can follow the container whose last string has just ended."""
    if not context.outer and context.closer != ")":
        return True
    if not text:
        return None
    return (
        text[0] not in "\"')" if not context.outer else text[0] in _AFTER_CONTAINER + context.outer
    )


def _can_be_next(text: str, context: StringContext) -> bool | None:
    """Return whether this text can be the next member of the container; None if unknown."""
    if not text:
        return None
    if text[0] == context.closer or text[0] in _AFTER_COMMA:
        return True
    if text[0] == "#":
        return _is_at(_COMMENTS, text)
    if context.is_list:
        return _matches(_ITEM, _ITEM_PREFIX, text)
    return _matches(_KEY, _KEY_PREFIX, text)


def _matches(pattern: re.Pattern[str], beginning: re.Pattern[str], text: str) -> bool | None:
    if pattern.match(text):
        return True
    return None if beginning.fullmatch(text) else False


def _is_at(marks: Iterable[str], text: str) -> bool | None:
    """Return whether a text begins with one of these marks; None if more text is needed."""
    if text.startswith(tuple(marks)):
        return True
    return None if any(mark.startswith(text) for mark in marks) else False


_APOSTROPHES = "'’"
_QUOTES = "\"'`“”‘’"
_DOUBT_LOOKAHEAD = 64  # characters after a doubtful value that are examined
_LONGEST_MARK = 32
_ESCAPE = re.compile(r"\\.", re.DOTALL)


class StringDoubt(IntEnum):
    """How uncertain the end of a string is, because of unescaped quotation marks in it."""

    NONE = 0  # the string contains no unescaped marks
    PAIRED = 1  # all unescaped marks come in pairs
    UNPAIRED = 2  # a mark has no partner, so this must be the last string of the value
    TORN = 3  # the string quotes JSON or a call, which may continue after the apparent end


def judge_doubt(source: str, opening: str, closing: str) -> StringDoubt:
    """Judge the source of a string with unescaped quotation marks, without its delimiters."""
    plain = _ESCAPE.sub("_", source) if "\\" in source else source
    if contains_call(plain):
        return StringDoubt.TORN
    if _torn_pattern(closing).search(plain):
        return StringDoubt.TORN
    if _build_paired_pattern(opening + closing).fullmatch(plain):
        return StringDoubt.PAIRED
    if _structure_pattern(closing).search(plain) or _stray_pattern(closing).search(plain):
        return StringDoubt.TORN
    return StringDoubt.UNPAIRED


@lru_cache
def _build_paired_pattern(quotes: str) -> re.Pattern[str]:
    """Return a pattern for text in which every quotation is closed; apostrophes are ignored."""
    plain = rf"(?:[^{quotes}]++|(?<=\w)(?![^{_APOSTROPHES}])[{quotes}](?=\w))*+"
    pattern = rf"(?:{plain}(?<!\w)[{quotes}]{plain}[{quotes}](?!\w))*+{plain}"
    return re.compile(possessive(pattern), re.DOTALL)


@lru_cache
def _structure_pattern(quote: str) -> re.Pattern[str]:
    """Return a pattern for a quotation mark next to the punctuation of JSON or a call."""
    return re.compile(rf"[=:(\[{{,]\s*{quote}|{quote}\s*:")


@lru_cache
def _torn_pattern(quote: str) -> re.Pattern[str]:
    """Return a pattern for a key between two strings, `, "b":`, and for doubled marks."""
    key = rf",\s*{quote}[^{quote}]*{quote}\s*:"
    return re.compile(rf"\A\s*{key}|{key}\s*\Z|\w{quote}{quote}|{quote}{quote}\w")


@lru_cache
def _stray_pattern(quote: str) -> re.Pattern[str]:
    """Return a pattern for a mark without a partner that is neither inches nor an apostrophe."""
    plain, quotation = rf"[^{quote}]|(?<=\w){quote}", rf"(?<!\w){quote}[^{quote}]*+{quote}"
    before = r"\d" if quote == '"' else r"\w"
    stray = rf"(?<!{before}){quote}"
    return re.compile(possessive(rf"\A(?:{quotation}|(?!{stray})(?:{plain}))*+{stray}"), re.DOTALL)


def may_end(cursor: Cursor, doubt: StringDoubt, ends: tuple[str, ...]) -> Waiting[bool]:
    """Return whether the next text can follow a doubtful value.

    After an unpaired mark, only closing marks and `ends` can follow. After paired marks, any text
    can follow, except text that continues a sentence on the same line.
    """
    while True:
        text, is_all = cursor.look_ahead(_DOUBT_LOOKAHEAD)
        rest = text.lstrip(" \t" if doubt is StringDoubt.PAIRED else None)
        if is_all or len(rest) >= _LONGEST_MARK:
            break
        yield
    if doubt is StringDoubt.PAIRED:
        return not rest or not (rest[0].isalnum() or rest[0] in _QUOTES)
    return not rest or rest.startswith(ends) or CLOSING.match(rest) is not None


def is_last(cursor: Cursor, mark: str) -> Waiting[bool]:
    """Return whether the reply ends after `mark`, which comes next, apart from white space."""
    while True:
        text, is_all = cursor.look_ahead(_DOUBT_LOOKAHEAD, len(mark))
        if is_all or text.strip():
            return not text.strip() and len(text) < _DOUBT_LOOKAHEAD
        yield


_BACKSLASH = "\\"
_ESCAPED_QUOTE = '\\"'
_ESCAPE_PLACEHOLDER = r"\_"  # replaces an escape in the source that `judge_doubt` receives
# Strings may also begin with typographic quotation marks, or with a backslash if the reply escapes
# all of its JSON once more: {\"name\": \"f\"}.
NONSTANDARD_QUOTES = frozenset((*CURLY_QUOTES, _BACKSLASH))
_ENDS = {'"': '"', "'": "'", **CURLY_QUOTES}
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in _ENDS.values()}
_SIMPLE_STRING = re.compile(r'"[^"\\\x00-\x1f]++"')
_ESCAPED = {
    quote: re.compile(possessive(rf"(?:[^{quote}\\]*+{WHOLE_ESCAPE})++"), re.DOTALL)
    for quote in _ENDS.values()
}

# Text of a string that was escaped twice. If the text ends with an incomplete escape, the match
# ends before that escape.
_TWICE_ESCAPED = re.compile(possessive(r"""(?:[^\\]++|\\\\(?:\\["\\]|[^\\])|\\[^\\"])++"""))


@dataclass(frozen=True, slots=True)
class Quoted:
    """A decoded string; `has_end` is false if its closing mark is missing."""

    text: str
    has_end: bool = True
    doubt: StringDoubt = field(default=StringDoubt.NONE, compare=False)


def read_plain_string(cursor: Cursor, context: StringContext) -> str | None:
    """Consume and return a string without escapes; None if it is not certainly complete."""
    source = cursor.look(_SIMPLE_STRING)
    if not source or not can_end(cursor, context, len(source)):
        return None
    cursor.advance(len(source))
    return source[1:-1]


def read_string(cursor: Cursor, quote: str, context: StringContext) -> Waiting[Quoted]:
    if quote == _BACKSLASH:
        return (yield from _read_escaped(cursor))
    if quote in QUOTES and (yield from cursor.literal(quote * 3)):
        return (yield from read_between(cursor, quote * 3))
    yield from cursor.literal(quote)
    return (yield from _StringReader(cursor, quote, context).read())


def consume_literal_text(cursor: Cursor, quote: str) -> str:
    """Consume and decode the text of a string up to a quotation mark or an incomplete escape."""
    text = cursor.consume_run(_PLAIN[quote])
    if not cursor.starts_with("\\"):  # the fast path: most strings contain no escape
        return text
    text += decode(cursor.consume_run(_ESCAPED[quote]), quote)
    return text + cursor.consume_run(_PLAIN[quote])


class _StringReader:
    """Reads a string that may contain unescaped quotation marks, after its opening mark."""

    def __init__(self, cursor: Cursor, quote: str, context: StringContext) -> None:
        self._cursor = cursor
        self._opening = quote
        self._quote = _ENDS[quote]
        self._context = context
        self._is_doubtful = False
        self._pieces: list[str] = []
        self._source: list[str] = []

    def read(self) -> Waiting[Quoted]:
        cursor, quote = self._cursor, self._quote
        certain_text = _ESCAPED[quote]
        while True:
            if run := cursor.consume_run(certain_text):
                self._add(run, decode(run, quote))
            plain = yield from cursor.take(_PLAIN[quote])
            self._add(plain, plain)
            char = yield from cursor.peek()
            if not char or (self._is_doubtful and any(end in plain for end in self._context.ends)):
                return Quoted("".join(self._pieces), has_end=False)
            cursor.advance(1)
            if char != quote:
                self._add(_ESCAPE_PLACEHOLDER, (yield from read_escape(cursor, quote)))
            elif (yield from is_end(cursor, self._context)):
                return self._finish()
            else:
                self._add(quote, quote)
                self._is_doubtful = True
                certain_text = pattern_inside(quote, self._context)

    def _add(self, source: str, text: str) -> None:
        self._source.append(source)
        self._pieces.append(text)

    def _finish(self) -> Quoted:
        doubt = StringDoubt.NONE
        if self._is_doubtful:
            doubt = judge_doubt("".join(self._source), self._opening, self._quote)
        return Quoted("".join(self._pieces), doubt=doubt)


def read_between(cursor: Cursor, mark: str, ends: tuple[str, ...] = ()) -> Waiting[Quoted]:
    """Read literal text up to the next `mark`, and consume the mark.

    The last value of an object may lack the closing mark, if `}` and one of `ends` follow at the
    end of the reply. In this case the `}` is also consumed.
    """
    marks = literals_of(mark, *ends)
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take_until(marks)))
        if (yield from cursor.literal(mark)):
            return Quoted("".join(pieces))
        end = next((known for known in ends if cursor.starts_with(known)), "")
        is_over = pieces[-1].rstrip().endswith("}") and (yield from is_last(cursor, end))
        if is_over or not end:
            text = "".join(pieces).rstrip().removesuffix("}")
            return Quoted(text, bool(end) and not contains_call(text))
        cursor.advance(len(end))
        pieces.append(end)


def _read_escaped(cursor: Cursor) -> Waiting[Quoted]:
    r"""Read a string of JSON that was escaped twice: `\"say \\\"no\\\"\"`."""
    pieces: list[str] = []
    if not (yield from cursor.literal(_ESCAPED_QUOTE)):
        raise Unreadable
    while True:
        pieces.append(cursor.consume_run(_TWICE_ESCAPED))
        piece = yield from cursor.take_until(literals_of(_ESCAPED_QUOTE))
        pieces.append(piece)
        has_end = yield from cursor.literal(_ESCAPED_QUOTE)
        # If the backslash before the quotation mark is itself escaped, the mark is a part of the
        # string.
        is_escaped = (len(piece) - len(piece.rstrip(_BACKSLASH))) % 4 == 2
        if not (has_end and is_escaped):
            break
        pieces.append(_ESCAPED_QUOTE)
    once = decode("".join(pieces), '"')
    return Quoted(decode(once, '"'), has_end)
