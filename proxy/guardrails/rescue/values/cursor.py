"""A cursor over text that is still arriving, and sets of fixed strings to search for.

A parser of a part of the text (a "reading") is a generator. It moves the cursor with the generators
of this module, which yield while they need more text to decide. After `finish` they never yield:

    cursor = Cursor()
    reading = cursor.literal("<tool_call>")
    cursor.feed("<tool")
    next(reading)            # yields: the rest of the mark may follow
    cursor.feed("_call>")
    next(reading)            # raises StopIteration(True); the mark has been consumed

Consumed text is dropped, except for the text since `begin`. If a reading is refused, the cursor
returns to the position of `begin`.
"""

import re
from collections.abc import Collection, Generator, Iterable
from functools import lru_cache
from typing import TypeAlias, TypeVar


class Literals:
    """A fixed set of strings to search for. If several strings match, the longest is returned.

    The pattern is a tree of common prefixes. With a plain list of alternatives, `re` would try
    hundreds of marks at every character.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted(set(texts), key=lambda text: (-len(text), text))
        self._pattern = re.compile(_alternatives(known) if known else r"(?!)")
        self._beginnings = frozenset(text[:end] for text in known for end in range(1, len(text)))
        initials = "".join(sorted({re.escape(text[0]) for text in known}))
        self._initial = re.compile(f"[{initials}]" if known else r"(?!)")
        self._longest = len(known[0]) if known else 0

    def find(self, text: str, start: int, *, is_finished: bool) -> int:
        """Return the index of the first complete or possible literal, or the length of the text."""
        match = self._pattern.search(text, start)
        first = match.start() if match else len(text)
        if is_finished:
            return first
        # An incomplete literal can begin only in the last characters.
        index = max(start, len(text) - self._longest + 1)
        while match := self._initial.search(text, index, first):
            if self._may_begin(text[match.start() :]):
                return match.start()
            index = match.end()
        return first

    def at(self, text: str, index: int, *, is_finished: bool) -> str | None:
        """Return the literal at `index`; "" if there is none; None if more text is needed."""
        if not is_finished and len(text) - index < self._longest:
            rest = text[index:]
            if not rest or self._may_begin(rest):
                return None
        match = self._pattern.match(text, index)
        return match[0] if match else ""

    def _may_begin(self, text: str) -> bool:
        return text in self._beginnings


class LooseLiterals(Literals):
    """Marks that match in upper and lower case, and with white space between their parts.

    A mark that begins with a letter must match exactly, because it could be an ordinary word.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted(set(texts), key=lambda text: (-len(text), text))
        super().__init__(known)
        words = [text for text in known if text[0].isalpha()]
        tags = [text for text in known if not text[0].isalpha()]
        patterns = [f"(?-i:{re.escape(text)})" for text in words]
        patterns += [loose_pattern(*tags)] if tags else []
        self._pattern = re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)
        folded = [*map(fold_mark, tags)]
        self._folded = frozenset(text[:end] for text in folded for end in range(1, len(text)))
        self._beginnings = frozenset(text[:end] for text in words for end in range(1, len(text)))
        # White space between the pieces makes a mark longer.
        self._longest += max((len(_PIECES.findall(text)) - 1 for text in known), default=0) * _GAP

    def _may_begin(self, text: str) -> bool:
        return fold_mark(text) in self._folded or text in self._beginnings


_GAP = 2  # characters of white space between two pieces of a mark: `< / think >`
_PIECES = re.compile(r"[^\W_]+(?:[_▁][^\W_]+)*|\S")


def loose_pattern(*marks: str) -> str:
    """Return a pattern for any of the marks; compile it with `re.IGNORECASE`."""
    return _loose_alternatives([tuple(_PIECES.findall(mark.casefold())) for mark in marks])


def _loose_alternatives(rows: Iterable[tuple[str, ...]]) -> str:
    """Join the pieces of marks so that no piece is compared twice at one position."""
    tails: dict[str, list[tuple[str, ...]]] = {}
    for head, *tail in rows:
        tails.setdefault(head, []).append(tuple(tail))
    branches: list[str] = []
    for head, known in tails.items():
        longer = [tail for tail in known if tail]
        rest = rf"\s{{0,{_GAP}}}{_loose_alternatives(longer)}" if longer else ""
        is_optional = len(longer) < len(known)
        branches.append(re.escape(head) + (f"(?:{rest})?" if rest and is_optional else rest))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def fold_mark(text: str) -> str:
    """Return a mark without white space and case, as a key for looking it up."""
    return "".join(text.split()).casefold()


