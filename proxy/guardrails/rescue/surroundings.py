"""Where in the prose of a reply a place is: in a code block, a code span or behind a quote mark.

It sees all text that is prose, in order, in pieces of any size, and knows nothing about calls.
"""

_INDENT = " \t"
_TICK = "`"
_FENCE_LENGTH = 3
_QUOTES = frozenset("\"'“«")
CLOSING_QUOTES = frozenset("\"'”»`")


class Surroundings:
    """What the prose so far says about the place where it ends."""

    def __init__(self) -> None:
        self._is_in_block = False
        self._is_line_blank = True
        self._leading_ticks = 0
        self._is_in_span = False
        self._is_behind_quote = False

    @property
    def is_line_start(self) -> bool:
        """Whether nothing but indentation stands on the line."""
        return self._is_line_blank

    @property
    def is_quotation(self) -> bool:
        """Whether a call at this place would be quoted."""
        return self._is_in_block or self._is_in_span or self._is_behind_quote

    def pass_prose(self, text: str) -> None:
        """Take note of prose."""
        lines = text.split("\n") if _TICK in text else text.rsplit("\n", 1)
        self._pass_within_line(lines[0])
        for line in lines[1:]:
            self._begin_line()
            self._pass_within_line(line)
        if text:
            self._is_behind_quote = text[-1] in _QUOTES

    def pass_call(self) -> None:
        """Take note that a call stands here instead of prose."""
        self._is_line_blank = False
        self._leading_ticks = 0
        self._is_in_span = False
        self._is_behind_quote = False

    def _begin_line(self) -> None:
        self._is_line_blank = True
        self._leading_ticks = 0
        self._is_in_span = False

    def _pass_within_line(self, text: str) -> None:
        if self._is_line_blank:
            text = text.lstrip(_INDENT)
            self._is_line_blank = not text
            text = self._pass_leading_ticks(text)
        elif self._leading_ticks:
            text = self._pass_leading_ticks(text)
        self._is_in_span ^= text.count(_TICK) % 2 == 1

    def _pass_leading_ticks(self, text: str) -> str:
        rest = text.lstrip(_TICK)
        before = self._leading_ticks
        after = before + len(text) - len(rest)
        if before < _FENCE_LENGTH <= after:
            self._is_in_block = not self._is_in_block
        self._is_in_span = after < _FENCE_LENGTH and after % 2 == 1
        self._leading_ticks = 0 if rest else after
        return rest
