"""Calls as tags: an element for the call, with an element for every argument in it.

Values are text between marks: what they mean is for the tool's schema to say. A mark inside a
value cannot be told from a missing closing mark, so a value ends early only where everything
behind it fits; otherwise nothing is a call. Nor is it one where a mark is missing in one place
and one too many stands in another. Where a token that cannot be part of a value stands before
every tag, elements may stand within elements: an object, or a list where a name occurs again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.marks import TAGS, ends_here, holds_mark
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NotACall, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value, read_whole
from proxy.guardrails.rescue.values.scalars import Style, Unreadable, Value, ValueProblem
from proxy.guardrails.rescue.values.tag_values import (
    LineEnds,
    is_pair_text,
    is_surplus,
    unescape_entities,
)

_TAG_NAME = re.compile(r"[\w.-]+")
_DEPTH_LIMIT = 64
_WRAPPER = "tool_call"  # behind a token it is never an element
_MISFIT = Unreadable(ValueProblem.UNEXPECTED)


@dataclass(slots=True)
class _OpenElement:
    """An element that has not been closed: the text in it so far, and the elements."""

    name: str
    text: str = ""
    members: JsonObject = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        return bool(self.text.strip())

    def put(self, name: str, value: JsonValue) -> None:
        """Add an element; the second one of a name makes a list."""
        if name not in self.members:
            self.members[name] = value
            return
        known = self.members[name]
        self.members[name] = [*known, value] if isinstance(known, list) else [known, value]


def read_nested(cursor: Cursor, token: str, name: str, end: str) -> Waiting[JsonValue | Unreadable]:
    """Read what stands in the element `name`, from behind its tag to behind its closing tag.

    `token` stands before every tag. The closing tag may be missing before another element and
    before `end`, which closes what stands around, if the element holds text only. Where the tags
    do not fit, nothing can be read.
    """
    stack = [_OpenElement(name)]
    while len(stack) <= _DEPTH_LIMIT:
        innermost = stack[-1]
        innermost.text += yield from cursor.take_until(literals_of(token))
        is_over = yield from cursor.is_next(end)
        if len(stack) == 1 and innermost.is_text and not innermost.members:
            is_over = is_over or (yield from _is_opening(cursor, token))
        if is_over or not (yield from cursor.literal(f"{token}<")):
            is_whole = is_over and len(stack) == 1 and not innermost.members
            return innermost.text if is_whole else _MISFIT
        is_closing = yield from cursor.literal("/")
        tag = yield from cursor.take(_TAG_NAME)
        if tag in ("", _WRAPPER) or not (yield from cursor.literal(">")):
            return _MISFIT
        if not is_closing:
            stack.append(_OpenElement(tag))
        elif tag != innermost.name or (innermost.members and innermost.is_text):
            return _MISFIT
        elif len(stack) == 1:
            return innermost.members or innermost.text
        else:
            stack.pop()
            stack[-1].put(tag, innermost.members or innermost.text)
    return _MISFIT


def _is_opening(cursor: Cursor, token: str) -> Waiting[bool]:
    is_tag = yield from cursor.is_next(f"{token}<")
    return is_tag and not (yield from cursor.is_next(f"{token}</"))


_HEAD = re.compile(r"[^<>]+")
_NAMED = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^\s"']+))\s*((?:[\w:]+="[^"]*"\s*)*)""")
_LONGEST_HEAD = 120
_HEAD_ENDS = re.compile(r"[<>\n]")
_KEY_HEAD = re.compile(r"[^<>\n]+[>\n]")
_SPACE = re.compile(r"\s+")
_CHARACTERS, _CHARACTERS_END = "<![CDATA[", "]]>"
_NOISE_LIMIT = 4
_ARGUMENT_LIMIT = 100
_INNER_MARK_LIMIT = 1000  # in one value; each is looked behind
_ALL_ARGUMENTS = "arguments"
_NO_VALUE = Unreadable(ValueProblem.UNEXPECTED)


