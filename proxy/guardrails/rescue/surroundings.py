"""Tracks the prose of a reply, and recognizes whether it ends in code, a quotation or a document.

`Surroundings` receives all prose in order, in parts of any size. Text in a JSON document is data,
even if it looks like a call. If a document is broken, its end is unknown, so the rest of the reply
counts as part of it. In each of these lines, the call is quoted:

    > <tool_call>...
    Write `<tool_call>...
    {"answer": "First do this: <tool_call>...
"""

# ruff: noqa: RUF001 - Chinese sentences end in fullwidth marks

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.guardrails.rescue.examples import LEAD_LENGTH
from proxy.guardrails.rescue.markup import Markup
from proxy.guardrails.rescue.position import Position
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import MemberWatcher, Style, Unreadable


class ProseDocument(MemberWatcher):
    """Reads a JSON document from its first bracket, in parts of any size.

    `is_known` becomes true at the first key of an object. Before the first key, the text in
    brackets may be prose.
    """

    def __init__(self) -> None:
        self._cursor = Cursor()
        # Examples may contain three dots in place of a value: {"name": "f", "arguments": ...}
        self._reading = read_value(self._cursor, self, Style(has_gaps=True))
        self._is_broken = False
        self.is_known = False
        self.is_over = False

    @property
    def is_broken_document(self) -> bool:
        return self._is_broken and self.is_known

    def feed(self, text: str) -> None:
        """Read the next text; text after the end of the document is ignored."""
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


_BRACKETS = ("{", "[")
_DOCUMENT_BEGINS = re.compile(r"(?:\A|\n)[ \t]*[{\[]")
# The start of a line in a block quote, a diff, a comment, a table, a shell session, Textile or a
# log, or of a line that quotes the user.
_QUOTED_LINE = re.compile(
    r"[>+#|%]|//|;;|(?:--|\$|(?:bq|bc|pre)\.)(?:[ ]|\Z)|(?:user|human)[ ]?:"
    r"|\[?(?:\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d\b)",
    re.IGNORECASE,
)
# A line break and the indentation of a code line in Markdown: four spaces, or a tab.
_CODE_LINE = re.compile(r"\n((?: {4}|[ ]{0,3}\t)[ \t]*)\Z")
_FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,})(?P<language>\w?)")
_TICK = "`"
_HEAD = 100  # characters at the beginning of a line that are examined
_QUOTES = frozenset("\"'“‘‚«»《(")
_SENTENCE_ENDS = frozenset(".!?:;…。！？：；>")


@dataclass(slots=True)
class _Line:
    """The current line: its first characters (`head`), and counts of marks since the last call."""

    head: str = ""
    ticks: int = 0
    quotation_marks: int = 0

    @property
    def fence(self) -> re.Match[str] | None:
        """The code fence on the line, or None; backticks around text are only a code span."""
        fence = _FENCE.match(self.head)
        is_span = fence is not None and self.ticks > fence["mark"].count(_TICK)
        return None if is_span else fence

    @property
    def is_in_span(self) -> bool:
        fence = _FENCE.match(self.head)
        opening = fence["mark"].count(_TICK) if fence else 0
        later_ticks = self.ticks - opening
        return later_ticks % 2 == 1 or 0 < later_ticks < opening


