r"""Decodes the escapes in strings, one at a time or many at once.

An escape that JSON does not define is kept as written, because models write `\d` and `C:\dir`
without escaping the backslash. An escape for half of a surrogate pair becomes the replacement
character U+FFFD, because half of a pair is not a character and cannot be encoded as UTF-8.
"""

import re
from contextlib import suppress

from proxy.conversation import json
from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_UNIT = "[0-9a-fA-F]"
_HIGH = rf"[dD][89abAB]{_UNIT}{{2}}"
_LOW = rf"\\u[dD][c-fC-F]{_UNIT}{{2}}"
_PAIR = _HIGH + _LOW
# A JSON escape for one character. An escape for half of a surrogate pair does not match.
STRICT_ESCAPE = rf'\\(?:["\\/bfnrt]|u(?:(?![dD][89a-fA-F]){_UNIT}{{4}}|{_PAIR}))'
# A complete escape. An escape for the first half of a surrogate pair matches only together with the
# second half, or if other text follows it.
_LONE_HALF = rf"{_HIGH}(?=\\(?:[^u]|u(?![dD][c-fC-F]){_UNIT}{{4}}))"
WHOLE_ESCAPE = rf"\\(?:[^u]|u(?:{_PAIR}|{_LONE_HALF}|(?!{_HIGH}(?:\\|\Z)){_UNIT}{{4}}))"
# Unknown escapes stay unchanged, so one match covers many of them and the text between them.
_KNOWN = rf"\\(?:[^u]|u{_PAIR}|u{_UNIT}{{4}})"
_ESCAPE = re.compile(possessive(rf"""(?:\\[^"'\\/bfnrtu][^\\]*+)++|{_KNOWN}"""), re.DOTALL)
_ESCAPED_UNIT = re.compile(rf"\\u({_UNIT}{{4}})")
_FIRST_OF_TWO = re.compile(rf"\\u{_HIGH}")
_SECOND_OF_TWO = re.compile(_LOW)
_SECOND_PREFIX = re.compile(rf"(?:\\(?:u(?:[dD](?:[c-fC-F]{_UNIT}?)?)?)?)?")
_HEX = re.compile(_UNIT)


def decode(escaped: str, quote: str) -> str:
    """Decode complete escapes and the text between them, in a string with these quotes."""
    with suppress(ValueError):
        return str(json.parse(f'"{escaped}"'))

    def decode_match(match: re.Match[str]) -> str:
        escape, kind = match[0], match[0][1]
        if kind == "u":
            return _decode_units(escape)
        return quote if kind == quote else _SIMPLE.get(kind, escape)

    return _ESCAPE.sub(decode_match, escaped)


def read_escape(cursor: Cursor, quote: str) -> Waiting[str]:
    """Read the rest of an escape after its backslash; return the decoded text."""
    char = yield from cursor.peek()
    cursor.advance(len(char))
    if char == "u":
        escaped = yield from _read_unit(cursor)
        if _FIRST_OF_TWO.fullmatch(escaped):
            second = yield from cursor.match(_SECOND_OF_TWO, _SECOND_PREFIX, len(escaped))
            cursor.advance(len(second[0]) if second else 0)
            escaped += second[0] if second else ""
        return _decode_units(escaped)
    return char if char == quote else _SIMPLE.get(char, "\\" + char)


def _read_unit(cursor: Cursor) -> Waiting[str]:
    r"""Read up to four hexadecimal digits; return them with the prefix `\u`."""
    digits = ""
    while len(digits) < 4 and _HEX.match((yield from cursor.peek())):
        digits += cursor.consume_run(_HEX)
    return "\\u" + digits


def _decode_units(escaped: str) -> str:
    """Decode one or two escaped UTF-16 units."""
    units = _ESCAPED_UNIT.sub(lambda unit: chr(int(unit[1], 16)), escaped)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
