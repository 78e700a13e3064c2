"""Calls as tags: an element for the call, with an element for every argument in it.

Values are text between marks: what they mean is for the tool's schema to say. A mark inside a
value cannot be told from a missing closing mark, so a value ends early only where everything
behind it fits; otherwise nothing is a call. Nor is it one where a mark is missing in one place
and one too many stands in another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.literals import Literals, literals_of
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values import Style, Unreadable, Value, read_value, read_whole

_HEAD = re.compile(r"[^<>]+")
_NAMED = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^\s"']+))\s*((?:[\w:]+="[^"]*"\s*)*)""")
_TAG_NAME = re.compile(r"[\w.-]+")
_SPACE = re.compile(r"\s+")
_CHARACTERS = ("<![CDATA[", "]]>")
_NOISE_LIMIT = 4
_ARGUMENT_LIMIT = 100
_ALL_ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Element:
    """The marks of one call; `free` begins a tag that is named like the argument itself."""

    call: str
    call_end: str
    parameters: tuple[str, ...]
    parameter_end: str
    free: str = ""


class Tagged:
    """Calls in tags, with or without a wrapper around one or several of them.

    `noise` may stand between the marks of a wrapper. Where `is_empty_doubtful`, a call without
    arguments counts only in a wrapper.
    """

    place = Place.ANYWHERE
    is_marked = True

    def __init__(
        self,
        name: str,
        elements: Sequence[Element],
        wrappers: Mapping[str, str],
        noise: Sequence[str] = (),
        *,
        is_empty_doubtful: bool = False,
    ) -> None:
        self.name = name
        self._elements = {element.call: element for element in elements}
        self.openings = (*wrappers, *self._elements)
        self._wrappers = wrappers
        self._wrapper_ends = tuple(dict.fromkeys(wrappers.values()))
        self._calls = Literals(self._elements)
        self._closers = Literals(self._wrapper_ends)
        self._noise = Literals((*noise, *wrappers))
        self._is_empty_doubtful = is_empty_doubtful

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one call, or all those in one wrapper."""
        if opening not in self._wrappers:
            return (yield from self._bare(cursor, opening))
        calls: list[WrittenCall] = []
        yield from self._pass_noise(cursor)
        while mark := (yield from cursor.one_of(self._calls)):
            call = _Call(cursor, self._elements[mark], self._wrapper_ends, self._follow(mark))
            written = yield from call.read()
            if isinstance(written, NotACall):
                return written
            calls.append(written)
            yield from self._pass_noise(cursor)
        if not calls:
            cursor.rewind()
            cursor.advance(len(opening))
            return NotACall(Reason.NOT_A_CALL)
        is_closed = yield from cursor.one_of(self._closers)
        return Calls(tuple(calls), bool(is_closed))

    def _bare(self, cursor: Cursor, opening: str) -> Reading:
        call = _Call(cursor, self._elements[opening], self._wrapper_ends, self._follow(opening))
        written = yield from call.read()
        if isinstance(written, NotACall):
            return written
        if self._is_empty_doubtful and not written.arguments:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((written,), call.is_closed)

    def _follow(self, call: str) -> tuple[str, ...]:
        """Return the marks that can stand behind the call that begins with `call`."""
        return (*self._wrapper_ends, *self._wrappers, call)

    def _pass_noise(self, cursor: Cursor) -> Waiting[None]:
        for _ in range(_NOISE_LIMIT):
            yield from cursor.whitespace()
            if not (yield from cursor.one_of(self._noise)):
                break
        yield from cursor.whitespace()


class _Call:
    """Reads one call from behind its first mark."""

    def __init__(
        self, cursor: Cursor, element: Element, ends: tuple[str, ...], follow: tuple[str, ...]
    ) -> None:
        self._cursor = cursor
        self._element = element
        self._ends = (element.call_end, *ends)
        self._follow = follow
        self._arguments: JsonObject = {}
        self._lacks_mark = False
        self._has_inner_mark = False
        self.is_closed = False

    def read(self) -> Waiting[WrittenCall | NotACall]:
        name, _ = yield from self._head()
        if not name:
            return NotACall(Reason.NOT_A_CALL)
        yield from self._cursor.whitespace()
        char = yield from self._cursor.peek()
        is_good = yield from (self._json(name) if char == "{" else self._parameters())
        if not is_good or (self._lacks_mark and self._has_inner_mark):
            return NotACall(Reason.BROKEN)
        self.is_closed |= yield from self._cursor.literal(self._element.call_end)
        if self.is_closed or (self._arguments and (yield from self._ends_here())):
            return WrittenCall(name, _unwrapped(self._arguments))
        return NotACall(Reason.BROKEN)

    def _head(self) -> Waiting[tuple[str, str]]:
        """Read the rest of a tag; return the name in it, "" if it has none, and what follows."""
        head = yield from self._cursor.take(_HEAD)
        is_tag = yield from self._cursor.literal(">")
        match = _NAMED.fullmatch(head) if is_tag else None
        return (match[1] or match[2] or match[3], match[4]) if match else ("", "")

    def _json(self, name: str) -> Waiting[bool]:
        """Read all arguments as one JSON object."""
        self._cursor.start_arguments(name)
        value = yield from read_value(self._cursor, None, Style((self._element.call_end,)))
        self._cursor.end_arguments()
        yield from self._cursor.whitespace()
        if isinstance(value, Unreadable) or not isinstance(value.value, dict):
            return False
        self._arguments = value.value
        return value.is_closed

    def _parameters(self) -> Waiting[bool]:
        marks = literals_of(*self._element.parameters)
        while not self.is_closed:
            if (yield from self._cursor.one_of(marks)):
                key, attributes = yield from self._head()
                marker = self._element.parameter_end
            elif (yield from self._is_free()):
                key, attributes = yield from self._free_head()
                marker = f"{self._element.free[:-1]}</{key}>"
            else:
                break
            is_sane = key and len(self._arguments) < _ARGUMENT_LIMIT
            if not is_sane or not (yield from self._argument(key, attributes, marker)):
                return False
            yield from self._cursor.whitespace()
        return True

    def _is_free(self) -> Waiting[bool]:
        free = self._element.free
        if not free or (yield from self._is_next(self._ends)):
            return False
        return (yield from self._cursor.literal(free))

    def _free_head(self) -> Waiting[tuple[str, str]]:
        key = yield from self._cursor.take(_TAG_NAME)
        is_tag = yield from self._cursor.literal(">")
        return (key if is_tag else ""), ""

    def _argument(self, key: str, attributes: str, end: str) -> Waiting[bool]:
        opening, closing = _CHARACTERS
        if (yield from self._cursor.literal(opening)):
            text = yield from self._cursor.take_until(literals_of(closing))
            yield from self._cursor.literal(closing)
            value: str | None = text if (yield from self._cursor.literal(end)) else None
        else:
            value = yield from self._value(end)
            value = None if value is None else value.removeprefix("\n").removesuffix("\n")
        if value is None or self._arguments.get(key, value) != value:
            return False  # cut off, or two values of which one would have to be guessed
        self._arguments[key] = _typed(value, attributes)
        return True

    def _value(self, end: str) -> Waiting[str | None]:
        """Read a value and its closing mark, if it has one; None if it has no end."""
        marks = literals_of(end, *self._element.parameters, *self._ends)
        pieces: list[str] = []
        while True:
            pieces.append((yield from self._cursor.take_until(marks)))
            if (yield from self._is_next(self._element.parameters)):
                self._lacks_mark = True
                return "".join(pieces)
            mark = yield from self._cursor.one_of(marks)
            if not mark:
                return None
            space = yield from self._cursor.take(_SPACE)
            if (yield from self._fits(mark, end)):
                self.is_closed = mark == self._element.call_end
                return "".join(pieces)
            self._has_inner_mark |= mark == end
            pieces += (mark, space)

    def _fits(self, mark: str, end: str) -> Waiting[bool]:
        """Tell whether what follows `mark` shows that it ended the value."""
        if mark == self._element.call_end:
            return (yield from self._ends_here())
        if mark != end:
            return False
        free = (self._element.free,) if self._element.free else ()
        is_next = yield from self._is_next((*self._element.parameters, *self._ends, *free))
        return is_next or (yield from self._ends_here())

    def _ends_here(self) -> Waiting[bool]:
        if (yield from self._is_next(self._follow)):
            return True
        return not (yield from self._cursor.peek())

    def _is_next(self, marks: Sequence[str]) -> Waiting[bool]:
        for mark in marks:
            if (yield from self._cursor.is_next(mark)):
                return True
        return False


def _typed(text: str, attributes: str) -> JsonValue:
    """Take the text for JSON where the model says that it is no string."""
    if 'string="false"' in attributes:
        match read_whole(text):
            case Value(value, is_closed=True):
                return value
            case _:
                pass
    return text


def _unwrapped(arguments: JsonObject) -> JsonObject:
    """Return what a single argument named `arguments` holds, if that is an object."""
    if arguments.keys() != {_ALL_ARGUMENTS}:
        return arguments
    match arguments[_ALL_ARGUMENTS]:
        case dict() as value:
            return value
        case str() as text if text.lstrip().startswith("{"):
            match read_whole(text):
                case Value(dict() as value, is_closed=True):
                    return value
                case _:
                    pass
        case _:
            pass
    return arguments
