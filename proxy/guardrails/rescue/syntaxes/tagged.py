"""Reads calls in tags: an element for the call, with an element for every argument in it.

Values are text between marks, and the tool's schema determines their types. If another mark occurs
inside a value, either the closing mark of the value is missing, or the other mark is part of the
value. The value ends at the other mark only if this mark can continue or end the call. If the rest
of the call can then not be read, the text is not a call. If one mark is missing and another mark is
surplus, the text is not a call either.

In some formats, every tag begins with a token that cannot be part of a value. In these formats an
argument may consist of elements. The elements become an object, and elements with the same name
become a list.
"""

import re
from dataclasses import dataclass, field

from proxy import bounds
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import TABLE, Element, Format
from proxy.guardrails.rescue.marks import TAGS, contains_mark, ends_here
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.unnamed import UNNAMED
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_only_value, read_value
from proxy.guardrails.rescue.values.scalars import Style, Unreadable, Value
from proxy.guardrails.rescue.values.tag_values import (
    LineEnds,
    is_pair_text,
    is_surplus_end,
    remove_doubled_end,
    unescape_entities,
)

_TAG_NAME = re.compile(r"[\w.-]+")
_WRAPPER = "tool_call"  # never the name of an element in a value


@dataclass(slots=True)
class _OpenElement:
    """An element whose closing tag has not been read yet, with its text and inner elements."""

    name: str
    text: str = ""
    members: JsonObject = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        return bool(self.text.strip())

    def put(self, name: str, value: JsonValue) -> None:
        """Add an inner element; the values of elements with the same name become a list."""
        if name not in self.members:
            self.members[name] = value
            return
        known = self.members[name]
        self.members[name] = [*known, value] if isinstance(known, list) else [known, value]


def read_nested(cursor: Cursor, token: str, name: str, end: str) -> Waiting[JsonValue]:
    """Read the content of the element `name` and its closing tag.

    `token` precedes every tag. If the element contains only text, its closing tag may be missing
    before another element or before `end`, the closing mark of the call. Raises `Unreadable` if the
    tags do not match.
    """
    stack = [_OpenElement(name)]
    while len(stack) <= bounds.LEVELS:
        innermost = stack[-1]
        innermost.text += yield from cursor.take_until(literals_of(token))
        is_alone = len(stack) == 1 and not innermost.members
        is_over = yield from cursor.is_next(end)
        is_over = is_over or (
            is_alone and innermost.is_text and (yield from _is_opening(cursor, token))
        )
        if is_over or not (yield from cursor.literal(f"{token}<")):
            if is_over and is_alone:
                return innermost.text
            break
        is_closing = yield from cursor.literal("/")
        tag = yield from cursor.take(_TAG_NAME)
        if tag in ("", _WRAPPER) or not (yield from cursor.literal(">")):
            break
        if not is_closing:
            stack.append(_OpenElement(tag))
        elif tag != innermost.name or (innermost.members and innermost.is_text):
            break
        elif len(stack) == 1:
            return innermost.members or innermost.text
        else:
            stack.pop()
            stack[-1].put(tag, innermost.members or innermost.text)
    raise Unreadable


def _is_opening(cursor: Cursor, token: str) -> Waiting[bool]:
    is_tag = yield from cursor.is_next(f"{token}<")
    return is_tag and not (yield from cursor.is_next(f"{token}</"))


