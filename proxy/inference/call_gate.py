"""Shows structured calls while the model is still writing them.

`CallGate` decides which call is shown, and `ArgumentsGate` how much of its arguments.

The client sees a call only after its first argument is certain. So no client receives the name of a
call with arguments that are wrong from the first character. The other arguments follow as far as
they are certain. The next call waits until this one is complete and valid. After the first
irregularity everything waits for the verdict on the whole reply.

How arguments are read
----------------------
`ArgumentsGate` follows strict JSON, one top-level member after another, and knows two kinds of
values. A string that every schema of its parameter accepts is passed on as it arrives, except for
its closing quote: only a known key, or the verdict, proves that the quote was the end. Every other
value is held until it is complete, then checked and sent in its final form. At the first
irregularity (an unknown key, broken JSON, a value that does not fit) the reader stops, and the rest
waits for the verdict. The lenient reader of `rescue.values` cannot do this: it returns a value only
after its meaning is clear, and reads up to 256 characters ahead before it ends a string.

    the model writes   {"path": "a.txt", "lines": "3", "text": "He
    the client sees    {"path": "a.txt", "lines": 3, "text": "He

`path` and `text` take any string. `lines` is an integer, so it was held, checked and coerced.

So the shown part always ends after the opening brace, after a whole value, or inside a
string. From there it can be continued to any object that begins with the same members;
`SentArguments.rest` does that. The work is linear in the text.
"""

import re

import msgspec

from proxy.conversation import json
from proxy.conversation.possessive import possessive
from proxy.conversation.replies import ReplyEvent, ToolCallArgumentsDelta, ToolCallStarted
from proxy.conversation.tools import Tool
from proxy.guardrails.names import has_markup
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.rescue.marks import VALUE_ENDS
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.schemas import arguments
from proxy.inference.sent_answer import SentAnswer, SentArguments

_SCALAR = re.compile(r'[^\s,:"{}\[\]]+')
_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}}|u{_HIGH}\\u{_LOW})')
_CONTENT = re.compile(possessive(rf'(?:[^"\\\x00-\x1f]++|{_ESCAPE.pattern})++'))  # of a string
_PLAIN = re.compile(r'[^"\\<\x00-\x1f]+')  # where no mark may begin
# with whole strings
_INSIDE = re.compile(possessive(rf'(?:[^"{{}}\[\]]++|"(?:{_CONTENT.pattern})?+")++'))
# Marks of calls in a string: an engine's parser may have missed the end of the value. The rest
# waits for the verdict, and so does a line end before such a mark.
_ESCAPED_MARKS = ("\\u003c", "\\u003C", "\\uff5c", "\\uFF5C")
_MARK = re.compile(rf"(?:\\n)?(?:{'|'.join(map(re.escape, VALUE_ENDS + _ESCAPED_MARKS))})")
_BEGINNINGS = sorted({mark[:end] for mark in VALUE_ENDS for end in range(1, len(mark))})
_MARK_BEGINS = re.compile(rf"(?:\\n|(?:\\n)?(?:{'|'.join(map(re.escape, _BEGINNINGS))}))\Z")
_LONGEST_MARK = 2 + max(map(len, VALUE_ENDS))
_LONGEST_ESCAPE = len("\\ud83d\\ude00")
_MOST_LEVELS = 256  # more than the parser takes, so such arguments are rejected anyway
_QUOTE = '"'


