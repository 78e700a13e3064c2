"""What the client has seen of an answer, whichever attempt it came from, and what may follow it.

What was shown is never taken back. So text can only be added to, and a call that is open can only
be closed as a call that begins with what was shown.
"""

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

_MOST_QUOTED = 400  # characters of what was shown that a nudge repeats


class SentArguments:
    """What the client has of one call's arguments: whole `members`, and perhaps half a string."""

    def __init__(self) -> None:
        self.members: JsonObject = {}
        self._text: list[str] = []
        self._string_name: str | None = None
        self._string: list[str] = []

    @property
    def text(self) -> str:
        """Everything shown so far: the beginning of a JSON object."""
        return "".join(self._text)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of which something was shown, in order."""
        begun = () if self._string_name is None else (self._string_name,)
        return (*self.members, *begun)

    @property
    def beginning(self) -> str:
        """What was shown, if it is short enough to be said again."""
        text = self.text
        return text if len(text) <= _MOST_QUOTED else ""

    def add(self, text: str) -> None:
        self._text.append(text)

    def add_to_string(self, text: str) -> None:
        """Take note of more of the string that is being shown; escapes are whole."""
        self._text.append(text)
        self._string.append(text)

    def begin_string(self, name: str) -> None:
        """Take note that the string of this parameter begins."""
        self._string_name = name
        self._string.clear()

    def end_string(self) -> None:
        """Take note that the string, if one was being shown, proved to be whole."""
        if self._string_name is not None:
            self.members[self._string_name] = self._string_value
        self._string_name = None

    @property
    def _string_value(self) -> str:
        written = "".join(self._string)
        value = json.parse(f'"{written}"')
        return value if isinstance(value, str) else ""

    def rest(self, arguments: str) -> str | None:
        """Return what is missing of finished arguments; None where these are no continuation.

        The text is the model's own where that begins with what was shown. Else the same value is
        written on from there.
        """
        text = self.text
        if arguments.startswith(text):
            return arguments[len(text) :]
        value = json.parse(arguments)
        if not isinstance(value, dict) or not self._is_continued_by(value):
            return None
        return self._write_rest(value)

    def _is_continued_by(self, value: JsonObject) -> bool:
        if any(name not in value for name in self.members):
            return False
        kept = {name: value[name] for name in self.members}
        if json.dump(kept) != json.dump(self.members):  # 1 is not true, nor 1.0
            return False
        if self._string_name is None:
            return True
        string = value.get(self._string_name)
        return isinstance(string, str) and string.startswith(self._string_value)

    def _write_rest(self, value: JsonObject) -> str:
        written = ""
        shown = set(self.names)
        if self._string_name is not None:
            string = value[self._string_name]
            left = string[len(self._string_value) :] if isinstance(string, str) else ""
            written = json.dump_text(left)[1:]
        members = [
            f"{json.dump_text(name)}:{json.dump_text(member)}"
            for name, member in value.items()
            if name not in shown
        ]
        if self._text and shown and members:
            written += ","
        opening = "" if self._text else "{"
        return f"{opening}{written}{','.join(members)}}}"


@dataclass(slots=True)
class PartialCall:
    """A call of which the client has seen the name, and a beginning of the arguments."""

    index: int
    id: str
    name: str
    arguments: SentArguments


class SentAnswer:
    """The beginning of an answer: text, whole calls, and at most one call that is still open."""

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
        """Whether the client has seen a call, or a part of one."""
        return bool(self.calls) or self.open_call is not None

    @property
    def call_ids(self) -> list[str]:
        begun = [] if self.open_call is None else [self.open_call.id]
        return [*(call.id for call in self.calls), *begun]

    @property
    def is_begun(self) -> bool:
        """Whether the client has seen anything that commits to an answer."""
        return bool(self._text) or self.has_calls

    def show_text(self, text: str) -> list[ReplyEvent]:
        if not text:
            return []
        self._text.append(text)
        return [TextDelta(text)]

    def start_call(self, call_id: str, name: str, arguments: SentArguments) -> ReplyEvent:
        self.open_call = PartialCall(len(self.calls), call_id, name, arguments)
        return ToolCallStarted(self.open_call.index, call_id, name)

    def close_call(self, arguments: str) -> list[ReplyEvent] | None:
        """End the open call as one with these arguments; None if that is no continuation."""
        call = self.open_call
        rest = None if call is None else call.arguments.rest(arguments)
        if call is None or rest is None:
            return None
        self.open_call = None
        self.calls.append(ToolCall(call.id, call.name, arguments))
        return [ToolCallArgumentsDelta(call.index, rest)] if rest else []

    def admits(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether an answer with these calls goes on where the client stands."""
        return self.open_call is None or self._continuation(self._unseen(calls)) is not None

    def complete_calls(self, calls: Sequence[ToolCall]) -> list[ReplyEvent]:
        """Show what is missing of these calls; those that were shown are not repeated."""
        left = self._unseen(calls)
        found = self._continuation(left)
        shown: list[ReplyEvent] = []
        if found is not None:
            left.remove(found)
            shown += self.close_call(found.arguments) or []
        for call in left:
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
            if call.name == open_call.name and open_call.arguments.rest(call.arguments) is not None
        ]
        return next(
            (call for call in fitting if call.id == open_call.id), next(iter(fitting), None)
        )

    def _unseen(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Leave out the calls that were shown whole, each as often as it was shown."""
        left = list(calls)
        for shown in self.calls:
            same = [call for call in left if call.id == shown.id] or [
                call for call in left if _is_same(call, shown)
            ]
            if same:
                left.remove(same[0])
        return left


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and _normal(one.arguments) == _normal(other.arguments)


def _normal(arguments: str) -> bytes:
    return json.dump(json.parse(arguments))
