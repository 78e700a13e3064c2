"""What backslashes in strings mean, one at a time or many at once.

An escape that JSON does not know is kept as it is written. Half a pair of surrogates is no
character, and replaced.
"""

import re

from proxy.conversation import json
from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HEX = frozenset("0123456789abcdefABCDEF")
_UNIT = "[0-9a-fA-F]"
_HIGH = rf"[dD][89abAB]{_UNIT}{{2}}"
_LOW = rf"[dD][c-fC-F]{_UNIT}{{2}}"
# A backslash and all that belongs to it: behind half a pair more may have to arrive.
WHOLE_ESCAPE = rf"\\(?:[^u]|u(?:{_HIGH}\\u{_UNIT}{{4}}|(?!{_HIGH}(?:\\|\Z)){_UNIT}{{4}}))"
# Unknown ones and the text behind them stay as they are, so many count as one.
_KNOWN = rf"\\(?:[^u]|u{_HIGH}\\u{_UNIT}{{4}}|u{_UNIT}{{4}})"
_ESCAPE = re.compile(possessive(rf"""(?:\\[^"'\\/bfnrtu][^\\]*+)++|{_KNOWN}"""), re.DOTALL)
_STRICT = re.compile(
    possessive(
        r"""(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]"""
        rf"|\\u(?![dD][89a-fA-F]){_UNIT}{{4}}|\\u{_HIGH}\\u{_LOW})*+"
    )
)


def decode(written: str, quote: str) -> tuple[str, bool]:
    """Return what whole escapes, and text between them, mean in a string in such quotes.

    The second value reports whether they are correct JSON.
    """
    try:
        return str(json.parse(f'"{written}"')), True
    except ValueError:
        is_strict = _STRICT.fullmatch(written) is not None

    def meaning(match: re.Match[str]) -> str:
        escape, kind = match[0], match[0][1]
        if kind == "u":
            return _meaning(escape[2:6], escape[8:], escape)[0]
        return quote if kind == quote else _SIMPLE.get(kind, escape)

    return _ESCAPE.sub(meaning, written), is_strict


def read_escape(cursor: Cursor, quote: str) -> Waiting[tuple[str, bool]]:
    """Read what stands behind a backslash; False if JSON knows no such escape."""
    char = yield from cursor.peek()
    cursor.advance(len(char))
    if char == "u":
        return (yield from _read_code_point(cursor))
    if char in _SIMPLE:
        return _SIMPLE[char], True
    return char if char == quote else "\\" + char, False


def _read_code_point(cursor: Cursor) -> Waiting[tuple[str, bool]]:
    first = yield from _read_hexadecimal(cursor)
    written, second = "\\u" + first, ""
    if _is_between(first, 0xD800, 0xDBFF) and (yield from cursor.literal("\\u")):
        second = yield from _read_hexadecimal(cursor)
        written += "\\u" + second
    return _meaning(first, second, written)


def _meaning(first: str, second: str, written: str) -> tuple[str, bool]:
    """Return what one or two escaped units mean, and whether that is a character."""
    character = _character(first, second)
    if character:
        return character, True
    if not _is_between(first, 0xD800, 0xDFFF):
        return written, False
    rest = written[len("\\u0000") :]
    return _REPLACEMENT + (_meaning(second, "", rest)[0] if rest else ""), False


def _character(first: str, second: str) -> str:
    """Return the character that one or two UTF-16 units in hexadecimal stand for, "" if none."""
    if not _is_between(first, 0xD800, 0xDFFF):
        return chr(int(first, 16)) if len(first) == 4 and not second else ""
    if not (_is_between(first, 0xD800, 0xDBFF) and _is_between(second, 0xDC00, 0xDFFF)):
        return ""
    return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + int(second, 16) - 0xDC00)


def _read_hexadecimal(cursor: Cursor) -> Waiting[str]:
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
