"""Where in the prose of a reply a place is: in code, a quotation, or a JSON document.

It gets all text that is prose, in order, in pieces of any size, and knows nothing about calls. Text
in a document is data, even if it reads like a call. A broken document has no recognisable end, so
it continues as long as there is text.
"""

# ruff: noqa: RUF001 - Chinese sentences end in fullwidth marks

import re
from dataclasses import dataclass

from proxy.guardrails.rescue.examples import SIGHT
from proxy.guardrails.rescue.markup import Markup

_STRING_QUOTES = "\"'"
_OPENING, _CLOSING = "[{", "]}"
_DEEPEST = 64
_LONGEST_ATOM = 400
_SPACE = re.compile(r"\s*")
_IN_STRING = {quote: re.compile(rf"[^{quote}\\]*") for quote in _STRING_QUOTES}
_ATOM = re.compile(r"[\w.+-]*")
_ATOMS = re.compile(
    r"true|false|null|True|False|None|NaN|-?Infinity|[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\.\."
)


class ProseDocument:
    """Follows one document from its first bracket, in pieces of any size.

    It `is_known` to be one from the first key of an object. Extra commas and Python's words do no
    harm; anything else that is not JSON breaks it.
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
        return self._is_broken and self.is_known

    def pass_text(self, text: str) -> None:
        """Read what comes next; anything after the end is ignored."""
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
        if char in _STRING_QUOTES:
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
            self._last_words = (self._last_words + text[-SIGHT:])[-SIGHT:]
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
