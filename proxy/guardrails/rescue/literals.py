"""Look for fixed strings in text that is still arriving.

It tells apart what is certain from what only the next characters can decide, and knows nothing
about what the strings mean.
"""

import re
from collections.abc import Iterable


class Literals:
    """A fixed set of strings to look for; where several fit, the longest one counts."""

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted(set(texts), key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, known)) or r"(?!)")
        self._beginnings = frozenset(text[:end] for text in known for end in range(1, len(text)))
        self._longest = len(known[0]) if known else 0

    def find(self, text: str, start: int, *, is_finished: bool) -> int:
        """Return where the first literal stands or may be beginning, else the end of the text."""
        match = self._pattern.search(text, start)
        found = match.start() if match else len(text)
        if is_finished:
            return found
        for place in range(max(start, len(text) - self._longest + 1), found):
            if text[place:] in self._beginnings:
                return place
        return found

    def at(self, text: str, place: int, *, is_finished: bool) -> str | None:
        """Return the literal that stands at `place`, "" if none does, None if it is undecided."""
        if not is_finished and len(text) - place < self._longest:
            rest = text[place:]
            if not rest or rest in self._beginnings:
                return None
        match = self._pattern.match(text, place)
        return match[0] if match else ""