_HEAD = re.compile(r"[^<>]+")
_NAMED = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^\s"']+))\s*((?:[\w:]+="[^"]*"\s*)*)""")
# A name directly before the object of arguments, without the `>` of its tag.
_JOINED = re.compile(r"(?P<name>[\w.:-]+)\(?\s*(?=\{)")
_JOINED_PREFIX = re.compile(r"[\w.:-]*\(?\s*")
_LONGEST_NAME = 128
_LONGEST_HEAD = 120
_HEAD_ENDS = re.compile(r"[<>\n]")
_KEY_HEAD = re.compile(r"[^<>\n]+[>\n]")
_SPACE = re.compile(r"\s+")
_CHARACTERS, _CHARACTERS_END = "<![CDATA[", "]]>"
_NOISE_LIMIT = 4  # of control tokens that DeepSeek writes between a wrapper and its call
_ARGUMENT_LIMIT = 100  # of one call
_INNER_MARK_LIMIT = 1000  # of marks in one value; the check of each reads the text after it
_ALL_ARGUMENTS = "arguments"
# Muse Glimmer ends a tag with the token that ends its headers.
_HEADER_END = TABLE.messages.header_end


def tagged(row: Format) -> Syntax:
    """Return the syntax of calls in tags; a wrapper may enclose one call or several calls.

        <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>

    In rows with the part `noise`, the marks in this part may occur between a wrapper and its calls.
    In a row with `is_empty_doubtful`, a call without arguments is doubtful if both tags are on one
    line and no wrapper encloses them, because such a call is usually an example.
    """
    known, wrappers = {element.call: element for element in row.variants}, row.marks
    noise = literals_of(*row.parts.get("noise", ()), *wrappers)

    def read(cursor: Cursor, opening: str) -> Reading:
        if opening in wrappers:
            return (yield from read_wrapped(cursor, opening))
        call = _CallReader(cursor, known[opening], row)
        only_call = yield from call.read()
        if not only_call.arguments and not call.is_closed:  # the tag may be part of a sentence
            raise NoCall(Reason.BROKEN)
        is_doubtful = row.is_empty_doubtful and not only_call.arguments and not call.has_lines
        return Calls((only_call,), call.is_closed, is_doubtful)

    def read_wrapped(cursor: Cursor, opening: str) -> Reading:
        result, begins = Calls(()), literals_of(*known)
        yield from _skip_noise(cursor, noise)
        while len(result.calls) <= MOST_CALLS and (mark := (yield from cursor.one_of(begins))):
            result += Calls(((yield from _CallReader(cursor, known[mark], row).read()),))
            if cursor.may_cut and result.is_runaway:
                return Calls(result.calls, is_cut=True)
            yield from _skip_noise(cursor, noise)
        if not result.calls:
            cursor.rewind()
            cursor.advance(len(opening))
            raise NoCall
        closer = yield from cursor.one_of(literals_of(*row.ends))
        return Calls(result.calls, bool(closer))

    return Syntax.of(row, read)


def _skip_noise(cursor: Cursor, noise: Literals) -> Waiting[None]:
    for _ in range(_NOISE_LIMIT):
        yield from cursor.whitespace()
        if not (yield from cursor.one_of(noise)):
            break
    yield from cursor.whitespace()


class _CallReader:
    def __init__(self, cursor: Cursor, element: Element, row: Format) -> None:
        self._cursor = cursor
        self._element = element
        self._free = element.free
        self._parameters = element.parameters
        self._marks = literals_of(*self._parameters)
        self._tag = next(iter(element.parameters))
        self._call_ends = tuple(
            end for end, standard in element.loose.items() if standard == element.end
        )
        self._wrapper_ends = row.ends
        self._ends = (element.end, *self._call_ends, *row.ends)
        self._openings = row.openings
        self._follow = literals_of(*row.ends, *row.marks, element.call)
        self._arguments: JsonObject = {}
        self._lines = LineEnds(has_lines=element.has_lines)
        self._lacks_mark = False
        self._has_inner_mark = False
        self._may_contain_end = False
        self.is_closed = False
        self.has_lines = False

    def read(self) -> Waiting[WrittenCall]:
        name = self._element.name or (yield from self._read_joined_name())
        if not name:
            name, _ = yield from self._read_head()
        if not name:
            raise NoCall
        try:
            yield from self._read_after_name(name)
        except Unreadable as failure:
            # A tag with the name of a tool may be ordinary markup, unless it contains an argument.
            is_markup = bool(self._element.name) and not self._arguments
            raise NoCall(Reason.NOT_A_CALL if is_markup else Reason.BROKEN) from failure
        self._lines.restore(self._arguments)
        return WrittenCall(name, _unwrap(self._arguments))

    def _read_after_name(self, name: str) -> Waiting[None]:
        space = yield from self._cursor.take(_SPACE)
        self.has_lines = "\n" in space and not self._element.name
        char = yield from self._cursor.peek()
        is_object = char == "{"
        if char not in "<{[" and not self._element.name and not self._element.token:
            yield from self._read_body()
        else:
            yield from (self._read_json(name) if is_object else self._read_arguments())
        if is_object:  # the object may be inside the tag: `<function=f({...})>`
            yield from self._cursor.literal(")")
            yield from self._cursor.literal(">")
        # A missing mark and a surplus mark together make the end of the value ambiguous.
        if self._lacks_mark and self._has_inner_mark:
            raise Unreadable
        ends = literals_of(self._element.end, *self._call_ends)
        self.is_closed |= bool((yield from self._cursor.one_of(ends)))
        is_over = self.is_closed or is_object
        if self._arguments:
            is_over = is_over or (yield from self._ends_here())
        elif not is_over:  # with neither arguments nor closing mark, the call must end at a mark
            is_over = bool((yield from self._cursor.next_of(literals_of(*self._wrapper_ends))))
        if not is_over:
            raise Unreadable

    def _read_joined_name(self) -> Waiting[str]:
        """Read a name before an object in its tag: `<function=f{"a": 1}></function>` (Groq)."""
        if not self._element.call.endswith("="):
            return ""
        joined = yield from self._cursor.match(_JOINED, _JOINED_PREFIX, _LONGEST_NAME)
        if joined is None:
            return ""
        self._cursor.advance(len(joined[0]))
        return joined["name"]

    def _read_head(self) -> Waiting[tuple[str, str]]:
        """Read the end of a tag, such as `"city">`; return the name and the attributes.

        The name is "" if the text is not the end of a tag.
        """
        head = yield from self._cursor.take(_HEAD)
        is_tag = yield from self._cursor.literal(">")
        if not is_tag and "\n" in head[-1:] and (yield from self._cursor.peek()) == "<":
            is_tag, head = True, head.rstrip()  # the tag ends with its line, without a bracket
        if not is_tag and (yield from self._cursor.literal(_HEADER_END)):
            is_tag, head = True, f'{head}"'
        match = _NAMED.fullmatch(head) if is_tag else None
        return (match[1] or match[2] or match[3], match[4]) if match else ("", "")

    def _read_json(self, name: str) -> Waiting[None]:
        self._cursor.start_arguments(name)
        value = yield from read_value(self._cursor, None, Style((self._element.end,)))
        self._cursor.end_arguments()
        yield from self._cursor.whitespace()
        if not (isinstance(value.value, dict) and value.is_closed):
            raise Unreadable
        self._arguments = value.value

    def _read_body(self) -> Waiting[None]:
        """Read the content, which has no argument tags, as the value of an argument without key."""
        text = yield from self._cursor.take_until(literals_of(*self._ends))
        marks = (*self._parameters, *self._parameters.values())
        if self._begins_call(text) or any(mark in text for mark in marks):
            raise Unreadable
        if not (yield from self._cursor.is_next(self._element.end)):
            raise Unreadable
        self._arguments[UNNAMED] = text.removesuffix("\n")

    def _read_arguments(self) -> Waiting[None]:
        """Read all arguments, which must have the same kind of tags."""
        count = 0
        while not self.is_closed:
            if mark := (yield from self._cursor.one_of(self._marks)):
                self._free = ""
                key, attributes = yield from self._read_head()
                end = self._parameters[mark]
            elif (yield from self._is_free()):
                key, attributes = (yield from self._read_free_head()), ""
                end = f"{self._element.free[:-1]}</{key}>"
            else:
                break
            count += 1
            if not key or count > _ARGUMENT_LIMIT:
                raise Unreadable
            yield from self._read_argument(key, attributes, end)
            yield from self._cursor.whitespace()

    def _is_free(self) -> Waiting[bool]:
        """Consume the start of a tag that is named like its argument, such as `<city>`."""
        if not self._free or (yield from self._cursor.next_of(literals_of(*self._ends))):
            return False
        return (yield from self._cursor.literal(self._free))

    def _read_free_head(self) -> Waiting[str]:
        key = yield from self._cursor.take(_TAG_NAME)
        is_tag = yield from self._cursor.literal(">")
        known = self._element.known
        return key if is_tag and (key in known if known else key not in TAGS) else ""

    def _read_argument(self, key: str, attributes: str, end: str) -> Waiting[None]:
        token = self._element.token
        value: JsonValue
        if (yield from self._cursor.literal(_CHARACTERS)):
            value = yield from self._cursor.take_until(literals_of(_CHARACTERS_END))
            yield from self._cursor.literal(_CHARACTERS_END)
            if not (yield from self._cursor.literal(end)):
                raise Unreadable
        elif token and end == f"{token}</{key}>":
            value = yield from read_nested(self._cursor, token, key, self._element.end)
        else:
            text = yield from self._read_value(end)
            if end.endswith(f"</{key}>") and f"<{key}>" in text and self._begins_call(text):
                raise Unreadable
            # The value stays a string here. Only the schema of the tool shows whether "5" is a
            # number.
            text = self._lines.trim(key, remove_doubled_end(text, end))
            value = _parse_typed(text, attributes)
        if self._arguments.setdefault(key, value) != value:  # two different values are ambiguous
            raise Unreadable

    def _begins_call(self, text: str) -> bool:
        return contains_mark(text) or any(mark in text for mark in self._openings)

    def _read_value(self, end: str) -> Waiting[str]:
        loose = (spelling for spelling, standard in self._element.loose.items() if standard == end)
        marks = literals_of(end, *self._parameters, *self._ends, *loose)
        pieces: list[str] = []
        while len(pieces) < 2 * _INNER_MARK_LIMIT:
            pieces.append((yield from self._cursor.take_until(marks)))
            if (yield from self._is_parameter()):
                self._lacks_mark = True
                return self._accept_unclosed("".join(pieces))
            mark = yield from self._cursor.one_of(marks)
            if not mark:
                break
            space = yield from self._cursor.take(_SPACE)
            standard = self._element.loose.get(mark, mark)
            if (yield from self._ends_value(standard, end)):
                self.is_closed = standard == self._element.end
                text = "".join(pieces)
                return text if mark == end else self._accept_unclosed(text)
            self._has_inner_mark |= standard == end
            pieces.append(mark + space)
        raise Unreadable

    def _accept_unclosed(self, text: str) -> str:
        """Return a value without closing mark; raise `Unreadable` if it may contain a call."""
        may_contain_end = self._may_contain_end or self._has_inner_mark or self._element.end in text
        if may_contain_end or self._begins_call(text):
            raise Unreadable
        return text.removesuffix("\n")

    def _is_parameter(self) -> Waiting[bool]:
        """Return whether a complete parameter tag comes next."""
        mark = next((known for known in self._parameters if self._cursor.starts_with(known)), "")
        while mark:
            head, is_all = self._cursor.look_ahead(_LONGEST_HEAD, len(mark))
            if is_all or _HEAD_ENDS.search(head):
                return _KEY_HEAD.match(head) is not None
            yield
        return False

    def _ends_value(self, mark: str, end: str) -> Waiting[bool]:
        """Return whether the value ended at `mark`, which depends on the text after the mark.

        `end` is the closing mark of the value.
        """
        call_end = self._element.end
        if mark == call_end:
            is_end = yield from self._ends_here()
            self._may_contain_end |= is_end and (
                yield from is_surplus_end(self._cursor, self._tag, end)
            )
            return is_end
        if mark in self._wrapper_ends and not self._has_inner_mark:
            # The closing marks of the value and of the call are missing, so the reply must end
            # after this mark.
            return not (yield from self._cursor.peek())
        if mark != end:
            return False
        if (yield from self._cursor.is_next(call_end)):
            return not (yield from is_pair_text(self._cursor, end, call_end))
        free = (self._free,) if self._free else ()
        follow = literals_of(*self._parameters, *self._ends, *free)
        return bool((yield from self._cursor.next_of(follow))) or (yield from self._ends_here())

    def _ends_here(self) -> Waiting[bool]:
        is_followed = bool((yield from self._cursor.next_of(self._follow)))
        return is_followed or (yield from ends_here(self._cursor))


def _parse_typed(text: str, attributes: str) -> JsonValue:
    """Parse the text as JSON if its tag has the attribute `string="false"` (DeepSeek)."""
    value = read_only_value(text) if 'string="false"' in attributes else None
    if isinstance(value, Value) and value.is_closed:
        return value.value
    return unescape_entities(text)


def _unwrap(arguments: JsonObject) -> JsonObject:
    """Return the content of `arguments` if it is the only argument and contains an object."""
    if arguments.keys() != {_ALL_ARGUMENTS}:
        return arguments
    inner = arguments[_ALL_ARGUMENTS]
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        match read_only_value(inner):
            case Value(dict() as value, is_closed=True):
                return value
            case _:
                pass
    return inner if isinstance(inner, dict) else arguments
