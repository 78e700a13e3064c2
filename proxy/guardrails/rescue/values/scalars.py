"""The types of values and errors, and readers for values without quotation marks.

A value without quotation marks is a number, a word or, in formats that allow it, bare text. Bare
text may contain commas, quotation marks and balanced brackets. It ends where the next member
begins, at the bracket that closes its container, or at a mark:

    {city:Berlin, the capital,days:3}    city is "Berlin, the capital"
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isinf
from typing import Literal, TypeAlias

from proxy.bounds import DIGITS, LEVELS
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

# "unwanted": a `MemberWatcher` stopped the reading.
ValueProblem: TypeAlias = Literal["cut_off", "unexpected", "too_deep", "too_long", "unwanted"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value; `is_closed` is false if closing brackets were missing at the end."""

    value: JsonValue
    is_closed: bool = True


@dataclass
class Unreadable(Exception):
    """Raised if no value can be read; `items` are the complete items of an incomplete list."""

    problem: ValueProblem = "unexpected"
    items: tuple[JsonValue, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Style:
    """How a value may deviate from JSON.

    - `ends`: marks before which the last closing bracket may be missing.
    - `is_python` allows tuples, sets and keyword arguments in parentheses.
    - `has_bare_text` allows strings without quotation marks. `has_words` allows only single words.
    - `has_gaps` allows three dots in place of a value.
    - `outer`: the closing bracket or quotation mark of the text that contains the value.
    """

    ends: tuple[str, ...] = ()
    is_python: bool = False
    has_bare_text: bool = False
    has_words: bool = False
    has_gaps: bool = False
    outer: str = ""


JSON = Style()
PYTHON = Style(is_python=True)


class MemberWatcher:
    """Is notified of each member while a value is read; this base class never stops the reading.

    `path` has one entry for each open container, from the outermost container inwards: the key, or
    None for a list. The members of arguments that were announced to the cursor are not always
    reported.
    """

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        """Receive the path of the member whose value comes next; return False to stop."""
        del path, members
        return True

    def adds(self, items: Sequence[JsonValue]) -> bool:
        """Receive the items of the outermost list after each new item; return False to stop."""
        del items
        return True

    def leaves(self, path: Sequence[str | None]) -> None:
        """Receive the path of a complete member."""


WORDS: dict[str, JsonValue] = {
    **{"true": True, "false": False, "null": None},
    **{"True": True, "False": False, "None": None},
}
NUMERIC = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ZERO_PADDED = re.compile(r"0[0-9]+")


def parse_number(text: str, *, is_python: bool = False) -> int | float | str:
    """Parse a number; raises `Unreadable`.

    JSON allows no zero before other digits. In Python style such a text is returned as a string,
    because it may be a code such as `00501`; only the tool's schema shows which type is expected.
    """
    if len(text) > DIGITS:  # a limit, because `int` takes quadratic time
        raise Unreadable("too_long")
    match = _NUMBER.fullmatch(text)
    if match is None and is_python and _ZERO_PADDED.fullmatch(text):
        return text
    if match is None:
        raise Unreadable
    number = int(text) if match.lastindex is None else float(text)
    if isinstance(number, float) and isinf(number):  # `1e999`; JSON has no infinity
        raise Unreadable("too_long")
    return number


def interpret(text: str) -> JsonValue:
    """Convert a text to the constant or number that it represents; return other text unchanged."""
    if text in WORDS:
        return WORDS[text]
    try:
        return parse_number(text)
    except Unreadable:
        return text


_PLAIN = re.compile(r"[^,{}\[\]()<]+")  # bare text, up to a character that may end it
_KEY = re.compile(r",\s*[A-Za-z_][\w$.-]*\s*:(?!//)")
_KEY_BEGINS = re.compile(r",\s*(?:[A-Za-z_][\w$.-]*\s*(?::/?)?)?")
_LOOKAHEAD = 80
_PAIRS = {"}": "{", "]": "[", ")": "("}
_DELIMITERS = ('<|"|>', "<escape>")


def _belongs_to_text(open_brackets: Counter[str], char: str) -> bool:
    """Count a bracket; return False if it closes a bracket that was not opened in the text.

    A single `)` is text, as in `:)`.
    """
    if char not in _PAIRS:
        open_brackets[char] += 1
        return open_brackets.total() < LEVELS
    is_inner = open_brackets[_PAIRS[char]] > 0
    open_brackets[_PAIRS[char]] -= is_inner
    return is_inner or char == ")"


def read_bare(cursor: Cursor, ends: tuple[str, ...], *, is_item: bool) -> Waiting[str | None]:
    """Read bare text and strip it; return None if its brackets are not balanced.

    `ends` are the marks that may follow the value. In a list (`is_item`), every comma ends the
    text.
    """
    marks = literals_of(*ends, *_DELIMITERS)
    open_brackets = Counter[str]()
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take(_PLAIN)))
        char = yield from cursor.peek()
        if char == "<":
            is_over = bool((yield from cursor.next_of(marks)))
        elif char == ",":
            is_over = not open_brackets.total() and (
                is_item or bool((yield from cursor.match(_KEY, _KEY_BEGINS, _LOOKAHEAD)))
            )
        else:
            is_over = not char or not _belongs_to_text(open_brackets, char)
        if is_over:
            return "".join(pieces).strip() if not open_brackets.total() else None
        cursor.advance(1)
        pieces.append(char)
