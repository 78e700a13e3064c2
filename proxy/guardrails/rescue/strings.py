"""Quoted strings in what models write as JSON or Python, for text that is still arriving.

A quotation mark inside a string is often not escaped. One ends the string only if what stands
behind it can follow a string there; in correct JSON that is always so. It knows nothing else of
the values around.
"""

import re
from dataclasses import dataclass

from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.literals import literals_of

QUOTES = ('"', "'")
_SIGHT = 256  # how far to look behind a quotation mark

_CONTROL = re.compile(r"[\x00-\x1f]")
_PLAIN = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"[^'\\]+")}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_HEX = frozenset("0123456789abcdefABCDEF")

_KEY = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\w$.-]+)\s*[:=]""", re.DOTALL)
_KEY_BEGINS = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*\\?|'(?:[^'\\]|\\.)*\\?|"(?:[^"\\]|\\.)*"\s*|'(?:[^'\\]|\\.)*'\s*"""
    r"""|[\w$.-]+\s*)""",
    re.DOTALL,
)
_ITEM = re.compile(r"""["'\[{(0-9-]|(?:true|false|null|True|False|None)\b|[A-Za-z_.]+\(""")
_ITEM_BEGINS = re.compile(r"[\w.]+")
_BEHIND_CONTAINER = "\"'{[<,/"


@dataclass(frozen=True, slots=True)
class Around:
    """Where a string stands: what closes the containers around it, "" where there is none.

    `ends` are the marks that stand behind the whole value.
    """

    closer: str = ""
    outer: str = ""
    is_list: bool = False
    is_key: bool = False
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string that was read; `is_whole` is false if its end is missing."""

    text: str
    is_whole: bool = True
    is_strict: bool = True


def read_string(cursor: Cursor, quote: str, around: Around) -> Waiting[Quoted]:
    """Read the string that begins with `quote`, the quotation mark that comes next."""
    if (yield from cursor.literal(quote * 3)):
        return (yield from read_between(cursor, quote * 3))
    cursor.advance(1)
    is_strict, is_doubtful = quote == '"', False
    pieces: list[str] = []
    while True:
        plain = yield from cursor.take(_PLAIN[quote])
        is_strict = is_strict and not _CONTROL.search(plain)
        pieces.append(plain)
        char = yield from cursor.peek()
        if not char or (is_doubtful and any(end in plain for end in around.ends)):
            return Quoted("".join(pieces), is_whole=False)
        cursor.advance(1)
        if char != quote:
            piece, is_known = yield from _escape(cursor, quote)
            is_strict = is_strict and is_known
        elif (yield from _is_end(cursor, around)):
            return Quoted("".join(pieces), is_strict=is_strict)
        else:
            piece, is_strict, is_doubtful = quote, False, True
        pieces.append(piece)


def read_between(cursor: Cursor, mark: str) -> Waiting[Quoted]:
    """Read literal text up to the next `mark`, and the mark."""
    text = yield from cursor.take_until(literals_of(mark))
    is_whole = yield from cursor.literal(mark)
    return Quoted(text, is_whole, is_strict=False)


def _is_end(cursor: Cursor, around: Around) -> Waiting[bool]:
    if not around.closer or around.is_key:
        return True
    while True:
        text, is_all = cursor.glimpse(_SIGHT)
        answer = _can_follow(text.lstrip(), around, is_apart=text[:1].isspace())
        if answer is None and is_all:
            return not text.strip() or text.lstrip()[0] in (",", around.closer)
        if answer is not None:
            return answer
        yield


def _can_follow(text: str, around: Around, *, is_apart: bool) -> bool | None:
    """Tell whether this text can follow a string; None if only more text can tell."""
    if not text:
        return None
    if text[0] == around.closer:
        return _can_follow_container(text[1:].lstrip(), around)
    if text[0] == ",":
        return _can_be_next(text[1:].lstrip(), around)
    if text[0] in QUOTES:  # a comma is missing, or this is not the end
        return is_apart if around.is_list else _matches(_KEY, _KEY_BEGINS, text)
    return text.startswith(("//", "/*", *around.ends)) or (
        None if _is_start(text, around) else False
    )


def _can_follow_container(text: str, around: Around) -> bool | None:
    if not around.outer and around.closer != ")":
        return True
    if not text:
        return None
    return (
        text[0] not in "\"')" if not around.outer else text[0] in _BEHIND_CONTAINER + around.outer
    )


def _can_be_next(text: str, around: Around) -> bool | None:
    """Tell whether this text can be the next member of the container."""
    if not text:
        return None
    if text[0] in (around.closer, "/", "<", "&"):
        return True
    if around.is_list:
        return _matches(_ITEM, _ITEM_BEGINS, text)
    return _matches(_KEY, _KEY_BEGINS, text)


def _matches(pattern: re.Pattern[str], beginning: re.Pattern[str], text: str) -> bool | None:
    if pattern.match(text):
        return True
    return None if beginning.fullmatch(text) else False


def _is_start(text: str, around: Around) -> bool:
    return any(end.startswith(text) for end in ("//", *around.ends))


def _escape(cursor: Cursor, quote: str) -> Waiting[tuple[str, bool]]:
    """Read what stands behind a backslash; False if JSON knows no such escape."""
    char = yield from cursor.peek()
    cursor.advance(len(char))
    if char == "u":
        return (yield from _code_point(cursor))
    if char in _ESCAPES:
        return _ESCAPES[char], True
    return char if char == quote else "\\" + char, False


def _code_point(cursor: Cursor) -> Waiting[tuple[str, bool]]:
    first = yield from _hexadecimal(cursor)
    written = "\\u" + first
    if _is_between(first, 0xD800, 0xDBFF) and (yield from cursor.literal("\\u")):
        second = yield from _hexadecimal(cursor)
        if _is_between(second, 0xDC00, 0xDFFF):
            low = int(second, 16) - 0xDC00
            return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + low), True
        written += "\\u" + second
    elif len(first) == 4 and not _is_between(first, 0xD800, 0xDFFF):
        return chr(int(first, 16)), True
    return written, False


def _hexadecimal(cursor: Cursor) -> Waiting[str]:
    digits = ""
    while len(digits) < 4:
        char = yield from cursor.peek()
        if char not in _HEX:
            break
        cursor.advance(1)
        digits += char
    return digits


def _is_between(digits: str, low: int, high: int) -> bool:
    return len(digits) == 4 and low <= int(digits, 16) <= high