@dataclass(frozen=True, slots=True)
class Element:
    """The marks of one call; `free` begins a tag that is named like the argument itself.

    Where the mark of the call does not end in its name, `name` is the name. A `token` before every
    tag makes elements within elements unmistakable. If `known` names any, no others are arguments.
    `others` are further marks of arguments, with their ends; `loose` are spellings of ends in
    which the namespace is forgotten, with what they stand for. Where the family `has_lines`, it
    writes every value on lines of its own, and one forgotten line end does not make the other one
    part of the value.
    """

    call: str
    call_end: str
    parameters: tuple[str, ...]
    parameter_end: str
    free: str = ""
    name: str = ""
    token: str = ""
    known: frozenset[str] = frozenset()
    has_lines: bool = False
    others: Mapping[str, str] = field(default_factory=dict)
    loose: Mapping[str, str] = field(default_factory=dict)


class Tagged(Syntax):
    """Calls in tags, with or without a wrapper around one or several of them.

    `noise` may stand between the marks of a wrapper. Where `is_empty_doubtful`, a call without
    arguments counts only in a wrapper, as the whole reply, or if its two tags stand on lines of
    their own: on one line they are more often mentioned than meant.
    """

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
        self._around = _Surroundings(self.openings, tuple(wrappers), self._wrapper_ends)
        self._noise = (*noise, *wrappers)
        self._is_empty_doubtful = is_empty_doubtful

    def read(self, cursor: Cursor, opening: str) -> Reading:
        if opening not in self._wrappers:
            return (yield from self._read_bare(cursor, opening))
        calls: list[WrittenCall] = []
        yield from self._pass_noise(cursor)
        calls_begin = literals_of(*self._elements)
        while len(calls) <= MOST_CALLS and (mark := (yield from cursor.one_of(calls_begin))):
            call = _CallReader(cursor, self._elements[mark], self._around)
            written = yield from call.read()
            if isinstance(written, NotACall):
                return written
            calls.append(written)
            yield from self._pass_noise(cursor)
        if not calls:
            cursor.rewind()
            cursor.advance(len(opening))
            return NotACall(Reason.NOT_A_CALL)
        closer = yield from cursor.one_of(literals_of(*self._wrapper_ends))
        return Calls(tuple(calls), bool(closer))

    def _read_bare(self, cursor: Cursor, opening: str) -> Reading:
        call = _CallReader(cursor, self._elements[opening], self._around)
        written = yield from call.read()
        if isinstance(written, NotACall):
            return written
        if not written.arguments and not call.is_closed:
            return NotACall(Reason.BROKEN)
        is_empty = not written.arguments and not call.has_lines
        return Calls((written,), call.is_closed, is_doubtful=is_empty and self._is_empty_doubtful)

    def _pass_noise(self, cursor: Cursor) -> Waiting[None]:
        noise = literals_of(*self._noise)
        for _ in range(_NOISE_LIMIT):
            yield from cursor.whitespace()
            if not (yield from cursor.one_of(noise)):
                break
        yield from cursor.whitespace()


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What can stand around the calls of one syntax: all openings, and the marks of wrappers."""

    openings: tuple[str, ...]
    wrappers: tuple[str, ...]
    wrapper_ends: tuple[str, ...]


class _CallReader:
    """Reads one call from behind its first mark."""

    def __init__(self, cursor: Cursor, element: Element, around: _Surroundings) -> None:
        self._cursor = cursor
        self._element = element
        self._free = element.free
        self._parameters = {
            **dict.fromkeys(element.parameters, element.parameter_end),
            **element.others,
        }
        self._marks = literals_of(*self._parameters)
        self._tag = element.parameters[0]
        self._call_ends = tuple(
            end for end, meant in element.loose.items() if meant == element.call_end
        )
        ends = around.wrapper_ends
        self._ends = (element.call_end, *self._call_ends, *ends)
        self._wrapper_ends = ends
        self._openings = around.openings
        self._follow = literals_of(*ends, *around.wrappers, element.call)
        self._around: dict[str, Literals] = {}
        self._arguments: JsonObject = {}
        self._lines = LineEnds(has_lines=element.has_lines)
        self._lacks_mark = False
        self._has_inner_mark = False
        self._is_torn = False
        self.is_closed = False
        self.has_lines = False

    def read(self) -> Waiting[WrittenCall | NotACall]:
        name = self._element.name
        if not name:
            name, _ = yield from self._read_head()
        if not name:
            return NotACall(Reason.NOT_A_CALL)
        space = yield from self._cursor.take(_SPACE)
        self.has_lines = "\n" in space and not self._element.name
        char = yield from self._cursor.peek()
        is_object = char == "{"
        is_good = yield from (self._read_json(name) if is_object else self._read_arguments())
        if not is_good or (self._lacks_mark and self._has_inner_mark):
            return NotACall(self._reason)
        self.is_closed |= yield from self._close()
        if self.is_closed or is_object or (yield from self._is_over()):
            self._lines.restore(self._arguments)
            return WrittenCall(name, _unwrap(self._arguments))
        return NotACall(self._reason)

    @property
    def _reason(self) -> Reason:
        """A tag that has the tool's name may be any markup; with an argument it was a call."""
        is_markup = bool(self._element.name) and not self._arguments
        return Reason.NOT_A_CALL if is_markup else Reason.BROKEN

    def _close(self) -> Waiting[bool]:
        ends = literals_of(self._element.call_end, *self._call_ends)
        return bool((yield from self._cursor.one_of(ends)))

    def _is_over(self) -> Waiting[bool]:
        """Whether a call without its closing mark is over: one without arguments at a mark."""
        if self._arguments:
            return (yield from self._ends_here())
        return (yield from self._is_next(literals_of(*self._wrapper_ends)))

    def _read_head(self) -> Waiting[tuple[str, str]]:
        """Read the rest of a tag; return the name in it, "" if it has none, and what follows."""
        head = yield from self._cursor.take(_HEAD)
        is_tag = yield from self._cursor.literal(">")
        if not is_tag and "\n" in head[-1:] and (yield from self._cursor.peek()) == "<":
            is_tag, head = True, head.rstrip()  # the bracket was forgotten at the end of the line
        match = _NAMED.fullmatch(head) if is_tag else None
        return (match[1] or match[2] or match[3], match[4]) if match else ("", "")

    def _read_json(self, name: str) -> Waiting[bool]:
        self._cursor.start_arguments(name)
        value = yield from read_value(self._cursor, None, Style((self._element.call_end,)))
        self._cursor.end_arguments()
        yield from self._cursor.whitespace()
        if isinstance(value, Unreadable) or not isinstance(value.value, dict):
            return False
        self._arguments = value.value
        return value.is_closed

    def _read_arguments(self) -> Waiting[bool]:
        """Read all arguments; those of one call are all of one style."""
        count = 0
        while not self.is_closed:
            if mark := (yield from self._cursor.one_of(self._marks)):
                self._free = ""
                key, attributes = yield from self._read_head()
                end = self._parameters[mark]
            elif (yield from self._is_free()):
                key, attributes = yield from self._read_free_head()
                end = f"{self._element.free[:-1]}</{key}>"
            else:
                break
            count += 1
            is_sane = key and count <= _ARGUMENT_LIMIT
            if not is_sane or not (yield from self._read_argument(key, attributes, end)):
                return False
            yield from self._cursor.whitespace()
        return True

    def _is_free(self) -> Waiting[bool]:
        if not self._free or (yield from self._is_next(literals_of(*self._ends))):
            return False
        return (yield from self._cursor.literal(self._free))

    def _read_free_head(self) -> Waiting[tuple[str, str]]:
        key = yield from self._cursor.take(_TAG_NAME)
        is_tag = yield from self._cursor.literal(">")
        known = self._element.known
        is_key = is_tag and (key in known if known else key not in TAGS)
        return (key if is_key else ""), ""

    def _read_argument(self, key: str, attributes: str, end: str) -> Waiting[bool]:
        token = self._element.token
        value: JsonValue | Unreadable
        if (yield from self._cursor.literal(_CHARACTERS)):
            value = yield from self._read_characters(end)
        elif token and end == f"{token}</{key}>":
            value = yield from read_nested(self._cursor, token, key, self._element.call_end)
        else:
            value = yield from self._read_value(end)
            if isinstance(value, str):
                value = self._interpret(key, value, attributes, is_free=end.endswith(f"</{key}>"))
        if isinstance(value, Unreadable) or self._arguments.get(key, value) != value:
            return False  # cut off, or two values of which one would have to be guessed
        self._arguments[key] = value
        return True

    def _interpret(
        self, key: str, text: str, attributes: str, *, is_free: bool
    ) -> JsonValue | Unreadable:
        """Return what was written as a value, unless it holds the beginning of another call."""
        if is_free and f"<{key}>" in text and self._begins_call(text):
            return _NO_VALUE
        return _parse_typed(self._lines.trim(key, text), attributes)

    def _begins_call(self, text: str) -> bool:
        return holds_mark(text) or any(mark in text for mark in self._openings)

    def _read_characters(self, end: str) -> Waiting[str | Unreadable]:
        text = yield from self._cursor.take_until(literals_of(_CHARACTERS_END))
        yield from self._cursor.literal(_CHARACTERS_END)
        return text if (yield from self._cursor.literal(end)) else _NO_VALUE

    def _read_value(self, end: str) -> Waiting[str | Unreadable]:
        marks = self._marks_around(end)
        pieces: list[str] = []
        while len(pieces) < 2 * _INNER_MARK_LIMIT:
            pieces.append((yield from self._cursor.take_until(marks)))
            if (yield from self._is_parameter()):
                self._lacks_mark = True
                return self._accept_unended("".join(pieces))
            mark = yield from self._cursor.one_of(marks)
            if not mark:
                break
            space = yield from self._cursor.take(_SPACE)
            meant = self._element.loose.get(mark, mark)
            if (yield from self._fits(meant, end)):
                self.is_closed = meant == self._element.call_end
                text = "".join(pieces)
                return text if mark == end else self._accept_unended(text)
            self._has_inner_mark |= meant == end
            pieces.append(mark + space)
        return _NO_VALUE

    def _accept_unended(self, text: str) -> str | Unreadable:
        is_torn = self._is_torn or self._has_inner_mark or self._element.call_end in text
        is_torn = is_torn or self._begins_call(text)
        return _NO_VALUE if is_torn else text.removesuffix("\n")

    def _is_parameter(self) -> Waiting[bool]:
        """Return whether the tag of a parameter comes next, and not only its first characters."""
        mark = next((one for one in self._parameters if self._cursor.stands_at(one)), "")
        while mark:
            head, is_all = self._cursor.glimpse(_LONGEST_HEAD, len(mark))
            if is_all or _HEAD_ENDS.search(head):
                return _KEY_HEAD.match(head) is not None
            yield
        return False

    def _marks_around(self, end: str) -> Literals:
        if end not in self._around:
            loose = (one for one, meant in self._element.loose.items() if meant == end)
            self._around[end] = literals_of(end, *self._parameters, *self._ends, *loose)
        return self._around[end]

    def _fits(self, mark: str, end: str) -> Waiting[bool]:
        """Return whether what follows `mark` shows that it ended the value."""
        call_end = self._element.call_end
        if mark == call_end:
            is_end = yield from self._ends_here()
            self._is_torn |= is_end and (yield from is_surplus(self._cursor, self._tag, end))
            return is_end
        if mark in self._wrapper_ends and not self._has_inner_mark:
            return not (yield from self._cursor.peek())  # both marks before it are missing
        if mark != end:
            return False
        if (yield from self._cursor.is_next(call_end)):
            return not (yield from is_pair_text(self._cursor, end, call_end))
        free = (self._free,) if self._free else ()
        is_next = yield from self._is_next(literals_of(*self._parameters, *self._ends, *free))
        return is_next or (yield from self._ends_here())

    def _ends_here(self) -> Waiting[bool]:
        if (yield from self._is_next(self._follow)):
            return True
        return (yield from ends_here(self._cursor))

    def _is_next(self, marks: Literals) -> Waiting[bool]:
        while (mark := self._cursor.here(marks)) is None:
            yield
        return bool(mark)


def _parse_typed(text: str, attributes: str) -> JsonValue:
    """Take the text for JSON where the model says that it is no string."""
    if 'string="false"' in attributes:
        match read_whole(text):
            case Value(value, is_closed=True):
                return value
            case _:
                pass
    return unescape_entities(text)


def _unwrap(arguments: JsonObject) -> JsonObject:
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
