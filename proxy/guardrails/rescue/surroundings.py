"""Where in the prose of a reply a place is: in code, a quotation, or a JSON document.

It gets all text that is prose, in order, in pieces of any size, and knows nothing about calls. Text
in a document is data, even if it reads like a call. A broken document has no recognisable end, so
it continues as long as there is text.
"""

# ruff: noqa: RUF001 - Chinese sentences end in fullwidth marks

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.examples import LEAD_LENGTH
from proxy.guardrails.rescue.markup import Markup
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style, Unreadable


class ProseDocument:
    """Follows one document from its first bracket, in pieces of any size.

    It `is_known` to be one from the first key of an object. What nobody can read breaks it.
    """

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._reading = read_value(self._cursor, self, Style(has_gaps=True))
        self._is_broken = False
        self.is_known = False
        self.is_over = False

    @property
    def is_endless(self) -> bool:
        return self._is_broken and self.is_known

    def pass_text(self, text: str) -> None:
        """Read what comes next; anything after the end is ignored."""
        if self.is_over or self._is_broken:
            return
        self._cursor.feed(text)
        try:
            next(self._reading)
        except StopIteration:
            self.is_over = True
        except Unreadable:
            self._is_broken = True
            self.is_over = not self.is_known

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        self.is_known = True
        return True

    def adds(self, items: Sequence[JsonValue]) -> bool:
        return True

    def leaves(self, path: Sequence[str | None]) -> None:
        pass


_INDENT = " \t"
_TICK = "`"
_TILDE = "~"
_BRACKETS = ("{", "[")
_DOCUMENT_BEGINS = re.compile(r"(?:\A|\n)[ \t]*[{\[]")
# of a block quote, a diff, a comment, a table, a shell, Textile, a log, or said by the user
_QUOTED_LINE = re.compile(
    r"[>+#|%]|//|;;|(?:--|\$|(?:bq|bc|pre)\.)(?:[ ]|\Z)|(?:user|human)[ ]?:"
    r"|\[?(?:\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d\b)",
    re.IGNORECASE,
)
_CODE_LINE = re.compile(r"\n((?: {4}|[ ]{0,3}\t)[ \t]*)\Z")
_FENCE_LENGTH = 3
_QUOTES = frozenset("\"'“‘‚«»《(")
CLOSING_QUOTES = frozenset("\"'”»`")
_SENTENCE_ENDS = frozenset(".!?:;…。！？：；>")


@dataclass(slots=True)
class _Marks:
    """The marks on a line so far, since the last call on it."""

    is_quote_open: bool = False
    leading_ticks: int = 0
    opening_ticks: int = 0
    later_ticks: int = 0
    leading_tildes: int = 0
    is_in_span: bool = False


