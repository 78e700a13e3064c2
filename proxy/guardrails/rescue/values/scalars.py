"""What a written value can turn out to be, and the values that stand without quotation marks.

These are numbers, words and, where the marks around a call allow it, bare text: a comma, a
quotation mark or a bracket may belong to it. It ends where the next member begins, at the bracket
that closes what it stands in, or at a mark; brackets within it have to come in pairs.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isinf
from typing import Literal, Protocol, TypeAlias

from proxy.bounds import DIGITS
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

# Why a value could not be read.
ValueProblem: TypeAlias = Literal["cut_off", "unexpected", "too_deep", "too_long", "unwanted"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value; `is_closed` is false where closing brackets were missing at the end."""

    value: JsonValue
    is_strict: bool = True
    is_closed: bool = True


@dataclass
class Unreadable(Exception):
    """What was written is no value; `items` are the whole ones of a list that breaks off."""

    problem: ValueProblem = "unexpected"
    items: tuple[JsonValue, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Style:
    """In what a value is written beyond JSON.

    Where one of `ends` stands, the last closing bracket may be missing. `is_python` allows tuples,
    sets and keyword arguments in parentheses, `has_bare_text` strings without quotation marks.
    `outer` is the bracket or quotation mark that closes what stands around the value.
    """

    ends: tuple[str, ...] = ()
    is_python: bool = False
    has_bare_text: bool = False
    outer: str = ""


JSON = Style()
PYTHON = Style(is_python=True)


class MemberWatcher(Protocol):
    """Whoever wants to know which member of which object is being read.

    `path` holds the keys from the outermost container inwards, None for a list. Within arguments
    that were announced to the cursor, members may pass unheard.
    """

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        """Hear that a member's value comes next; False ends the reading."""

    def leaves(self, path: Sequence[str | None]) -> None:
        """Hear that a member's value has been read."""


STRICT_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
WORDS: dict[str, JsonValue] = {**STRICT_WORDS, "True": True, "False": False, "None": None}
NUMERIC = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CODE = re.compile(r"0[0-9]+")


def parse_number(text: str, *, is_python: bool = False) -> int | float | str:
    """Return the number that a text is, or raise `Unreadable`.

    Digits behind a zero are no number in JSON. Python's readers keep them as text: they may be a
    code of which the zero is a part, and what is due is for the schema to say.
    """
    if len(text) > DIGITS:
        raise Unreadable("too_long")
    match = _NUMBER.fullmatch(text)
    if match is None and is_python and _CODE.fullmatch(text):
        return text
    if match is None:
        raise Unreadable
    number = int(text) if match.lastindex is None else float(text)
    if isinstance(number, float) and isinf(number):
        raise Unreadable("too_long")
    return number


def interpret(text: str) -> JsonValue:
    """Return what a text without quotation marks means: a word, a number, or itself."""
    if text in WORDS:
        return WORDS[text]
    try:
        return parse_number(text)
    except Unreadable:
        return text


_PLAIN = re.compile(r"[^,{}\[\]()<]+")
_KEY = re.compile(r",\s*[A-Za-z_][\w$.-]*\s*:(?!//)")
_KEY_BEGINS = re.compile(r",\s*(?:[A-Za-z_][\w$.-]*\s*(?::/?)?)?")
_SIGHT = 80
_DEPTH_LIMIT = 64
_PAIRS = {"}": "{", "]": "[", ")": "("}
_DELIMITERS = ('<|"|>', "<escape>")


def _passes(opened: Counter[str], char: str) -> bool:
    """Count a bracket; False if it closes what stands around the text, or is one too many."""
    if char not in _PAIRS:
        opened[char] += 1
        return opened.total() < _DEPTH_LIMIT
    is_inner = opened[_PAIRS[char]] > 0
    opened[_PAIRS[char]] -= is_inner
    return is_inner or char == ")"


def read_bare(cursor: Cursor, ends: tuple[str, ...], *, is_item: bool) -> Waiting[str | None]:
    """Read a text up to what ends it, white space around it aside; None if it is in disorder.

    Every comma ends the item of a list. `ends` are the marks that stand behind the whole value.
    """
    marks = literals_of(*ends, *_DELIMITERS)
    opened = Counter[str]()  # brackets that have not been closed
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take(_PLAIN)))
        char = yield from cursor.peek()
        if char == "<":
            is_over = bool((yield from cursor.next_of(marks)))
        elif char == ",":
            is_over = not opened.total() and (
                is_item or bool((yield from cursor.match(_KEY, _KEY_BEGINS, _SIGHT)))
            )
        else:
            is_over = not char or not _passes(opened, char)
        if is_over:
            return "".join(pieces).strip() if not opened.total() else None
        cursor.advance(1)
        pieces.append(char)
