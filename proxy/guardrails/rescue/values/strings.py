"""Quoted strings in JSON or Python of models, for text that is still arriving.

A quotation mark inside a string is often not escaped. A quotation mark ends the string only if the
next text can follow a string there; in valid JSON it always can. If the unescaped marks inside a
string come in pairs, no other reading is possible. If a quotation mark is unpaired, the string may
end there. Or it may continue past its apparent end, which then belongs to the JSON or the call that
the string quotes.

    {"text": "He said "no"."}            `no` is followed by neither a comma nor a bracket
    {"text": "a", "b": "c"}              two members
    {"text": "{"name": "f"}"}            torn: it quotes JSON, and its end is not certain
"""

# ruff: noqa: RUF001 - some quotation marks are a typesetter's

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.marks import CLOSING, holds_call
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.escapes import WHOLE_ESCAPE, decode, read_escape
from proxy.guardrails.rescue.values.scalars import Unreadable

QUOTES = ('"', "'")
CURLY_QUOTES = {"“": "”", "‘": "’"}
_END_LOOKAHEAD = 256  # how far to look after a quotation mark

_COMMENTS = ("//", "/*", "# ")
_KEY = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|“[^”]*”|‘[^’]*’|(?:[\w$.-]|\\_)+)\s*[:=]""",
    re.DOTALL,
)
_KEY_BEGINS = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*\\?|'(?:[^'\\]|\\.)*\\?|"(?:[^"\\]|\\.)*"\s*|'(?:[^'\\]|\\.)*'\s*"""
    r"""|“[^”]*|‘[^’]*|(?:“[^”]*”|‘[^’]*’)\s*|(?:[\w$.-]|\\_)+(?:\\|\s*))""",
    re.DOTALL,
)
_ITEM = re.compile(r"""["'“‘\[{(0-9-]|(?:true|false|null|True|False|None)\b|[A-Za-z_.]+\(""")
_ITEM_BEGINS = re.compile(r"[\w.]+")
_AFTER_CONTAINER = "\"'“‘{[<,/#"
_AFTER_COMMA = "/<&"
_PERHAPS_AFTER_COMMA = f"{_AFTER_COMMA}#“‘"

# The same as patterns, for the most frequent cases and only if the answer is no: a text with many
# quotation marks is then passed by one match instead of one decision for each mark.
_SPACE = r"\s{0,40}+"
_NO_KEY_QUOTED = rf"""(?:"[^"\\]{{0,80}}+"|'[^'\\]{{0,80}}+'){_SPACE}(?=[^\s:=])"""
_NO_KEY_BARE = r"[\w$.-]{0,80}+(?:\s{1,40}+(?=[^\s:=])|(?=[^\s\w$.:=\\-]))"
_NO_ITEM = rf"(?!{_ITEM.pattern})[\w.]{{0,80}}+(?=[^\w.])"


@dataclass(frozen=True, slots=True)
class StringContext:
    """The brackets that close the containers of a string, "" if none; `ends` follow the value."""

    closer: str = ""
    outer: str = ""
    is_list: bool = False
    is_key: bool = False
    ends: tuple[str, ...] = ()


def can_end(cursor: Cursor, context: StringContext, length: int) -> bool:
    """Return whether a string of this length, which comes next, certainly ends there."""
    if not context.closer or context.is_key:
        return True
    text, _ = cursor.look_ahead(_END_LOOKAHEAD, length)
    return _can_follow(text, context) is True