class ArgumentsGate:
    """Reads the arguments of one call and releases the certain part."""

    def __init__(self, members: arguments.Members) -> None:
        self.shown = SentArguments()
        self._members = members
        self._cursor = Cursor()
        self._cursor.begin()  # text after this point is held
        self._out: list[str] = []
        self._reading = self._read()
        self._flows = False  # whether plain text goes out as it is
        self._pending = ""  # text of a string that may begin a mark
        self._is_over = False

    def feed(self, fragment: str) -> str:
        """Take more of the arguments' text; return the part that may be shown now."""
        if self._is_over:
            return ""
        if self._flows and _PLAIN.fullmatch(fragment):
            self.shown.add(fragment)
            return fragment
        self._cursor.feed(fragment)
        try:
            next(self._reading)
        except StopIteration:
            self._is_over = True
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self) -> Waiting[None]:
        cursor = self._cursor
        if (yield from cursor.next_visible()) != "{":
            return
        cursor.advance(1)
        self._let_out(self._take_held())
        while (name := (yield from self._read_key())) is not None:
            cursor.advance(1)
            first = yield from cursor.next_visible()
            if first == _QUOTE and self._members.accepts_any_string(name):
                is_whole = yield from self._show_string(name)
            else:
                is_whole = yield from self._show_value(name, first)
            if not is_whole:
                return
            follows = yield from cursor.next_visible()
            if follows in ",}":
                self.shown.leave_string()
            if follows != ",":
                return
            cursor.advance(1)

    def _read_key(self) -> Waiting[str | None]:
        """Read a key up to its colon; None unless it names a parameter for the first time."""
        cursor = self._cursor
        if (yield from cursor.next_visible()) != _QUOTE:
            return None
        start = len(cursor.source())
        if not (yield from self._pass_string()):
            return None
        name = json.parse(cursor.source()[start:])
        is_key = (yield from cursor.next_visible()) == ":" and name not in self.shown.names
        return name if is_key and isinstance(name, str) and self._members.declares(name) else None

    def _show_string(self, name: str) -> Waiting[bool]:
        """Pass a string on as it arrives, without its closing quote; return whether it had one."""
        cursor = self._cursor
        cursor.advance(1)
        self._let_out(self._take_held())
        self.shown.begin_string(name)
        while True:
            text = cursor.consume_run(_CONTENT)
            if not text and cursor.is_exhausted:
                self._flows = not self._pending
                yield
                self._flows = False
                continue
            if not text and cursor.starts_with(_QUOTE):
                self._flow(self._pending)
                self._pending = ""
                cursor.begin()
                cursor.advance(1)
                return True
            text = text or (yield from self._pass_escape())
            if not text or not self._flow_to_mark(text):
                return False

    def _show_value(self, name: str, first: str) -> Waiting[bool]:
        """Show a value once it is complete and valid; return whether it was."""
        cursor = self._cursor
        before = self._take_held()
        if first == _QUOTE:
            is_whole = yield from self._pass_string()
        elif first in "{[":
            is_whole = yield from self._pass_container()
        else:
            yield from cursor.take(_SCALAR)
            is_whole = True
        if not is_whole or (yield from cursor.next_visible()) not in ",}":
            return False
        value_text = self._take_held()
        if _MARK.search(value_text):
            return False
        try:
            checked = self._members.check(name, json.parse(value_text))
        except ValueError:
            return False
        if checked is None:
            return False
        self._let_out(
            before + (json.dump_text(checked.value) if checked.is_changed else value_text)
        )
        self.shown.members[name] = checked.value
        return True

    def _pass_container(self) -> Waiting[bool]:
        depth = 0
        while depth < _MOST_LEVELS:
            yield from self._cursor.take(_INSIDE)
            mark = yield from self._cursor.peek()
            if mark == _QUOTE:
                if not (yield from self._pass_string()):
                    return False
                continue
            depth += 1 if mark in "{[" else -1
            self._cursor.advance(1)
            if depth == 0:
                return True
        return False

    def _pass_string(self) -> Waiting[bool]:
        self._cursor.advance(1)
        while True:
            yield from self._cursor.take(_CONTENT)
            if (yield from self._cursor.literal(_QUOTE)):
                return True
            if not (yield from self._pass_escape()):
                return False

    def _pass_escape(self) -> Waiting[str]:
        """Pass one escape (a surrogate pair counts as one); return "" without one."""
        while True:
            text, is_all = self._cursor.look_ahead(_LONGEST_ESCAPE)
            if escape := self._cursor.consume_run(_ESCAPE):
                return escape
            if is_all or not text.startswith("\\"):
                return ""
            yield

    def _take_held(self) -> str:
        held = self._cursor.source()
        self._cursor.begin()
        return held

    def _let_out(self, text: str) -> None:
        """Show held text. A string before it is known to be complete now."""
        self.shown.end_string()
        self.shown.add(text)
        self._out.append(text)

    def _flow_to_mark(self, text: str) -> bool:
        """Show a string up to where a mark may begin; return False if one does."""
        text = self._pending + text
        mark = _MARK.search(text) or _MARK_BEGINS.search(text, max(0, len(text) - _LONGEST_MARK))
        end = len(text) if mark is None else mark.start()
        self._pending = text[end:]
        self._flow(text[:end])
        return mark is None or mark.re is _MARK_BEGINS

    def _flow(self, text: str) -> None:
        self.shown.add(text)
        self._out.append(text)


class _CallInProgress(msgspec.Struct):
    """The call that the model is writing, with its arguments so far."""

    index: int
    id: str
    tool: Tool
    arguments: ArgumentsGate
    pieces: list[str] = msgspec.field(default_factory=list)  # of the arguments, as received


class CallGate:
    """Shows the calls of one reply, one after another."""

    def __init__(self, offer: OfferedTools, shown: SentAnswer) -> None:
        self._offer = offer
        self._sent = shown
        self._call: _CallInProgress | None = None
        self._is_over = False

    def take(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        if self._is_over:
            return []
        if isinstance(event, ToolCallStarted):
            return [] if self._offer.is_respond(event.name) else self._start(event)
        call = self._call
        if call is None or event.index != call.index:
            return []
        call.pieces.append(event.text)
        released, shown = call.arguments.feed(event.text), call.arguments.shown
        if released and (open_call := self._sent.open_call) is not None:
            return [ToolCallArgumentsDelta(open_call.index, released)]
        if not (released and shown.names):
            return []
        begun = self._sent.start_call(call.id, call.tool.name, shown)
        return [begun, ToolCallArgumentsDelta(begun.index, shown.text)]

    def _start(self, started: ToolCallStarted) -> list[ReplyEvent]:
        settled = self._settle()
        tool = None if settled is None else self._showable(started.name)
        if tool is None:
            self._is_over = True
            return settled or []
        gate = ArgumentsGate(arguments.Members(tool.parameters))
        self._call = _CallInProgress(started.index, started.id or "", tool, gate)
        return settled or []

    def _showable(self, name: str) -> Tool | None:
        """Return the tool of a call that may be shown early, None if it waits for the verdict."""
        offer = self._offer
        tool = offer.tool_named(name)
        if tool is None or has_markup(name) or not offer.is_free(tool.name):
            return None
        is_surplus = not offer.parallel and self._call is not None
        return None if is_surplus or not offer.may_call(tool.name) else tool

    def _settle(self) -> list[ReplyEvent] | None:
        """Complete the previous call, if any; None if it has to wait for the verdict."""
        call = self._call
        if call is None:
            return []
        text = "".join(call.pieces)
        checked = arguments.check(call.tool, text)
        if not isinstance(checked, arguments.ValidArguments) or _MARK.search(text):
            return None
        begun: list[ReplyEvent] = []
        if self._sent.open_call is None:
            begun.append(self._sent.start_call(call.id, call.tool.name, SentArguments()))
        closed = self._sent.close_call(checked.text)
        return None if closed is None else [*begun, *closed]
