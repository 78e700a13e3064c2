"""The part of an answer that the client has received, and the calls that can continue it.

Shown content is never retracted. Text can only grow. An open call can only be completed, by a call
that begins with the shown part.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall

_PATTERN_OPERATORS = re.compile(r"[][(){}.*+?^$|]")
# A pattern for any further characters of a string. It includes escapes, because a grammar matches
# the pattern against the JSON text.
_MORE_CHARACTERS = r'([^"\\]|\\["\\/bfnrt])*'


class SentArguments:
    """The shown arguments of one call: complete `members`, then possibly part of a string."""

    def __init__(self) -> None:
        self.members: JsonObject = {}
        self._text: list[str] = []
        self._string_name: str | None = None
        self._string_at = 0  # index in `_text` at which the string begins
        self._is_string_over = False

    @property
    def text(self) -> str:
        """All text shown so far: the beginning of a JSON object."""
        return "".join(self._text)

    @property
    def names(self) -> tuple[str, ...]:
        open_member = () if self._string_name is None else (self._string_name,)
        return (*self.members, *open_member)

    def add(self, text: str) -> None:
        """Add shown text. It must not end in the middle of an escape sequence."""
        self._text.append(text)

    def begin_string(self, name: str) -> None:
        self._string_name = name
        self._string_at = len(self._text)
        self._is_string_over = False

    def leave_string(self) -> None:
        """Record that the model ended the string, and that the closing quote was not shown."""
        self._is_string_over = True

    def end_string(self) -> None:
        """Record that the string in progress, if there is one, was shown completely."""
        if self._string_name is not None:
            self.members[self._string_name] = self._string_value
        self._string_name = None

    def bind(self) -> JsonObject:
        """Return a schema for each shown member, for the call of a later attempt.

        {"a": 1, "b": "x   ->   {"a": {"const": 1}, "b": {"type": "string", "pattern": "^x..."}}
        """
        bound: JsonObject = {name: {"const": value} for name, value in self.members.items()}
        if self._string_name is not None:
            value = self._string_value
            bound[self._string_name] = (
                {"const": value} if self._is_string_over else _prefix_schema(value)
            )
        return bound

    @property
    def _string_value(self) -> str:
        literal = "".join(self._text[self._string_at :])
        value = json.parse(f'"{literal}"')
        return value if isinstance(value, str) else ""

    def missing_part(self, arguments: str) -> str | None:
        """Return the text that completes the shown text to these arguments; None if impossible.

        If `arguments` begins with the shown text, the result is the remaining part of `arguments`.
        Otherwise the members that were not shown are written as new JSON, to follow the shown
        members.
        """
        text = self.text
        if arguments.startswith(text):  # false for repaired calls and later attempts
            return arguments[len(text) :]
        value = json.parse(arguments)
        if not isinstance(value, dict) or not self._is_continued_by(value):
            return None
        return self._write_missing_part(value)

    def _is_continued_by(self, value: JsonObject) -> bool:
        if any(name not in value for name in self.members):
            return False
        same_members = {name: value[name] for name in self.members}
        if json.dump(same_members) != json.dump(self.members):  # in Python, 1 == True == 1.0
            return False
        if self._string_name is None:
            return True
        string = value.get(self._string_name)
        return isinstance(string, str) and string.startswith(self._string_value)

    def _write_missing_part(self, value: JsonObject) -> str:
        text = "" if self._text else "{"
        shown = self.names
        if self._string_name is not None:
            string = value[self._string_name]
            missing = string[len(self._string_value) :] if isinstance(string, str) else ""
            text = json.dump_text(missing)[1:]
        unseen: JsonObject = {name: member for name, member in value.items() if name not in shown}
        if shown and unseen:
            text += ","
        return text + json.dump_text(unseen)[1:]


def _prefix_schema(value: str) -> JsonObject:
    """Return a schema of strings that begin with `value`.

    The schema accepts any string if `value` is escaped in JSON: a grammar matches a pattern against
    the JSON text, in which escapes can be written in several ways.
    """
    if not value or json.dump_text(value) != f'"{value}"':
        return {"type": "string"}
    pattern = _PATTERN_OPERATORS.sub(r"\\\g<0>", value)
    return {"type": "string", "pattern": f"^{pattern}{_MORE_CHARACTERS}$"}


@dataclass(slots=True)
class PartialCall:
    """A call whose name and first arguments the client has received."""

    index: int
    id: str
    name: str
    arguments: SentArguments


class SentAnswer:
    """The beginning of an answer: text, complete calls, and at most one open call."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self.has_reasoned = False
        self.calls: list[ToolCall] = []
        self.open_call: PartialCall | None = None

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def has_calls(self) -> bool:
        """Whether the client has seen a call or part of one."""
        return bool(self.calls) or self.open_call is not None

    @property
    def call_ids(self) -> list[str]:
        open_id = [] if self.open_call is None else [self.open_call.id]
        return [*(call.id for call in self.calls), *open_id]

    @property
    def is_begun(self) -> bool:
        """Whether the client has received text or a call. The answer then has to begin with it."""
        return bool(self._text) or self.has_calls

    def show_text(self, text: str) -> list[ReplyEvent]:
        if not text:
            return []
        self._text.append(text)
        return [TextDelta(text)]

    def start_call(self, call_id: str, name: str, arguments: SentArguments) -> ToolCallStarted:
        self.open_call = PartialCall(len(self.calls), call_id, name, arguments)
        return ToolCallStarted(self.open_call.index, call_id, name)

    def close_call(self, arguments: str) -> list[ReplyEvent] | None:
        """Complete the open call; None if `arguments` do not begin with the shown part."""
        call = self.open_call
        missing = None if call is None else call.arguments.missing_part(arguments)
        if call is None or missing is None:
            return None
        self.open_call = None
        self.calls.append(ToolCall(call.id, call.name, arguments))
        return [ToolCallArgumentsDelta(call.index, missing)] if missing else []

    def admits(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether no call is open, or one of the calls completes the open call."""
        return self.open_call is None or self._continuation(self._unseen(calls)) is not None

    def complete_calls(self, calls: Sequence[ToolCall]) -> list[ReplyEvent]:
        """Show the part of these calls that the client has not seen."""
        unseen = self._unseen(calls)
        continued = self._continuation(unseen)
        shown: list[ReplyEvent] = []
        if continued is not None:
            unseen.remove(continued)
            shown += self.close_call(continued.arguments) or []
        for call in unseen:
            shown.append(ToolCalled(len(self.calls), call))
            self.calls.append(call)
        return shown

    def _continuation(self, calls: Sequence[ToolCall]) -> ToolCall | None:
        open_call = self.open_call
        if open_call is None:
            return None
        fitting = [
            call
            for call in calls
            if call.name == open_call.name
            and open_call.arguments.missing_part(call.arguments) is not None
        ]
        # Prefer the call with the same id. In a constrained attempt no call has the same id,
        # because the call arrives as text.
        return min(fitting, key=lambda call: call.id != open_call.id, default=None)

    def _unseen(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that were not shown yet; of two equal calls, one may be left."""
        unseen = list(calls)
        for shown in self.calls:
            same = [call for call in unseen if call.id == shown.id]
            same = same or [call for call in unseen if _identify(call) == _identify(shown)]
            if same:
                unseen.remove(same[0])
        return unseen


def _identify(call: ToolCall) -> tuple[str, bytes]:
    return call.name, json.dump(json.parse(call.arguments))