class Surroundings:
    """The prose so far; the properties describe the position at its end.

    New text is examined when a property is read.
    """

    def __init__(self) -> None:
        self._unexamined: list[str] = []
        self._markup = Markup()
        self._line = _Line()
        self._fences = ""  # one mark for each open code fence
        self._first_indent: str | None = None  # None before the first words
        self._words = ""  # the last words, which may announce the next call
        self._document: ProseDocument | None = None
        self._is_still_quoted = False

    @property
    def is_line_start(self) -> bool:
        self._examine()
        return not self._line.head.strip()

    @property
    def is_quotation(self) -> bool:
        self._examine()
        is_line = self._line.is_in_span or _QUOTED_LINE.match(self._line.head.lstrip()) is not None
        return is_line or self._words[-1:] in _QUOTES or self.is_next_line_quoted

    @property
    def is_next_line_quoted(self) -> bool:
        self._examine()
        is_in_document = self._document is not None and self._document.is_known
        is_shown = bool(self._find_fences()) or self._markup.is_quotation
        return is_shown or is_in_document or self._is_still_quoted

    @property
    def is_sentence_start(self) -> bool:
        """Whether a line or a sentence begins here; a colon counts as the end of a sentence."""
        self._examine()
        follows_end = self._words.rstrip()[-1:] in {"", *_SENTENCE_ENDS}
        return self.is_line_start or (follows_end and self._line.quotation_marks % 2 == 0)

    def position_of(self, opening: str, *, is_first: bool, begins_reply: bool) -> Position:
        """Return the position of a call that begins here."""
        self._examine()
        return Position(
            opening,
            is_first=is_first,
            begins_reply=begins_reply,
            words=self._words,
            is_sentence_start=self.is_sentence_start,
            follows_space=self._words[-1:].isspace() or opening[0].isspace(),
            layout=() if is_first else self._find_layout(opening),
        )

    def _find_layout(self, opening: str) -> tuple[str, ...]:
        """Return the closing marks of the elements around this position, and "" for indented code.

        The whole reply may be indented. So a line is code only if its indent differs from the
        indent of the first words of the reply.
        """
        line = self._words + opening[: len(opening) - len(opening.lstrip())]
        indent = _CODE_LINE.search(line)
        is_indented = indent is not None and indent[1] != self._first_indent
        return (*self._markup.layout, "") if is_indented else self._markup.layout

    def add_prose(self, text: str) -> None:
        self._unexamined.append(text)

    def add_quoted(self, opening: str) -> None:
        """Add a quoted opening. Until more words follow, the text after it is quoted as well."""
        self.add_prose(opening)
        self._examine()
        self._is_still_quoted = True

    def add_example(self, text: str) -> None:
        """Add an example of a call. The words that introduce it also apply to the next call."""
        self._examine()
        words = self._words
        self.add_prose(text)
        self._examine()
        self._words = words

    def add_call(self) -> None:
        self._examine()
        self._first_indent = self._first_indent or ""
        self._line = _Line("call")
        self._is_still_quoted = False
        self._words = ""

    def _examine(self) -> None:
        if self._unexamined:
            text = "".join(self._unexamined)
            self._unexamined.clear()
            self._markup.feed(text)
            self._read(text)

    def _read(self, text: str) -> None:
        if self._document is not None and self._document.is_broken_document:
            return
        # Most prose has no marks. Only the last line of such prose is examined, to save time.
        has_marks = self._document is not None or _TICK in text or "~" in text
        has_marks = has_marks or _DOCUMENT_BEGINS.search(text) is not None
        first_line, *later_lines = text.split("\n") if has_marks else text.rsplit("\n", 1)
        self._read_within_line(first_line)
        for line in later_lines:
            self._fences = self._find_fences()
            self._line = _Line()
            self._read_in_document("\n")
            self._read_within_line(line)
        if self._first_indent is None and (words := text.lstrip()):
            lead = self._words + text[: len(text) - len(words)]
            self._first_indent = lead.rpartition("\n")[2]
        self._words = (self._words + text[-LEAD_LENGTH:])[-LEAD_LENGTH:]
        self._is_still_quoted &= not text.strip()

    def _read_within_line(self, text: str) -> None:
        line = self._line
        is_start = not line.head.strip()
        line.head = (line.head + text[:_HEAD])[:_HEAD]
        line.ticks += text.count(_TICK)
        line.quotation_marks += text.count('"')
        begins = is_start and text.lstrip().startswith(_BRACKETS)
        if begins and self._document is None and not self._find_fences():
            self._document = ProseDocument()
            text = text.lstrip()
        self._read_in_document(text)

    def _read_in_document(self, text: str) -> None:
        if self._document is not None:
            self._document.feed(text)
            if self._document.is_over:
                self._document = None

    def _find_fences(self) -> str:
        """Return the marks of the open fences. A fence with a language always opens a block."""
        fence, fences = self._line.fence, self._fences
        if fence is None:
            return fences
        mark = fence["mark"][0]
        is_end = mark in fences and not fence["language"]
        return fences[: fences.rindex(mark)] if is_end else fences + mark
