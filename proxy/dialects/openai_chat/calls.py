"""The tool calls of a streamed reply, told apart whatever a backend does with indexes and ids."""

from dataclasses import dataclass, field
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ToolCallArgumentsDelta, ToolCallStarted

CallEvent: TypeAlias = ToolCallStarted | ToolCallArgumentsDelta


@dataclass(slots=True)
class _Call:
    """A call that is arriving, numbered by us; its arguments are held until it has a name."""

    index: int
    id: str = ""
    name: str = ""
    held: list[str] = field(default_factory=list)

    def add(self, name: str, arguments: str) -> list[CallEvent]:
        """Read a fragment; a name that comes again is the same name again."""
        if self.name:
            return [ToolCallArgumentsDelta(self.index, arguments)] if arguments else []
        self.name = name
        self.held.append(arguments)
        return self.start() if name else []

    def start(self) -> list[CallEvent]:
        """Announce the call, with what was held."""
        started = ToolCallStarted(self.index, self.id or None, self.name)
        held = "".join(self.held)
        return [started, ToolCallArgumentsDelta(self.index, held)] if held else [started]

    def is_other_than(self, name: str) -> bool:
        """Return whether `name`, at the same place and without an id, begins another call."""
        return bool(name and self.name and not self.id and name != self.name)


@dataclass(slots=True)
class CallsInProgress:
    """Numbers the calls of one reply and turns their fragments into events."""

    _calls: list[_Call] = field(default_factory=list)
    _latest: dict[int, _Call] = field(default_factory=dict)
    _by_id: dict[str, _Call] = field(default_factory=dict)

    def add(self, position: int, fragment: JsonObject) -> list[CallEvent]:
        """Read a fragment, the `position`th in its chunk; raises ValueError for nonsense."""
        function = fragment.get("function") or {}
        if not isinstance(function, dict):
            raise ValueError("the function of a tool call is no object")
        name = _string(function.get("name"))
        call = self._find(position, fragment, name)
        return call.add(name, _arguments(function.get("arguments")))

    def go_on(self, index: int, arguments: list[str]) -> list[ToolCallArgumentsDelta] | None:
        """Read more arguments of a call that was announced; None where it takes a closer look."""
        call = self._latest.get(index)
        if call is None or not call.name:
            return None
        place = call.index
        return [ToolCallArgumentsDelta(place, text) for text in arguments if text]

    def finish(self) -> list[CallEvent]:
        """Announce the calls that never got a name, so that they are judged like all others."""
        return [event for call in self._calls if not call.name for event in call.start()]

    def _find(self, position: int, fragment: JsonObject, name: str) -> _Call:
        number = fragment.get("index")
        call_id = _string(fragment.get("id"))
        key = number if isinstance(number, int) else position
        call = self._latest.get(key)
        if call_id and (number is None or (call is not None and call.id not in {"", call_id})):
            # Some backends number no call, or every call 0: then only ids tell them apart.
            call = self._by_id.get(call_id)
        elif call is not None and not call_id and call.is_other_than(name):
            call = None
        if call is None:
            call = _Call(len(self._calls))
            self._calls.append(call)
        self._latest[key] = call
        if call_id:
            call.id = call_id
            self._by_id[call_id] = call
        return call


def _arguments(value: JsonValue) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dump_text(value)


def _string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
