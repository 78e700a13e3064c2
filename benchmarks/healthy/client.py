"""A client that records every byte of a response with its arrival time, and parses it afterwards.

Parsing while the response arrives would add to the measured times.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from benchmarks.load.client import Answer, Connection

_DATA, _DONE = b"data: ", b"data: [DONE]"


class Recording(Connection):
    """A connection that records the received bytes with their arrival times."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self.pieces = []

    def _inspect(self, now: float) -> None:
        self.pieces.append((now - self._sent, b"".join(self._parts)))
        self._parts.clear()

    @property
    def sent_at(self) -> float:
        """The time of the last request, on the monotonic clock that all processes share."""
        return self._sent


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: dict[str, object] | None = None
    error: dict[str, object] | None = None


_read = msgspec.json.Decoder(_Chunk)


Content: TypeAlias = tuple[int, str, list[tuple[str, str]], str | None, dict[str, object] | None]


@dataclass(slots=True)
class ClientResponse:
    """A response by channel, with the arrival times.

    The channels are "text", and for call 0 "name 0", "id 0" and "arguments 0". For each channel,
    `arrived` is a list with an entry for each read: the number of characters so far, and the
    seconds since the request.
    """

    status: int = 0
    parts: list[tuple[str, str]] = field(default_factory=list)
    reason: str | None = None
    usage: dict[str, object] | None = None
    problem: str = ""
    arrived: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    total: float = 0.0
    sent_at: float = 0.0

    @property
    def content(self) -> Content:
        """The parts of a response that must be equal with and without Temper."""
        return self.status, self.problem, self.parts, self.reason, self.usage

    def first(self, channel: str) -> float | None:
        """Return the time of the first character on channels whose names begin with `channel`."""
        times = (steps[0][1] for name, steps in self.arrived.items() if name.startswith(channel))
        return min(times, default=None)

    def add(self, channel: str, text: str | None, now: float) -> None:
        if not text:
            return
        if self.parts and self.parts[-1][0] == channel:
            self.parts[-1] = (channel, self.parts[-1][1] + text)
        else:
            self.parts.append((channel, text))
        steps = self.arrived.setdefault(channel, [])
        steps.append(((steps[-1][0] if steps else 0) + len(text), now))

    def read(self, document: bytes, now: float) -> None:
        """Read a chunk, or a completion that is not streamed; raises ValueError."""
        chunk = _read.decode(document)
        self.usage = chunk.usage or self.usage
        if chunk.error is not None:
            self.problem = f"an error: {chunk.error}"
        for choice in chunk.choices:
            message = choice.delta or choice.message or _Message()
            self.add("text", message.content, now)
            for position, call in enumerate(message.tool_calls or ()):
                index = position if call.index is None else call.index
                self.add(f"name {index}", call.function.name, now)
                self.add(f"id {index}", call.id, now)
                self.add(f"arguments {index}", call.function.arguments, now)
            self.reason = choice.finish_reason or self.reason


def read_answer(connection: Recording, answer: Answer) -> ClientResponse:
    """Read the response that a connection has received, whole or streamed."""
    response = ClientResponse(answer.status, total=answer.total, sent_at=connection.sent_at)
    whole = b"".join(piece for _, piece in connection.pieces)
    try:
        if whole.startswith(b"{"):
            response.read(whole, answer.total)
        else:
            for now, event in _events(connection.pieces):
                response.read(event, now)
    except ValueError as error:
        response.problem = f"status {answer.status}, unreadable: {error}"
    return response


def _events(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yield each event's data with the arrival time of its last byte; raises ValueError."""
    rest = last = b""
    for now, piece in pieces:
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            last = event
            if event.startswith(_DATA) and event != _DONE:
                yield now, event.removeprefix(_DATA)
    if rest or last != _DONE:
        raise ValueError(f"the stream ends with {(rest or last)[-100:]!r}")
