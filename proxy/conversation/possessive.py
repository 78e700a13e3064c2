"""Possessive groups for every Python: before 3.11.5 `(...)++` may end within a half-matched turn.

A group that is repeated possessively keeps what its last turn had passed before that failed
(https://github.com/python/cpython/issues/106052). The same in an atomic group is matched right, but
holds on to every turn, so it is written where it must be, and nowhere else.
"""

import re
import sys

_FIXED = (3, 11, 5)
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)(?:([*+?]|\{[0-9,]+\})\+)?|[^\\\[()]+", re.DOTALL
)


def possessive(pattern: str, *, version: tuple[int, ...] = sys.version_info[:3]) -> str:
    """Return a pattern whose possessive groups work in this version of Python."""
    return pattern if version >= _FIXED else _with_atomic_groups(pattern)


def _with_atomic_groups(pattern: str) -> str:
    pieces: list[str] = []
    opened: list[int] = []
    for piece in _PIECE.finditer(pattern):
        if piece[0] == "(":
            opened.append(len(pieces))
        elif piece[0].startswith(")"):
            begin = opened.pop()
            if piece[1]:
                pieces[begin] = f"(?>{pieces[begin]}"
                pieces.append(f"){piece[1]})")
                continue
        pieces.append(piece[0])
    return "".join(pieces)