def is_end(cursor: Cursor, context: StringContext) -> Waiting[bool]:
    """Return whether the quotation mark that was just passed is the end."""
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
def inside_pattern(quote: str, context: StringContext) -> re.Pattern[str]:
    """Return a pattern for text up to an escape or a mark that does not end the string.

    It matches as many of these as there are, but nothing that `ends` the value around.
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
        rf"(?![\s{closer}{_PERHAPS_AFTER_COMMA}])(?:{_NO_ITEM})"
        if context.is_list
        else rf"(?:{_NO_KEY_QUOTED}|(?![\s{closer}{_PERHAPS_AFTER_COMMA}\"']){_NO_KEY_BARE})"
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
    is_apart, text = text[:1].isspace(), text.lstrip()
    if not text:
        return None
    if text[0] == context.closer:
        return _can_follow_container(text[1:].lstrip(), context)
    if text[0] == ",":
        return _can_be_next(text[1:].lstrip(), context)
    if text[0] in QUOTES or text[0] in CURLY_QUOTES:  # a comma is missing, or this is not the end
        return is_apart if context.is_list else _matches(_KEY, _KEY_BEGINS, text)
    if text[0] == "#" and not is_apart:
        return False
    return _is_at((*_COMMENTS, *context.ends), text)


def _can_follow_container(text: str, context: StringContext) -> bool | None:
    if not context.outer and context.closer != ")":
        return True
    if not text:
        return None
    return (
        text[0] not in "\"')" if not context.outer else text[0] in _AFTER_CONTAINER + context.outer
    )


def _can_be_next(text: str, context: StringContext) -> bool | None:
    """Return whether this text can be the next member of the container."""
    if not text:
        return None
    if text[0] == context.closer or text[0] in _AFTER_COMMA:
        return True
    if text[0] == "#":
        return _is_at(_COMMENTS, text)
    if context.is_list:
        return _matches(_ITEM, _ITEM_BEGINS, text)
    return _matches(_KEY, _KEY_BEGINS, text)


def _matches(pattern: re.Pattern[str], beginning: re.Pattern[str], text: str) -> bool | None:
    if pattern.match(text):
        return True
    return None if beginning.fullmatch(text) else False


def _is_at(marks: Iterable[str], text: str) -> bool | None:
    """Return whether a text begins with one of these marks; None if it still may."""
    if text.startswith(tuple(marks)):
        return True
    return None if any(mark.startswith(text) for mark in marks) else False


_APOSTROPHES = "'’"
_QUOTES = "\"'`“”‘’"
_DOUBT_LOOKAHEAD = 64  # how far to look after a value
_LONGEST_MARK = 32
_ESCAPE = re.compile(r"\\.", re.DOTALL)


class StringDoubt(IntEnum):
    """How doubtful a string is, the worst last."""

    NONE = 0
    PAIRED = 1  # marks in it come in pairs
    UNPAIRED = 2  # one has no partner: the string must be the last of its value
    TORN = 3  # what it quotes continues after it


def judge_doubt(source: str, opening: str, closing: str) -> StringDoubt:
    """Judge text between these quotation marks, some of which are not escaped."""
    plain = _ESCAPE.sub("_", source) if "\\" in source else source
    if holds_call(plain):
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
    """Return a pattern for text in which every quotation ends; apostrophes begin no quotation."""
    plain = rf"(?:[^{quotes}]++|(?<=\w)(?![^{_APOSTROPHES}])[{quotes}](?=\w))*+"
    pattern = rf"(?:{plain}(?<!\w)[{quotes}]{plain}[{quotes}](?!\w))*+{plain}"
    return re.compile(possessive(pattern), re.DOTALL)


@lru_cache
def _structure_pattern(quote: str) -> re.Pattern[str]:
    return re.compile(rf"[=:(\[{{,]\s*{quote}|{quote}\s*:")


@lru_cache
def _torn_pattern(quote: str) -> re.Pattern[str]:
    """Return a pattern for the text between two strings, and for doubled marks."""
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
    """Return whether a doubtful value may end here, judging by the next text.

    A string with an unpaired mark may be followed only by closing marks, the others by no text on
    the same line. `ends` are closing marks, too.
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
    """Return whether only white space follows `mark`, which comes next."""
    while True:
        text, is_all = cursor.look_ahead(_DOUBT_LOOKAHEAD, len(mark))
        if is_all or text.strip():
            return not text.strip() and len(text) < _DOUBT_LOOKAHEAD
        yield


_BACKSLASH = "\\"
_ESCAPED_QUOTE = '\\"'
_SOME_ESCAPE = r"\_"  # stands for the one that was read
# Further beginnings of strings: typesetters' quotation marks, and escaped ones, because some
# replies escape all of their JSON once more: {\"name\": \"f\"}.
FOREIGN_QUOTES = frozenset((*CURLY_QUOTES, _BACKSLASH))
_ENDS = {'"': '"', "'": "'", **CURLY_QUOTES}
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in _ENDS.values()}
_WHOLE = re.compile(r'"[^"\\\x00-\x1f]++"')
_ESCAPED = {
    quote: re.compile(possessive(rf"(?:[^{quote}\\]*+{WHOLE_ESCAPE})++"), re.DOTALL)
    for quote in _ENDS.values()
}

