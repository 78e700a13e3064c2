"""Look for fixed strings in text that is still arriving.

It tells apart what is certain from what only the next characters can decide, and knows nothing
about what the strings mean.
"""

import re
from collections.abc import Iterable
from functools import lru_cache


class Literals:
    """A fixed set of strings to look for; where several fit, the longest one counts."""

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted(set(texts), key=lambda text: (-len(text), text))
        self._pattern = re.compile(_alternatives(known) if known else r"(?!)")
        self._beginnings = frozenset(text[:end] for text in known for end in range(1, len(text)))
        initials = "".join(sorted({re.escape(text[0]) for text in known}))
        self._initial = re.compile(f"[{initials}]" if known else r"(?!)")
        self._longest = len(known[0]) if known else 0

    def find(self, text: str, start: int, *, is_finished: bool) -> int:
        """Return where the first literal stands or may be beginning, else the end of the text."""
        match = self._pattern.search(text, start)
        found = match.start() if match else len(text)
        if is_finished:
            return found
        place = max(start, len(text) - self._longest + 1)
        while match := self._initial.search(text, place, found):
            if text[match.start() :] in self._beginnings:
                return match.start()
            place = match.end()
        return found

    def at(self, text: str, place: int, *, is_finished: bool) -> str | None:
        """Return the literal that stands at `place`, "" if none does, None if it is undecided."""
        if not is_finished and len(text) - place < self._longest:
            rest = text[place:]
            if not rest or rest in self._beginnings:
                return None
        match = self._pattern.match(text, place)
        return match[0] if match else ""


@lru_cache(maxsize=256)
def literals_of(*texts: str) -> Literals:
    """Return prepared literals; the same ones are prepared once."""
    return Literals(texts)


def _alternatives(texts: Iterable[str]) -> str:
    """Write a pattern for any of `texts`, the longest first, that looks at no character twice."""
    tails: dict[str, list[str]] = {}
    for text in texts:
        tails.setdefault(text[:1], []).append(text[1:])
    is_optional = tails.pop("", None) is not None
    branches = [_branch(head, rest) for head, rest in tails.items()]
    pattern = branches[0] if len(branches) == 1 and not is_optional else f"(?:{'|'.join(branches)})"
    return f"{pattern}?" if is_optional else pattern


def _branch(head: str, tails: list[str]) -> str:
    """Write a pattern for `head` with any of `tails` behind it."""
    common = _common_beginning(tails)
    rest = [tail[len(common) :] for tail in tails]
    return re.escape(head + common) + (_alternatives(rest) if any(rest) else "")


def _common_beginning(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    length = next((i for i, char in enumerate(first) if char != last[i]), len(first))
    return first[:length]
