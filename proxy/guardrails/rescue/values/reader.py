"""Reads JSON values leniently while their text is arriving; no other module does this.

Beyond RFC 8259, the reader accepts errors of models that leave only one possible meaning: Python's
literals, single quotes, trailing and missing commas, comments, bare keys, raw control characters
and quotation marks in strings, unknown escapes (which are kept as they are) and missing closing
brackets. It never guesses a value, and it rejects a key with two different values.

Theory of operation. `_ValueReader` is a state machine with an explicit stack of open containers. In
state VALUE it reads a scalar, or opens a container. In state MEMBER it reads a key up to its colon,
or closes the container. A finished value is added to the innermost container. After the value, a
comma or the next member leads to MEMBER, and a bracket closes the container. The reader yields only
if more text could change its decision. For `{'a': [1, "he said "no"",]` these are the steps:

    VALUE    `{` opens an object                      stack {
    MEMBER   `'a':` is a key                          stack {a
    VALUE    `[` opens a list, 1 is an item           stack {a, [1
    VALUE    the marks of `"no"` are a pair: text     stack {a, [1, he said "no"
    MEMBER   `,]` closes the list                     stack {a: [1, he said "no"]
    then     the text ends within the object          Value(..., is_closed=False)

A string with unescaped quotation marks is doubtful (`strings.StringDoubt`). Its value is accepted
only if the text after the value can follow a call. Long sequences of plain members are read at once
(`runs`).
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from proxy import bounds
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.marks import contains_mark
from proxy.guardrails.rescue.values import runs, scalars, strings
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.scalars import Style, Unreadable, Value
from proxy.guardrails.rescue.values.strings import QUOTES, Quoted, StringContext, StringDoubt

_CLOSERS = {"{": "}", "[": "]", "(": ")"}
# The reader searches for the first run after 8 members of a container. After a failed search, it
# reads 2 members, and one more member per 128 searched characters, before the next search. So short
# values are read as fast as without runs. A hostile reply of 5 MB delays other requests by at most
# 0.3 s; without these limits it was 4 s.
_MEMBERS_BEFORE_SEARCH = 8
_MEMBERS_AFTER_FAILURE = 2
_CHARS_PER_MEMBER = 128
_WORTHWHILE = 8  # a run shorter than 1/8 of the searched text counts as a failed search


@dataclass(slots=True)
class OpenContainer:
    """An open container; its bracket may be doubled, as in `{{"name": ...}}` from a template."""

    container: JsonObject | list[JsonValue]
    closer: str
    key: str | None = None
    is_doubled: bool = False
    members_until_search: int = _MEMBERS_BEFORE_SEARCH

    def is_search_due(self) -> bool:
        """Count a member; return whether to search for a run of members."""
        self.members_until_search -= 1
        return self.members_until_search <= 0

    def record_search(self, searched: int, length: int) -> None:
        """Delay the next search if the run is short compared with the searched text."""
        if length * _WORTHWHILE <= searched:
            self.members_until_search = _MEMBERS_AFTER_FAILURE + searched // _CHARS_PER_MEMBER


_COMMENT_STARTS = frozenset("/#")
_COMMENTS = Literals(("//", "/*", "#"))
_COMPLETE_COMMENTS = re.compile(
    possessive(r"(?:(?:(?://|#)[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)[ \t\r\n]*+)++")
)
_LINE_END = Literals(("\n",))
_COMMENT_ENDS = {"//": _LINE_END, "#": _LINE_END, "/*": Literals(("*/",))}


def skip_comments(cursor: Cursor) -> Waiting[bool]:
    """Skip comments and the white space after them; return whether there were any."""
    if cursor.consume_run(_COMPLETE_COMMENTS):
        yield from cursor.whitespace()
        return True
    mark = yield from cursor.one_of(_COMMENTS)
    if not mark:
        return False
    yield from cursor.take_until(_COMMENT_ENDS[mark])
    yield from cursor.one_of(_COMMENT_ENDS[mark])
    yield from cursor.whitespace()
    return True


_NONSTANDARD_SIZE = 8  # a string in nonstandard quotes is slow to read: it counts as 8 members
_context_of = lru_cache(maxsize=256)(StringContext)
_NUMBER_STARTS = frozenset("-0123456789")
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?=[,\]} \t\r\n])")
_FIRST_LETTER = re.compile(r"[A-Za-z_$]")
_LETTERS = re.compile(r"[\w$.\\-]+", re.ASCII)
_SURPLUS = re.compile(r"[}\]\s]+")
# Gemma, FunctionGemma and HTML use these marks instead of quotation marks. Inside them there are no
# escapes.
_MARKS = Literals(('<|"|>', "<escape>", "&quot;"))


def read_value(
    cursor: Cursor, watcher: scalars.MemberWatcher | None = None, style: Style = scalars.JSON
) -> Waiting[Value]:
    """Read one value and stop right after it; raises `Unreadable` if there is none."""
    return _ValueReader(cursor, watcher, style).read()


def read_only_value(text: str) -> Value | Unreadable:
    """Read text that must consist of one value and white space."""
    cursor = Cursor(text, is_finished=True)
    results: list[Value] = []

    def reading() -> Waiting[None]:
        results.append((yield from read_value(cursor)))

    try:
        list(reading())  # never yields: the text is finished
    except Unreadable as failure:
        return failure
    cursor.skip_space()
    return results[0] if cursor.is_exhausted else Unreadable()


def read_values(text: str, *, is_complete: bool = True) -> list[JsonValue]:
    """Read consecutive objects and lists; [] if the text contains anything else.

    If `is_complete` is False, any text after the last value is ignored.
    """
    cursor = Cursor(text, is_finished=True)
    values: list[JsonValue] = []

    def reading() -> Waiting[None]:
        while (char := (yield from cursor.next_visible())) and char in "{[":
            value = yield from read_value(cursor)
            if not value.is_closed:
                raise Unreadable
            values.append(value.value)
            yield from cursor.take(_SURPLUS)  # the second bracket of `{{"name": ...}}`

    try:
        list(reading())
    except Unreadable:
        return [] if is_complete else values
    return values if cursor.is_exhausted or not is_complete else []


class _Step(Enum):
    """The next element that has to be read before a value is complete."""

    VALUE = "value"
    MEMBER = "member"


_Outcome: TypeAlias = JsonValue | _Step


class _ValueReader:
    """Reads one value with an explicit stack; recursion would limit the depth."""

    def __init__(self, cursor: Cursor, watcher: scalars.MemberWatcher | None, style: Style) -> None:
        self._cursor = cursor
        self._watcher = watcher
        self._style = style
        self._ends = literals_of(*style.ends)
        self._open: list[OpenContainer] = []
        self._size = 0
        self._is_closed = True
        self._doubt = StringDoubt.NONE

    def read(self) -> Waiting[Value]:
        """Read the value; raises `Unreadable` if it is doubtful and other text follows it."""
        try:
            value = yield from self._read_all()
        except Unreadable as failure:
            is_partial = failure.problem in ("cut_off", "unwanted")
            if is_partial and self._open and isinstance(self._open[0].container, list):
                failure.items = tuple(self._open[0].container)
            raise
        doubt, ends = self._doubt, self._style.ends
        if doubt and not (yield from strings.may_end(self._cursor, doubt, ends)):
            raise Unreadable
        return Value(value, self._is_closed)

    def _read_all(self) -> Waiting[JsonValue]:
        outcome: _Outcome = _Step.VALUE
        while True:
            if outcome is _Step.VALUE:
                outcome = self._read_plain()
                if outcome is _Step.VALUE:
                    outcome = yield from self._read_beginning()
            elif outcome is _Step.MEMBER:
                outcome = yield from self._read_member()
            elif self._open:
                outcome = yield from self._read_after(outcome)
            else:
                return outcome

    def _visible(self) -> str:
        """Skip white space; return the next character, or "" if it has not arrived or is / or #."""
        char = self._cursor.visible()
        return "" if char in _COMMENT_STARTS else char

    def _skip_space(self) -> Waiting[str]:
        """Skip white space and comments; return the next character, or "" at the end."""
        yield from self._cursor.whitespace()
        while (char := (yield from self._cursor.peek())) in _COMMENT_STARTS:
            is_text = char == "#" and self._style.has_bare_text
            if is_text or not (yield from skip_comments(self._cursor)):
                break
        return char

    def _read_plain(self) -> _Outcome:
        """Read a simple string or number that has arrived completely; else return VALUE."""
        char = self._cursor.visible()
        if char == '"' and self._open:
            text = strings.read_plain_string(self._cursor, self._context_of())
            return _Step.VALUE if text is None else text
        if char in _NUMBER_STARTS and not self._style.has_bare_text:
            digits = self._cursor.look(_PLAIN_NUMBER)
            self._cursor.advance(len(digits))
            return int(digits) if digits else _Step.VALUE
        return _Step.VALUE

    def _read_beginning(self) -> Waiting[_Outcome]:
        char = self._visible() or (yield from self._skip_space())
        if char == "":
            raise Unreadable("cut_off")
        if char in "{[" or (char == "(" and self._style.is_python):
            return self._open_container(char)
        if char in QUOTES or self._is_nonstandard_quote(char):
            return (yield from self._read_string(char))
        if char in "<&":
            return (yield from self._read_marked())
        if self._style.has_bare_text:
            return (yield from (self._read_ticks() if char == "`" else self._read_bare()))
        return (yield from (self._read_number() if char in _NUMBER_STARTS else self._read_word()))

    def _open_container(self, char: str) -> _Outcome:
        if len(self._open) == bounds.LEVELS:
            raise Unreadable("too_deep")
        self._cursor.advance(1)
        is_object = char == "{" or (char == "(" and not self._open)
        self._open.append(OpenContainer({} if is_object else [], _CLOSERS[char]))
        return _Step.MEMBER

    def _read_member(self) -> Waiting[_Outcome]:
        """Read a key and its colon, or the closing bracket; an item of a list has no key."""
        self._size += 1
        self._take_run()
        if self._size > bounds.MEMBERS:
            raise Unreadable("too_long")
        char = self._visible() or (yield from self._skip_space())
        innermost = self._open[-1]
        if char == innermost.closer:
            return self._close()
        if isinstance(innermost.container, list):
            return _Step.VALUE
        if char == "{" and not (innermost.container or innermost.is_doubled):
            innermost.is_doubled = True
            self._cursor.advance(1)
            return _Step.MEMBER
        innermost.key = yield from self._read_key(char)
        return (yield from self._enter(innermost, innermost.container, is_quoted=char in QUOTES))

    def _take_run(self) -> None:
        innermost = self._open[-1]
        # The depth inside a run is not checked, so the deepest possible level of a run must be
        # allowed.
        if not innermost.is_search_due() or len(self._open) + runs.DEPTH > bounds.LEVELS:
            return
        text, _ = self._cursor.look_ahead(runs.WINDOW)
        is_watched = self._watcher is not None and not self._cursor.is_within_arguments
        if isinstance(innermost.container, list):
            has_watched = is_watched and "{" in text  # the watcher needs each member of objects
            length = 0 if has_watched else self._take_items(innermost.container, text)
        else:
            length = 0 if is_watched else self._take_members(innermost, innermost.container, text)
        self._cursor.advance(length)
        innermost.record_search(len(text), length)

    def _take_items(self, items: list[JsonValue], text: str) -> int:
        run = runs.ITEMS.find(text)
        if run is None and self._style.has_bare_text:
            run = runs.find_bare_items(text)
        if run is None:
            return 0
        self._size += run.size
        items += run.members
        return run.length

    def _take_members(self, innermost: OpenContainer, members: JsonObject, text: str) -> int:
        run = (runs.KEYWORDS if innermost.closer == ")" else runs.MEMBERS).find(text)
        if run is None:
            return 0
        repeated = members.keys() & run.members.keys()
        if any(members[key] != run.members[key] for key in repeated):
            return 0  # member by member, the reader raises `Unreadable` for the key
        self._size += run.size
        for key, value in run.members.items():
            members.setdefault(key, value)
        return run.length

    def _enter(
        self, innermost: OpenContainer, members: JsonObject, *, is_quoted: bool
    ) -> Waiting[_Outcome]:
        """Read the colon after a key, or the `=` after the name of a keyword argument."""
        char = self._visible() or (yield from self._skip_space())
        has_value = char == ("=" if innermost.closer == ")" else ":")
        self._cursor.advance(has_value)
        char = self._visible() or (yield from self._skip_space())
        if char == "":
            raise Unreadable("cut_off")
        if not has_value:  # the key may be an item of a Python set: {'a', 'b'}
            is_set = self._style.is_python and is_quoted and innermost.closer == "}"
            if innermost.container or not is_set:
                raise Unreadable
            innermost.container = []
            return innermost.key
        if self._watcher is not None and not self._watcher.enters(self._path(), members):
            raise Unreadable("unwanted")
        return _Step.VALUE

    def _read_after(self, value: JsonValue) -> Waiting[_Outcome]:
        """Add a value to the innermost container, and read the comma or bracket after it."""
        innermost = self._open[-1]
        if not self._put(innermost, value):
            raise Unreadable
        char = self._visible() or (yield from self._skip_space())
        # After a string with an unpaired quotation mark, no other member of the value may follow.
        if char == "," and self._doubt is not StringDoubt.UNPAIRED:
            self._cursor.advance(1)
            return _Step.MEMBER
        if char == innermost.closer:
            return self._close()
        if char and not ((yield from self._cursor.next_of(self._ends)) and len(self._open) == 1):
            self._check_missing_comma(char, innermost, value)
            return _Step.MEMBER
        self._is_closed = bool(char)
        return self._open.pop().container

    def _check_missing_comma(self, char: str, innermost: OpenContainer, value: JsonValue) -> None:
        """Raise `Unreadable` unless the next member clearly begins here: `{"a": 1 "b": 2}`."""
        is_object = isinstance(innermost.container, dict)
        is_next = char in QUOTES if is_object else char in "{[" and isinstance(value, dict | list)
        is_next = is_next or (char in QUOTES and isinstance(value, str))
        if not is_next or self._doubt is StringDoubt.UNPAIRED:
            raise Unreadable

    def _put(self, innermost: OpenContainer, value: JsonValue) -> bool:
        """Add a value to a container; return False if its key has a different value already."""
        members, key = innermost.container, innermost.key or ""
        if isinstance(members, list):
            members.append(value)
            watcher = self._watcher if len(self._open) == 1 else None
            if watcher is not None and not watcher.adds(members):
                raise Unreadable("unwanted")
            return True
        if self._watcher is not None:
            self._watcher.leaves(self._path())
        return members.setdefault(key, value) == value

    def _path(self) -> list[str | None]:
        return [container.key for container in self._open]

    def _close(self) -> JsonValue:
        self._cursor.advance(1)
        return self._open.pop().container

    def _read_key(self, char: str) -> Waiting[str]:
        if char in QUOTES or self._is_nonstandard_quote(char):
            text = (
                strings.read_plain_string(self._cursor, self._context_of(is_key=True))
                if char == '"'
                else None
            )
            key = (yield from self._read_string(char, is_key=True)) if text is None else text
            if "<" in key and contains_mark(key):
                raise Unreadable  # the closing quote is missing, so the key contains the next call
            return key
        if char and char in "<&":
            return (yield from self._read_marked())
        word = yield from self._read_letters()
        if not word:
            raise Unreadable("unexpected" if char else "cut_off")
        if "\\" in word.replace("\\_", ""):  # Markdown escapes only the underscores of a name
            raise Unreadable
        return word

    def _is_nonstandard_quote(self, char: str) -> bool:
        return char in strings.NONSTANDARD_QUOTES and not self._style.has_bare_text

    def _read_letters(self) -> Waiting[str]:
        char = yield from self._cursor.peek()
        return (yield from self._cursor.take(_LETTERS)) if _FIRST_LETTER.match(char) else ""

    def _read_word(self) -> Waiting[_Outcome]:
        if self._style.has_gaps and (yield from self._cursor.literal("...")):
            return None
        word = yield from self._read_letters()
        if word in scalars.WORDS:
            return scalars.WORDS[word]
        if not (word and self._style.has_words):
            raise Unreadable
        return word

    def _read_number(self) -> Waiting[_Outcome]:
        text = yield from self._cursor.take(scalars.NUMERIC)
        char = yield from self._cursor.peek()
        if char == "" and self._open:
            raise Unreadable("cut_off")  # the last digits of the number may be missing
        return scalars.parse_number(text, is_python=self._style.is_python)

    def _read_bare(self) -> Waiting[_Outcome]:
        """Read a value without quotation marks.

        If the value is text and `<` follows, it must be the only member of the outermost object.
        """
        members = self._open[-1].container if self._open else {}
        is_item = isinstance(members, list)
        text = yield from scalars.read_bare(self._cursor, self._style.ends, is_item=is_item)
        char = yield from self._cursor.peek()
        if not char:
            raise Unreadable("cut_off")
        if text is None or (is_item and not text):
            raise Unreadable
        value = scalars.interpret(text)
        is_alone = not (members or is_item or len(self._open) > 1 or text.endswith("}"))
        if char == "<" and not is_alone and value == text:
            raise Unreadable
        return value

    def _read_string(self, quote: str, *, is_key: bool = False) -> Waiting[str]:
        if quote in strings.NONSTANDARD_QUOTES:
            self._size += _NONSTANDARD_SIZE
        context = self._context_of(is_key=is_key)
        return self._text((yield from strings.read_string(self._cursor, quote, context)))

    def _context_of(self, *, is_key: bool = False) -> StringContext:
        if not self._open:
            return _context_of(ends=self._style.ends)
        innermost = self._open[-1]
        outer = self._open[-2].closer if len(self._open) > 1 else self._style.outer
        is_list = isinstance(innermost.container, list)
        return _context_of(innermost.closer, outer, is_list, is_key, self._style.ends)

    def _read_marked(self) -> Waiting[str]:
        """Read a string between two marks: `<escape>Rome<escape>`."""
        mark = yield from self._cursor.one_of(_MARKS)
        if not mark:
            raise Unreadable
        is_last = len(self._open) == 1 and self._open[0].closer == "}"
        ends = self._style.ends if is_last and self._style.has_bare_text else ()
        return self._text((yield from strings.read_between(self._cursor, mark, ends)))

    def _read_ticks(self) -> Waiting[str]:
        self._cursor.advance(1)
        text = self._text((yield from strings.read_between(self._cursor, "`")))
        if contains_mark(text):
            raise Unreadable
        return text

    def _text(self, quoted: Quoted) -> str:
        self._doubt = max(self._doubt, quoted.doubt)
        if quoted.doubt is StringDoubt.TORN:
            raise Unreadable
        if not quoted.has_end:
            raise Unreadable("cut_off")
        return quoted.text