# Text of a string that was escaped once more, up to an escape that is not complete.
_TWICE_ESCAPED = re.compile(possessive(r"""(?:[^\\]++|\\\\(?:\\["\\]|[^\\])|\\[^\\"])++"""))


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string; `is_whole` is false if its end is missing."""

    text: str
    is_whole: bool = True
    doubt: StringDoubt = field(default=StringDoubt.NONE, compare=False)


def pass_plain_string(cursor: Cursor, context: StringContext) -> str | None:
    """Pass and return a string without escapes; None if more is needed to decide."""
    source = cursor.look(_WHOLE)
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
    return (yield from _Unescaped(cursor, quote, context).read())


def pass_literal_text(cursor: Cursor, quote: str) -> str:
    """Pass the text of a string up to a quotation mark or half an escape; return it."""
    text = cursor.pass_run(_PLAIN[quote])
    if not cursor.stands_at("\\"):  # nearly always
        return text
    text += decode(cursor.pass_run(_ESCAPED[quote]), quote)
    return text + cursor.pass_run(_PLAIN[quote])


class _Unescaped:
    """Reads a string with quotation marks that may be unescaped, from after the first one."""

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
        undoubted = _ESCAPED[quote]
        while True:
            if run := cursor.pass_run(undoubted):
                self._add(run, decode(run, quote))
            plain = yield from cursor.take(_PLAIN[quote])
            self._add(plain, plain)
            char = yield from cursor.peek()
            if not char or (self._is_doubtful and any(end in plain for end in self._context.ends)):
                return Quoted("".join(self._pieces), is_whole=False)
            cursor.advance(1)
            if char != quote:
                self._add(_SOME_ESCAPE, (yield from read_escape(cursor, quote)))
            elif (yield from is_end(cursor, self._context)):
                return self._finish()
            else:
                self._add(quote, quote)
                self._is_doubtful = True
                undoubted = inside_pattern(quote, self._context)

    def _add(self, source: str, meaning: str) -> None:
        self._source.append(source)
        self._pieces.append(meaning)

    def _finish(self) -> Quoted:
        doubt = StringDoubt.NONE
        if self._is_doubtful:
            doubt = judge_doubt("".join(self._source), self._opening, self._quote)
        return Quoted("".join(self._pieces), doubt=doubt)


def read_between(cursor: Cursor, mark: str, ends: tuple[str, ...] = ()) -> Waiting[Quoted]:
    """Read literal text up to the next `mark`, and the mark.

    For the last value of an object the mark may be missing before the bracket, if one of `ends`
    follows and ends the reply. The bracket is passed, too.
    """
    marks = literals_of(mark, *ends)
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take_until(marks)))
        if (yield from cursor.literal(mark)):
            return Quoted("".join(pieces))
        end = next((known for known in ends if cursor.stands_at(known)), "")
        is_over = pieces[-1].rstrip().endswith("}") and (yield from is_last(cursor, end))
        if is_over or not end:
            text = "".join(pieces).rstrip().removesuffix("}")
            return Quoted(text, bool(end) and not holds_call(text))
        cursor.advance(len(end))
        pieces.append(end)


def _read_escaped(cursor: Cursor) -> Waiting[Quoted]:
    """Read a string of JSON that was escaped once more, up to the quote that ends it."""
    pieces: list[str] = []
    if not (yield from cursor.literal(_ESCAPED_QUOTE)):  # not every backslash begins a string
        raise Unreadable
    while True:
        pieces.append(cursor.pass_run(_TWICE_ESCAPED))
        piece = yield from cursor.take_until(literals_of(_ESCAPED_QUOTE))
        pieces.append(piece)
        is_whole = yield from cursor.literal(_ESCAPED_QUOTE)
        is_text = (len(piece) - len(piece.rstrip(_BACKSLASH))) % 4 == 2  # the quote is escaped
        if not (is_whole and is_text):
            break
        pieces.append(_ESCAPED_QUOTE)
    once = decode("".join(pieces), '"')
    return Quoted(decode(once, '"'), is_whole)