class Surroundings:
    """What the prose so far says about the place where it ends.

    It `is_line_start` if only indentation is on the line. The `last_words` are as many as may
    announce what comes next. Nothing is examined before it matters.
    """

    def __init__(self) -> None:
        self._fresh: list[str] = []  # not examined yet
        self._markup = Markup()
        self._is_line_start = True
        self._first_indent: str | None = None  # None before the first words
        self._last_words = ""
        self._marks = _Marks()
        self._blocks = 0  # open code fences, one inside the other
        self._is_in_tildes = False
        self._document: ProseDocument | None = None
        self._is_line_quoted = False
        self._is_still_quoted = False
        self._is_behind_quote = False
        self._is_behind_sentence = True

    @property
    def is_line_start(self) -> bool:
        self._look()
        return self._is_line_start

    @property
    def last_words(self) -> str:
        self._look()
        return self._last_words

    @property
    def is_quotation(self) -> bool:
        self._look()
        in_line = self._marks.is_in_span or self._is_line_quoted or self._is_behind_quote
        return in_line or self.is_next_line_quoted

    @property
    def is_next_line_quoted(self) -> bool:
        self._look()
        is_in_document = self._document is not None and self._document.is_known
        is_shown = self._is_in_code or self._markup.is_quotation
        return is_shown or is_in_document or self._is_still_quoted

    @property
    def _is_in_code(self) -> bool:
        return self._blocks > 0 or self._is_in_tildes

    @property
    def is_sentence_start(self) -> bool:
        """Whether a line or a sentence begins here, or something that a colon announced."""
        return self.is_line_start or (self._is_behind_sentence and not self._marks.is_quote_open)

    @property
    def is_apart(self) -> bool:
        return self.last_words[-1:].isspace()

    def find_layout(self, opening: str) -> tuple[str, ...]:
        """Return the marks that would close the elements around; "" stands for indented code.

        What is indented no further than the words with which the reply begins is no code.
        """
        line = self.last_words + opening[: len(opening) - len(opening.lstrip())]
        indent = _CODE_LINE.search(line)
        is_indented = indent is not None and indent[1] != self._first_indent
        return (*self._markup.layout, "") if is_indented else self._markup.layout

    def pass_prose(self, text: str) -> None:
        self._fresh.append(text)

    def _look(self) -> None:
        if self._fresh:
            text = "".join(self._fresh)
            self._fresh.clear()
            self._markup.pass_text(text)
            self._pass(text)

    def _pass(self, text: str) -> None:
        if self._document is not None and self._document.is_endless:
            return
        has_marks = self._document is not None or _TICK in text or _TILDE in text
        has_marks = has_marks or _DOCUMENT_BEGINS.search(text) is not None
        lines = text.split("\n") if has_marks else text.rsplit("\n", 1)
        self._pass_within_line(lines[0])
        for line in lines[1:]:
            self._is_line_start = True
            self._is_line_quoted = False
            self._marks = _Marks()
            self._pass_in_document("\n")
            self._pass_within_line(line)
        if text:
            if self._first_indent is None and (words := text.lstrip()):
                lead = self._last_words + text[: len(text) - len(words)]
                self._first_indent = lead.rpartition("\n")[2]
            self._is_behind_quote = text[-1] in _QUOTES
            self._last_words = (self._last_words + text[-LEAD_LENGTH:])[-LEAD_LENGTH:]
        if words := text.rstrip():
            self._is_behind_sentence = words[-1] in _SENTENCE_ENDS
            self._is_still_quoted = False

    def pass_quoted(self, opening: str) -> None:
        """Note a quoted opening; what directly follows is quoted as well."""
        self.pass_prose(opening)
        self._look()
        self._is_still_quoted = True

    def pass_example(self, text: str) -> None:
        """Note a call given as an example; another one may follow."""
        words = self.last_words
        self.pass_prose(text)
        self._look()
        self._last_words = words

    def pass_call(self) -> None:
        self._look()
        self._first_indent = self._first_indent or ""
        self._is_line_start = False
        self._marks = _Marks()
        self._is_behind_quote = False
        self._is_still_quoted = False
        self._is_behind_sentence = True
        self._last_words = ""

    def _pass_within_line(self, text: str) -> None:
        self._marks.is_quote_open ^= text.count('"') % 2 == 1
        if self._is_line_start:
            text = text.lstrip(_INDENT)
            self._is_line_start = not text
            self._is_line_quoted = _QUOTED_LINE.match(text) is not None
            if text.startswith(_BRACKETS) and self._document is None and not self._is_in_code:
                self._document = ProseDocument()
            self._pass_in_document(text)
            self._pass_leading_tildes(text)
            text = self._pass_leading_ticks(text)
        else:
            self._pass_in_document(text)
            if self._marks.leading_ticks:
                text = self._pass_leading_ticks(text)
        self._pass_span(text.count(_TICK))

    def _pass_in_document(self, text: str) -> None:
        if self._document is not None:
            self._document.pass_text(text)
            if self._document.is_over:
                self._document = None

    def _pass_span(self, ticks: int) -> None:
        """Note this many backticks inside a line; at the beginning of a fence there are none."""
        marks = self._marks
        if ticks and marks.opening_ticks:
            self._blocks -= not marks.later_ticks
            marks.later_ticks += ticks
            is_even = (marks.later_ticks + marks.opening_ticks) % 2 == 0
            marks.is_in_span = not is_even or marks.later_ticks < marks.opening_ticks
        else:
            marks.is_in_span ^= ticks % 2 == 1

    def _pass_leading_tildes(self, text: str) -> None:
        rest = text.lstrip(_TILDE)
        before = self._marks.leading_tildes
        after = before + len(text) - len(rest)
        self._is_in_tildes ^= before < _FENCE_LENGTH <= after
        self._marks.leading_tildes = 0 if rest else after

    def _pass_leading_ticks(self, text: str) -> str:
        """Note a possible code fence; one that is followed by a word ends no other."""
        marks = self._marks
        rest = text.lstrip(_TICK)
        before = marks.leading_ticks
        after = before + len(text) - len(rest)
        if before < _FENCE_LENGTH <= after:
            marks.opening_ticks = 0 if self._blocks else after
            self._blocks += -1 if self._blocks else 1
        if after >= _FENCE_LENGTH and marks.opening_ticks:
            marks.opening_ticks = after
        elif after >= _FENCE_LENGTH and rest[:1].isalnum():
            marks.opening_ticks = after
            self._blocks += 2
        marks.is_in_span = after < _FENCE_LENGTH and after % 2 == 1
        marks.leading_ticks = 0 if rest else after
        return rest
