"""Shows structured calls while the model is still writing them.

`CallGate` decides which call is shown, and `ArgumentsGate` how much of its arguments.

A call is sent to the client once its first argument can no longer change, so that a call whose
arguments are invalid from the start is never announced. Each further argument is also sent once it
can no longer change. The next call waits until the previous call is complete and valid. After the
first irregularity, all further calls wait for the verdict, which `guardrails.review` gives at the
end of the reply.

How arguments are read
----------------------
`ArgumentsGate` parses strict JSON, one top-level member after another. If a parameter accepts any
string, its string is sent as it arrives, but without its closing quote. Models forget to escape
quotes within strings, so a quote alone does not end the string: a known key has to follow, or the
verdict decides. Every other value is held until it is complete. Then it is checked, coerced and
sent. At the first irregularity (an unknown key, broken JSON, an invalid value) the gate stops, and
the remaining arguments wait for the verdict. The lenient parser of `rescue.values` cannot be used
here: it returns a value only after its meaning is clear, and reads up to 256 characters ahead
before it ends a string.

    the model writes   {"path": "a.txt", "lines": "3", "text": "He
    the client sees    {"path": "a.txt", "lines": 3, "text": "He

`path` and `text` take any string. `lines` is an integer, so it was held, checked and coerced.

So the sent part always ends after the opening brace, after a complete value, or inside a string.
Any object that begins with the sent members can still follow (`SentArguments.missing_part`).
The run time is linear in the length of the text.
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

# a number, true, false or null, up to the next delimiter; `json.parse` validates it
_SCALAR = re.compile(r'[^\s,:"{}\[\]]+')
# UTF-16 surrogates: an emoji is written as the pair \ud83d\ude00
_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
# an escape sequence; a lone surrogate, which is not valid Unicode, does not match
_ESCAPE = re.compile(rf'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}}|u{_HIGH}\\u{_LOW})')
# the content of a string up to its closing quote or an invalid character
_CONTENT = re.compile(possessive(rf'(?:[^"\\\x00-\x1f]++|{_ESCAPE.pattern})++'))
_PLAIN = re.compile(r'[^"\\<\x00-\x1f]+')  # part of a string in which no call markup can begin
# the content of an object or array up to its next bracket; may contain complete strings
_INSIDE = re.compile(possessive(rf'(?:[^"{{}}\[\]]++|"(?:{_CONTENT.pattern})?+")++'))
# Call markup within a string may mean that the engine's parser has missed the end of the value. So
# the string is held from the markup on. If a line end directly precedes the markup, it is held as
# well.
_ESCAPED_MARKS = ("\\u003c", "\\u003C", "\\uff5c", "\\uFF5C")
_MARK = re.compile(rf"(?:\\n)?(?:{'|'.join(map(re.escape, VALUE_ENDS + _ESCAPED_MARKS))})")
# text at the end of a delta that the next delta may complete to markup: each proper prefix of a
# mark
_BEGINNINGS = sorted({mark[:end] for mark in VALUE_ENDS for end in range(1, len(mark))})
_MARK_BEGINS = re.compile(rf"(?:\\n|(?:\\n)?(?:{'|'.join(map(re.escape, _BEGINNINGS))}))\Z")
_LONGEST_MARK = 2 + max(map(len, VALUE_ENDS))
_LONGEST_ESCAPE = len("\\ud83d\\ude00")
_MOST_LEVELS = 256  # levels of nesting; the JSON parser rejects deeper arguments anyway
_QUOTE = '"'


class ArgumentsGate:
    """Parses the arguments of one call, and releases the part that can no longer change."""

    def __init__(self, members: arguments.Members) -> None:
        self.shown = SentArguments()
        self._members = members
        self._cursor = Cursor()
        self._cursor.begin()  # text after this point is held
        self._out: list[str] = []
        self._reading = self._read()
        self._is_in_string = False  # True within a string that is sent as it arrives
        self._pending = ""  # the end of a string that may be the beginning of call markup
        self._is_over = False

    def feed(self, fragment: str) -> str:
        """Take the next part of the arguments; return the text that may be shown now."""
        if self._is_over:
            return ""
        if self._is_in_string and _PLAIN.fullmatch(fragment):
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
        self._release_held(self._take_held_text())
        while (name := (yield from self._read_key())) is not None:
            cursor.advance(1)
            first = yield from cursor.next_visible()
            if first == _QUOTE and self._members.accepts_any_string(name):
                is_complete = yield from self._show_string(name)
            else:
                is_complete = yield from self._show_value(name, first)
            if not is_complete:
                return
            follows = yield from cursor.next_visible()
            if follows in ",}":
                self.shown.leave_string()
            if follows != ",":
                return
            cursor.advance(1)

    def _read_key(self) -> Waiting[str | None]:
        """Read a key up to its colon; None if it names no parameter, or a repeated one."""
        cursor = self._cursor
        if (yield from cursor.next_visible()) != _QUOTE:
            return None
        start = len(cursor.source())
        if not (yield from self._consume_string()):
            return None
        name = json.parse(cursor.source()[start:])
        is_key = (yield from cursor.next_visible()) == ":" and name not in self.shown.names
        return name if is_key and isinstance(name, str) and self._members.declares(name) else None

    def _show_string(self, name: str) -> Waiting[bool]:
        """Show a string as it arrives; return True at its closing quote, which is not shown yet.

        Returns False at an invalid character or at call markup.
        """
        cursor = self._cursor
        cursor.advance(1)
        self._release_held(self._take_held_text())
        self.shown.begin_string(name)
        while True:
            text = cursor.consume_run(_CONTENT)
            if not text and cursor.is_exhausted:
                self._is_in_string = not self._pending
                yield
                self._is_in_string = False
                continue
            if not text and cursor.starts_with(_QUOTE):
                self._release_string(self._pending)
                self._pending = ""
                cursor.begin()
                cursor.advance(1)
                return True
            text = text or (yield from self._consume_escape())
            if not text or not self._release_string_to_markup(text):
                return False

    def _show_value(self, name: str, first: str) -> Waiting[bool]:
        """Show a value once it is complete and valid; return False if it is invalid."""
        cursor = self._cursor
        text_before = self._take_held_text()
        if first == _QUOTE:
            is_complete = yield from self._consume_string()
        elif first in "{[":
            is_complete = yield from self._consume_container()
        else:
            yield from cursor.take(_SCALAR)
            is_complete = True
        if not is_complete or (yield from cursor.next_visible()) not in ",}":
            return False
        value_text = self._take_held_text()
        if _MARK.search(value_text):
            return False
        try:
            checked = self._members.check(name, json.parse(value_text))
        except ValueError:
            return False
        if checked is None:
            return False
        self._release_held(
            text_before + (json.dump_text(checked.value) if checked.is_changed else value_text)
        )
        self.shown.members[name] = checked.value
        return True

    def _consume_container(self) -> Waiting[bool]:
        depth = 0
        while depth < _MOST_LEVELS:
            yield from self._cursor.take(_INSIDE)
            mark = yield from self._cursor.peek()
            if mark == _QUOTE:
                if not (yield from self._consume_string()):
                    return False
                continue
            depth += 1 if mark in "{[" else -1
            self._cursor.advance(1)
            if depth == 0:
                return True
        return False

    def _consume_string(self) -> Waiting[bool]:
        self._cursor.advance(1)
        while True:
            yield from self._cursor.take(_CONTENT)
            if (yield from self._cursor.literal(_QUOTE)):
                return True
            if not (yield from self._consume_escape()):
                return False

    def _consume_escape(self) -> Waiting[str]:
        """Consume an escape or an escaped surrogate pair, and return it; "" if there is none."""
        while True:
            text, is_all = self._cursor.look_ahead(_LONGEST_ESCAPE)
            if escape := self._cursor.consume_run(_ESCAPE):
                return escape
            if is_all or not text.startswith("\\"):
                return ""
            yield

    def _take_held_text(self) -> str:
        text = self._cursor.source()
        self._cursor.begin()
        return text

    def _release_held(self, text: str) -> None:
        """Show held text. If a string was being shown, the held text proves that it has ended."""
        self.shown.end_string()
        self.shown.add(text)
        self._out.append(text)

    def _release_string_to_markup(self, text: str) -> bool:
        """Show a string up to possible call markup; return False if there certainly is markup."""
        text = self._pending + text
        mark = _MARK.search(text) or _MARK_BEGINS.search(text, max(0, len(text) - _LONGEST_MARK))
        end = len(text) if mark is None else mark.start()
        self._pending = text[end:]
        self._release_string(text[:end])
        return mark is None or mark.re is _MARK_BEGINS

    def _release_string(self, text: str) -> None:
        self.shown.add(text)
        self._out.append(text)


class _CallInProgress(msgspec.Struct):
    """The call that the model is writing, with its arguments so far."""

    index: int
    id: str
    tool: Tool
    arguments: ArgumentsGate
    fragments: list[str] = msgspec.field(default_factory=list)  # of the arguments, as received


class CallGate:
    """Shows the calls of one reply, one after another."""

    def __init__(self, offer: OfferedTools, sent: SentAnswer) -> None:
        self._offer = offer
        self._sent = sent
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
        call.fragments.append(event.text)
        released, shown = call.arguments.feed(event.text), call.arguments.shown
        if released and (open_call := self._sent.open_call) is not None:
            return [ToolCallArgumentsDelta(open_call.index, released)]
        if not (released and shown.names):
            return []
        started = self._sent.start_call(call.id, call.tool.name, shown)
        return [started, ToolCallArgumentsDelta(started.index, shown.text)]

    def _start(self, started: ToolCallStarted) -> list[ReplyEvent]:
        last_events = self._close_previous_call()
        tool = None if last_events is None else self._find_showable_tool(started.name)
        if tool is None:
            self._is_over = True
            return last_events or []
        gate = ArgumentsGate(arguments.Members(tool.parameters))
        self._call = _CallInProgress(started.index, started.id or "", tool, gate)
        return last_events or []

    def _find_showable_tool(self, name: str) -> Tool | None:
        """Return the tool of a call; None if the call has to wait for the verdict."""
        offer = self._offer
        tool = offer.tool_named(name)
        if tool is None or has_markup(name) or not offer.is_free(tool.name):
            return None
        is_surplus = not offer.parallel and self._call is not None
        return None if is_surplus or not offer.may_call(tool.name) else tool

    def _close_previous_call(self) -> list[ReplyEvent] | None:
        """Return the last events of the previous call; None if the verdict has to decide about it.

        The verdict decides if the arguments are invalid, contain call markup, or differ from the
        part that was shown.
        """
        call = self._call
        if call is None:
            return []
        text = "".join(call.fragments)
        checked = arguments.check(call.tool, text)
        if not isinstance(checked, arguments.ValidArguments) or _MARK.search(text):
            return None
        first_events: list[ReplyEvent] = []
        if self._sent.open_call is None:
            first_events.append(self._sent.start_call(call.id, call.tool.name, SentArguments()))
        closing_events = self._sent.close_call(checked.text)
        return None if closing_events is None else [*first_events, *closing_events]
