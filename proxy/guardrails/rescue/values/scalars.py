"""The types of values and errors, and values without quotation marks.

These are numbers, words and, if the marks around a call allow it, bare text, which may contain
commas, quotation marks and brackets. Bare text ends where the next member begins, at the bracket
that closes its container, or at a mark; brackets in it have to be balanced.
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

# Why a value could not be read.
ValueProblem: TypeAlias = Literal["cut_off", "unexpected", "too_deep", "too_long", "unwanted"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value; `is_closed` is false if closing brackets were missing at the end."""

    value: JsonValue
    is_closed: bool = True


@dataclass
class Unreadable(Exception):
    """Raised if no value can be read; `items` are the whole items of a list that breaks off."""

    problem: ValueProblem = "unexpected"
    items: tuple[JsonValue, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Style:
    """How a value may deviate from JSON.

    At one of `ends` the last closing bracket may be missing. `is_python` allows tuples, sets and
    keyword arguments in parentheses, `has_bare_text` strings without quotation marks, `has_words`
    only such words, `has_gaps` three dots in place of a value. `outer` is the closing bracket or
    quotation mark of the text around the value.
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
    """Follows which member of which object is being read; this class allows everything.

    `path` holds the keys from the outermost container inwards, None for a list. Members of
    arguments that were announced to the cursor may go unreported.
    """

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        """Note that a member's value comes next; return False to stop the reading."""
        del path, members
        return True

    def adds(self, items: Sequence[JsonValue]) -> bool:
        """Note that the outermost list got another item; return False to stop the reading."""
        del items
        return True

    def leaves(self, path: Sequence[str | None]) -> None:
        """Note that a member is complete."""


WORDS: dict[str, JsonValue] = {
    **{"true": True, "false": False, "null": None},
    **{"True": True, "False": False, "None": None},
}
NUMERIC = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CODE = re.compile(r"0[0-9]+")


def parse_number(text: str, *, is_python: bool = False) -> int | float | str:
    """Return the number that a text is, or raise `Unreadable`.

    Digits after a zero are not a number in JSON. For Python they are kept as text: they may be a
    code that includes the zero, and the schema has the expected type.
    """
    if len(text) > DIGITS:  # refused and never rounded; `int` takes quadratic time
        raise Unreadable("too_long")
    match = _NUMBER.fullmatch(text)
    if match is None and is_python and _CODE.fullmatch(text):
        return text
    if match is None:
        raise Unreadable
    number = int(text) if match.lastindex is None else float(text)
    if isinstance(number, float) and isinf(number):  # JSON cannot write it: `1e999`
        raise Unreadable("too_long")
    return number


def interpret(text: str) -> JsonValue:
    """Return the value of a text without quotation marks: a word, a number, or itself."""
    if text in WORDS:
        return WORDS[text]
    try:
        return parse_number(text)
    except Unreadable:
        return text


_PLAIN = re.compile(r"[^,{}\[\]()<]+")
_KEY = re.compile(r",\s*[A-Za-z_][\w$.-]*\s*:(?!//)")
_KEY_BEGINS = re.compile(r",\s*(?:[A-Za-z_][\w$.-]*\s*(?::/?)?)?")
_LOOKAHEAD = 80
_PAIRS = {"}": "{", "]": "[", ")": "("}
_DELIMITERS = ('<|"|>', "<escape>")


def _passes(opened: Counter[str], char: str) -> bool:
    """Count a bracket; return False if it closes a container around the text, or is surplus."""
    if char not in _PAIRS:
        opened[char] += 1
        return opened.total() < LEVELS
    is_inner = opened[_PAIRS[char]] > 0
    opened[_PAIRS[char]] -= is_inner
    return is_inner or char == ")"


def read_bare(cursor: Cursor, ends: tuple[str, ...], *, is_item: bool) -> Waiting[str | None]:
    """Read a text up to its end, without white space around it; None if unbalanced.

    Every comma ends the item of a list. `ends` are the marks after the whole value.
    """
    marks = literals_of(*ends, *_DELIMITERS)
    opened = Counter[str]()  # brackets that are still open
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take(_PLAIN)))
        char = yield from cursor.peek()
        if char == "<":
            is_over = bool((yield from cursor.next_of(marks)))
        elif char == ",":
            is_over = not opened.total() and (
                is_item or bool((yield from cursor.match(_KEY, _KEY_BEGINS, _LOOKAHEAD)))
            )
        else:
            is_over = not char or not _passes(opened, char)
        if is_over:
            return "".join(pieces).strip() if not opened.total() else None
        cursor.advance(1)
        pieces.append(char)
