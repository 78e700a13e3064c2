r"""Replaces possessive groups in Python versions that match them incorrectly.

Before Python 3.11.5, a match of `(...)++` may end within a repetition that failed halfway
(https://github.com/python/cpython/issues/106052). With the Python of Debian 12, Temper therefore
lost or added characters in strings with escapes, and misread calls. Atomic groups are matched
correctly, but they need memory for every repetition. Therefore, they are used only in the affected
versions:

    (?:[^"\\]++|\\.)++      ->      (?>(?:[^"\\]++|\\.)+)
"""

import re
import sys

_FIXED = (3, 11, 5)
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)(?:([*+?]|\{[0-9,]+\})\+)?|[^\\\[()]+", re.DOTALL
)


def possessive(pattern: str, *, version: tuple[int, ...] = sys.version_info[:3]) -> str:
    """Return the pattern with possessive groups that work in this version of Python."""
    return pattern if version >= _FIXED else _with_atomic_groups(pattern)


def _with_atomic_groups(pattern: str) -> str:
    tokens: list[str] = []
    group_starts: list[int] = []
    for token in _TOKEN.finditer(pattern):
        if token[0] == "(":
            group_starts.append(len(tokens))
        elif token[0].startswith(")"):
            start = group_starts.pop()
            if token[1]:  # the quantifier of a possessive group, such as `+` in `)++`
                tokens[start] = f"(?>{tokens[start]}"
                tokens.append(f"){token[1]})")
                continue
        tokens.append(token[0])
    return "".join(tokens)
