"""Text without quotation marks as a value, where the marks around the call allow it.

A comma, a quotation mark or a bracket may belong to it. It ends where the next member begins, at
the bracket that closes what it stands in, or at a mark; brackets within it have to come in pairs.
"""

import re

from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.literals import Literals, literals_of

_PLAIN = re.compile(r"[^,{}\[\]()<]+")
_KEY = re.compile(r",\s*[A-Za-z_][\w$.-]*\s*:(?!//)")
_KEY_BEGINS = re.compile(r",\s*(?:[A-Za-z_][\w$.-]*\s*(?::/?)?)?")
_SIGHT = 80
_DEPTH_LIMIT = 64
_PAIRS = {"}": "{", "]": "[", ")": "("}
_DELIMITERS = ('<|"|>', "<escape>")


class _Brackets:
    """The brackets within a text that have not been closed."""

    def __init__(self) -> None:
        self._open = dict.fromkeys(_PAIRS.values(), 0)

    @property
    def are_paired(self) -> bool:
        return not any(self._open.values())

    def passes(self, char: str) -> bool:
        """Count a bracket; False if it closes what stands around the text, or is one too many."""
        if char not in _PAIRS:
            self._open[char] += 1
            return sum(self._open.values()) < _DEPTH_LIMIT
        opening = _PAIRS[char]
        if self._open[opening]:
            self._open[opening] -= 1
            return True
        return char == ")"


def read_bare(cursor: Cursor, ends: tuple[str, ...], *, is_item: bool) -> Waiting[str | None]:
    """Read a text up to what ends it, white space around it aside; None if it is in disorder.

    Every comma ends the item of a list. `ends` are the marks that stand behind the whole value.
    """
    marks = literals_of(*ends, *_DELIMITERS)
    brackets = _Brackets()
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take(_PLAIN)))
        char = yield from cursor.peek()
        if char == "<":
            is_over = yield from _is_at(cursor, marks)
        elif char == ",":
            is_over = brackets.are_paired and (is_item or (yield from _is_before_key(cursor)))
        else:
            is_over = not char or not brackets.passes(char)
        if is_over:
            return "".join(pieces).strip() if brackets.are_paired else None
        cursor.advance(1)
        pieces.append(char)


def _is_at(cursor: Cursor, marks: Literals) -> Waiting[bool]:
    while (mark := cursor.here(marks)) is None:
        yield
    return bool(mark)


def _is_before_key(cursor: Cursor) -> Waiting[bool]:
    """Return whether the comma that comes next has a key behind it."""
    while True:
        text, is_all = cursor.glimpse(_SIGHT)
        if is_all or not _KEY_BEGINS.fullmatch(text):
            return _KEY.match(text) is not None
        yield
