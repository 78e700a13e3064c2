r"""Possessive groups for every Python: before 3.11.5 `(...)++` may end within a failed repetition.

A group that is repeated possessively keeps the text of its last repetition, although that failed
halfway (https://github.com/python/cpython/issues/106052). Debian 12 has such a Python: strings with
escapes lost or gained characters there, and calls were misread. The same repetition in an atomic
group is matched correctly, but needs memory for every repetition, so it replaces the possessive one
only in these versions:

    (?:[^"\\]++|\\.)++      ->      (?>(?:[^"\\]++|\\.)+)
"""

import re
import sys

_FIXED = (3, 11, 5)
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)(?:([*+?]|\{[0-9,]+\})\+)?|[^\\\[()]+", re.DOTALL
)


def possessive(pattern: str, *, version: tuple[int, ...] = sys.version_info[:3]) -> str:
    """Return the pattern with possessive groups that work in this version of Python."""
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
