"""Where in the prose of a reply a place is: in code, in a quotation or behind a quote mark.

It sees all text that is prose, in order, in pieces of any size, and knows nothing about calls.
"""

# ruff: noqa: RUF001 - Chinese sentences end in fullwidth marks

import re

_INDENT = " \t"
_TICK = "`"
_TILDE = "~"
_LINE_MARKS = (_TICK, _TILDE)
_QUOTED_LINES = (">", "+")  # of a block quote, of a diff
_FENCE_LENGTH = 3
_QUOTES = frozenset("\"'“«")
CLOSING_QUOTES = frozenset("\"'”»`")
_SENTENCE_ENDS = frozenset(".!?:;…。！？：；>")
# As much of the prose as it takes to see that an example is announced.
_SIGHT = 80
_ANNOUNCEMENT = re.compile(
    r"""(?:
    (?:\b(?:for|as)\s(?:an\s)?(?:example|instance)|\be\.\s?g\.|\bsuch\sas|\blooks?\slike
      |例如|比如|示例)(?:\s(?:this|so))?\s*[:：,，]?
    |(?:\b(?:an|one|another|this)\sexample|^\W*example)
      (?:\s(?:of|for|how|a|an|the|such|this|tool|function|call|usage|reply|output))*\s*[:：]
    |\b(?:format|syntax|notation)\s(?:is|looks|reads)(?:\sas\sfollows)?\s*[:：]
    |\b(?:tool[\s-]call|call|correct|expected|following)\s(?:format|syntax|notation)\s*[:：]
    )\s*(?:```\w*\s*)?\Z""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)


class Surroundings:
    """What the prose so far says about the place where it ends."""

    def __init__(self) -> None:
        self._is_in_block = False
        self._is_in_tildes = False
        self._is_line_blank = True
        self._is_line_quoted = False
        self._leading_ticks = 0
        self._leading_tildes = 0
        self._is_still_quoted = False
        self._is_in_span = False
        self._is_behind_quote = False
        self._is_behind_sentence = True
        self._last_words = ""

    @property
    def is_line_start(self) -> bool:
        """Whether nothing but indentation stands on the line."""
        return self._is_line_blank

    @property
    def is_quotation(self) -> bool:
        """Whether a call at this place would be quoted."""
        in_code = self._is_in_block or self._is_in_tildes or self._is_in_span
        return in_code or self._is_line_quoted or self._is_behind_quote or self._is_still_quoted

    @property
    def is_next_line_quoted(self) -> bool:
        """Whether a call on the next line would be quoted."""
        return self._is_in_block or self._is_in_tildes or self._is_still_quoted

    @property
    def is_sentence_start(self) -> bool:
        """Whether a line, a sentence or what a colon announced begins here."""
        return self._is_line_blank or self._is_behind_sentence

    @property
    def is_apart(self) -> bool:
        """Whether white space stands before the place."""
        return self._last_words[-1:].isspace()

    @property
    def is_example(self) -> bool:
        """Whether the words before announce an example."""
        return _ANNOUNCEMENT.search(self._last_words) is not None

    def pass_prose(self, text: str) -> None:
        """Take note of prose."""
        has_marks = any(mark in text for mark in _LINE_MARKS)
        lines = text.split("\n") if has_marks else text.rsplit("\n", 1)
        self._pass_within_line(lines[0])
        for line in lines[1:]:
            self._begin_line()
            self._pass_within_line(line)
        if text:
            self._is_behind_quote = text[-1] in _QUOTES
            self._last_words = (self._last_words + text[-_SIGHT:])[-_SIGHT:]
        if words := text.rstrip():
            self._is_behind_sentence = words[-1] in _SENTENCE_ENDS
            self._is_still_quoted = False

    def pass_quoted(self, opening: str) -> None:
        """Take note of an opening that is quoted; what follows it at once is quoted as well."""
        self.pass_prose(opening)
        self._is_still_quoted = True

    def pass_example(self, text: str) -> None:
        """Take note of a call given as an example; what follows it may be another one."""
        words = self._last_words
        self.pass_prose(text)
        self._last_words = words

    def pass_call(self) -> None:
        """Take note that a call stands here instead of prose."""
        self._is_line_blank = False
        self._leading_ticks = 0
        self._leading_tildes = 0
        self._is_in_span = False
        self._is_behind_quote = False
        self._is_still_quoted = False
        self._is_behind_sentence = True
        self._last_words = ""

    def _begin_line(self) -> None:
        self._is_line_blank = True
        self._is_line_quoted = False
        self._leading_ticks = 0
        self._leading_tildes = 0
        self._is_in_span = False

    def _pass_within_line(self, text: str) -> None:
        if self._is_line_blank:
            text = text.lstrip(_INDENT)
            self._is_line_blank = not text
            self._is_line_quoted = text.startswith(_QUOTED_LINES)
            self._pass_leading_tildes(text)
            text = self._pass_leading_ticks(text)
        elif self._leading_ticks:
            text = self._pass_leading_ticks(text)
        elif self._leading_tildes:
            self._pass_leading_tildes(text)
        self._is_in_span ^= text.count(_TICK) % 2 == 1

    def _pass_leading_tildes(self, text: str) -> None:
        rest = text.lstrip(_TILDE)
        before = self._leading_tildes
        after = before + len(text) - len(rest)
        if before < _FENCE_LENGTH <= after:
            self._is_in_tildes = not self._is_in_tildes
        self._leading_tildes = 0 if rest else after

    def _pass_leading_ticks(self, text: str) -> str:
        rest = text.lstrip(_TICK)
        before = self._leading_ticks
        after = before + len(text) - len(rest)
        if before < _FENCE_LENGTH <= after:
            self._is_in_block = not self._is_in_block
        self._is_in_span = after < _FENCE_LENGTH and after % 2 == 1
        self._leading_ticks = 0 if rest else after
        return rest
