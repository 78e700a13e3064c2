"""A JSON document in prose, and where it ends.

What stands in a document is data, also where it reads like a call. Of a document that breaks
nobody can tell where it ends, so that it goes on for as long as there is text.
"""

import re

_QUOTES = "\"'"
_OPENING, _CLOSING = "[{", "]}"
_DEEPEST = 64
_LONGEST_ATOM = 400
_SPACE = re.compile(r"\s*")
_IN_STRING = {quote: re.compile(rf"[^{quote}\\]*") for quote in _QUOTES}
_ATOM = re.compile(r"[\w.+-]*")
_ATOMS = re.compile(
    r"true|false|null|True|False|None|NaN|-?Infinity|[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\.\."
)


class Document:
    """Follows one document from its first bracket on, in pieces of any size.

    It is none before the first key of an object, `is_known` from there on. Commas too many and
    Python's words do no harm; whatever else is no JSON breaks it.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._quote = ""
        self._is_escaped = False
        self._atom = ""
        self._is_behind_value = False
        self._is_behind_string = False
        self._is_behind_colon = False
        self._is_broken = False
        self.is_known = False
        self.is_over = False

    @property
    def is_endless(self) -> bool:
        """Whether the document is broken."""
        return self._is_broken and self.is_known

    def pass_text(self, text: str) -> None:
        """Take note of what comes next; what stands behind the end is nothing of it."""
        place = 0
        while place < len(text) and not (self.is_over or self._is_broken):
            place = self._string(text, place) if self._quote else self._token(text, place)
        self.is_over |= self._is_broken and not self.is_known

    def _string(self, text: str, place: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return place + 1
        found = _IN_STRING[self._quote].match(text, place)
        end = found.end() if found else place
        if not self.is_known and "\n" in text[place:end]:
            self._is_broken = True
        elif text[end : end + 1] == "\\":
            self._is_escaped = True
        elif end < len(text):
            self._quote = ""
            self._is_behind_value = self._is_behind_string = True
        return end + 1

    def _token(self, text: str, place: int) -> int:
        found = _ATOM.match(text, place)
        end = found.end() if found else place
        if end > place:
            self._atom += text[place:end]
            self._is_broken |= self._is_behind_value or len(self._atom) > _LONGEST_ATOM
            return end
        self._end_atom()
        if self._is_broken:
            return place
        space = _SPACE.match(text, place)
        if space and space.end() > place:
            return space.end()
        self._mark(text[place])
        return place + 1

    def _end_atom(self) -> None:
        if self._atom:
            self._is_broken |= _ATOMS.fullmatch(self._atom) is None
            self._atom = ""
            self._is_behind_value = True

    def _mark(self, char: str) -> None:
        """Take note of a bracket, a quotation mark, a comma or a colon."""
        behind_value, behind_string = self._is_behind_value, self._is_behind_string
        self._is_behind_value = self._is_behind_string = False
        is_key, self._is_behind_colon = not self._is_behind_colon, char == ":"
        if char == ":" and behind_string and self._open[-1] == "{":
            self.is_known = True
        elif char in _CLOSING:
            self._close(char)
        elif char == "," and self._open:
            pass
        elif behind_value or not self._begins(char, is_key=is_key and "{" in self._open[-1:]):
            self._is_broken = True

    def _begins(self, char: str, *, is_key: bool) -> bool:
        """Begin a string or a container; tell whether one begins."""
        if char in _QUOTES:
            self._quote = char
        elif char in _OPENING and not is_key and len(self._open) < _DEEPEST:
            self._open.append(char)
        else:
            return False
        return True

    def _close(self, char: str) -> None:
        if not self._open or _OPENING.index(self._open.pop()) != _CLOSING.index(char):
            self._is_broken = True
            return
        self._is_behind_value = True
        self.is_over = not self._open