@lru_cache(maxsize=256)
def literals_of(*texts: str) -> Literals:
    """Return the prepared literals of `texts`, from a cache if possible."""
    return Literals(texts)


def _alternatives(texts: Iterable[str]) -> str:
    """Return a pattern for any of `texts`, the longest first, without backtracking."""
    tails: dict[str, list[str]] = {}
    for text in texts:
        tails.setdefault(text[:1], []).append(text[1:])
    is_optional = tails.pop("", None) is not None
    branches = [_branch(head, rest) for head, rest in tails.items()]
    pattern = branches[0] if len(branches) == 1 and not is_optional else f"(?:{'|'.join(branches)})"
    return f"{pattern}?" if is_optional else pattern


def _branch(head: str, tails: list[str]) -> str:
    """Return a pattern for `head` followed by any of `tails`."""
    first, last = min(tails), max(tails)
    common = first[: next((i for i, char in enumerate(first) if char != last[i]), None)]
    rest = [tail[len(common) :] for tail in tails]
    return re.escape(head + common) + (_alternatives(rest) if any(rest) else "")


T = TypeVar("T")
Waiting: TypeAlias = Generator[None, None, T]

_SPACE = re.compile(r"[ \t\r\n]+")


class Cursor:
    """A position in text that is still arriving, and the settings of its readings.

    - `may_cut`: the reading of unmarked calls may stop at a repeated call (`Calls.is_cut`). If
      tools have run before the reply (`follows_results`), the reading may also stop at a call of an
      unknown tool.
    - `offered`: code is a call only if it calls one of these tools.
    """

    def __init__(self, text: str = "", *, is_finished: bool = False) -> None:
        self._text = text
        self._position = 0
        self._is_finished = is_finished
        self._mark: int | None = None
        self._consumed: list[str] = []
        # The position of the first announced character that is not yet in `_echo`. None if no
        # announced arguments are being read.
        self._echo_from: int | None = None
        self._echo: list[str] = []
        self.arguments_name: str | None = None  # the tool whose arguments were announced
        self._is_mute = False
        self.may_cut = False
        self.follows_results = False
        self.offered: Collection[str] = ()

    def feed(self, text: str) -> None:
        if self._mark is not None:
            self._consumed.append(self._text[self._mark : self._position])
            self._mark = 0
        if self._echo_from is not None:
            self._keep_echo(0)
        self._text = self._text[self._position :] + text
        self._position = 0

    def finish(self) -> None:
        self._is_finished = True

    @property
    def is_exhausted(self) -> bool:
        return self._position == len(self._text)

    # Operations on text that has arrived.

    def starts_with(self, text: str) -> bool:
        return self._text.startswith(text, self._position)

    def literal_here(self, literals: Literals) -> str | None:
        """Return the next literal; "" if there is none; None if more text is needed."""
        return literals.at(self._text, self._position, is_finished=self._is_finished)

    def look_ahead(self, length: int, offset: int = 0) -> tuple[str, bool]:
        """Return up to `length` characters after `offset`, and whether they are final.

        The second value is true if all `length` characters have arrived, or if no more text will
        arrive.
        """
        start = self._position + offset
        text = self._text[start : start + length]
        return text, self._is_finished or len(text) == length

    def advance(self, length: int) -> None:
        """Consume `length` characters that have arrived."""
        self._position += length

    def consume_run(self, pattern: re.Pattern[str]) -> str:
        """Consume and return the match of `pattern`, a run of one character class."""
        match = pattern.match(self._text, self._position)
        if match is None:
            return ""
        self._position = match.end()
        return match[0]

    def skip_space(self) -> str:
        return self.consume_run(_SPACE)

    def skip_last_space(self) -> str:
        """Consume white space only if it is all the text that has arrived."""
        match = _SPACE.fullmatch(self._text, self._position)
        return "" if match is None else self.skip_space()

    def visible(self) -> str:
        """Skip white space that has arrived. Return the next character; "" if none has arrived."""
        char = self._text[self._position : self._position + 1]
        if char and char in " \t\r\n":
            self.skip_space()
            char = self._text[self._position : self._position + 1]
        return char

    def look(self, pattern: re.Pattern[str]) -> str:
        """Return the match of `pattern` in the text so far, without consuming it."""
        match = pattern.match(self._text, self._position)
        return match[0] if match else ""

    def consume_until(self, literals: Literals) -> str:
        """Consume and return everything before the first complete or possible literal."""
        start = self._position
        self._position = literals.find(self._text, start, is_finished=self._is_finished)
        return self._text[start : self._position]

    # The consumed text of a reading, to which the cursor can return.

    def begin(self) -> None:
        """Begin a reading: `rewind` returns to this position."""
        self._mark = self._position
        self._consumed.clear()

    def source(self) -> str:
        """Return the text that was consumed since `begin`."""
        return "".join(self._consumed) + self._text[self._mark : self._position]

    def rewind(self) -> None:
        """Return to the position of `begin`, and forget the announced arguments."""
        if self._consumed:
            self._text = "".join(self._consumed) + self._text[self._mark :]
            self._mark = 0
            self._consumed.clear()
        self._position = self._mark or 0
        self._forget_arguments()

    def release(self) -> None:
        self._mark = None
        self._consumed.clear()
        self._forget_arguments()

    # The arguments of the first call of a reading, while they arrive.

    def start_arguments(self, name: str, before: str = "") -> None:
        """Announce that the arguments of a call to `name` begin here, so that they are streamed.

        `before` is text that the model did not write, but that makes the next text an object: for
        example `{"message":` before the content of a final answer.
        """
        if self.arguments_name is None and not self._is_mute:
            self.arguments_name = name
            self._echo_from = self._position
            self._echo.append(before)

    def mute(self) -> None:
        """Ignore announcements until `rewind` or `release`, for text that may be read twice."""
        self._is_mute = True

    def end_arguments(self) -> None:
        self._keep_echo(None)

    @property
    def is_within_arguments(self) -> bool:
        return self._echo_from is not None

    def take_echo(self) -> str:
        """Return the announced arguments that were consumed since the last `take_echo`."""
        self._keep_echo(self._position)
        text = "".join(self._echo)
        self._echo.clear()
        return text

    def _keep_echo(self, begin: int | None) -> None:
        """Store the consumed part of the announced arguments; set the start of the next part."""
        if self._echo_from is not None:
            self._echo.append(self._text[self._echo_from : self._position])
            self._echo_from = begin

    def _forget_arguments(self) -> None:
        self.arguments_name = None
        self._echo_from = None
        self._echo.clear()
        self._is_mute = False

    # Operations that yield until enough text has arrived for a decision.

    def peek(self) -> Waiting[str]:
        """Return the next character without consuming it; "" at the end."""
        while self.is_exhausted and not self._is_finished:
            yield
        return self._text[self._position : self._position + 1]

    def is_next(self, text: str) -> Waiting[bool]:
        while not (is_next := self.starts_with(text)) and self._may_arrive(text):
            yield
        return is_next

    def literal(self, text: str) -> Waiting[bool]:
        """Consume `text` if it comes next; return whether it did."""
        while not self._text.startswith(text, self._position):
            if not self._may_arrive(text):
                return False
            yield
        self._position += len(text)
        return True

    def _may_arrive(self, text: str) -> bool:
        """Return whether the remaining text may be the beginning of `text`."""
        length = len(self._text) - self._position
        return not self._is_finished and length < len(text) and self._text.endswith(text[:length])

    def next_of(self, literals: Literals) -> Waiting[str]:
        """Return the next literal without consuming it; "" if there is none."""
        while (literal := self.literal_here(literals)) is None:
            yield
        return literal

    def one_of(self, literals: Literals) -> Waiting[str]:
        """Consume and return the next literal; "" if there is none."""
        while (literal := self.literal_here(literals)) is None:
            yield
        self._position += len(literal)
        return literal

    def take(self, pattern: re.Pattern[str]) -> Waiting[str]:
        """Consume and return all that `pattern`, a run of one character class, matches."""
        pieces = [self.consume_run(pattern)]
        while self.is_exhausted and not self._is_finished:
            yield
            pieces.append(self.consume_run(pattern))
        return "".join(pieces)

    def whitespace(self) -> Waiting[str]:
        return self.take(_SPACE)

    def next_visible(self) -> Waiting[str]:
        """Skip white space; return the next character without consuming it; "" at the end."""
        yield from self.take(_SPACE)
        return (yield from self.peek())

    def match(
        self, pattern: re.Pattern[str], beginning: re.Pattern[str], limit: int
    ) -> Waiting[re.Match[str] | None]:
        """Match `pattern` in the next `limit` characters; wait while they match `beginning`."""
        while True:
            text, is_all = self.look_ahead(limit)
            if is_all or not beginning.fullmatch(text):
                return pattern.match(text)
            yield

    def take_until(self, literals: Literals) -> Waiting[str]:
        """Consume and return everything before the first of `literals`, or all text."""
        pieces = [self.consume_until(literals)]
        while self.literal_here(literals) is None:
            yield
            pieces.append(self.consume_until(literals))
        return "".join(pieces)
