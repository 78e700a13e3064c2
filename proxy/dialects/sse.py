"""Server-sent events, from bytes and to bytes, at any chunking.

Reads leniently what the WHATWG specification describes and knows nothing of what events carry.
"""

import re
from typing import NamedTuple

from proxy import bounds

MEDIA_TYPE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"

DATA = b"data: "
END_OF_EVENT = b"\n\n"

_BETWEEN = END_OF_EVENT + DATA
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"(?:\A|(?<=[\r\n])):[^\r\n]*(?:\r\n|\n|\r)")
_BLANK_LINES = re.compile(rb"\n{3,}|\r{3,}|(?:\r\n){3,}")


class Event(NamedTuple):
    """One event; `event` is its type, empty where the sender named none."""

    data: str
    event: str = ""


class EventDecoder:
    """Cuts a stream of bytes into events; `limit` bounds one event, in bytes.

    `feed` and `finish` raise ValueError when an event outgrows the limit, and for
    `bounds.IDLE_LINES` lines in a row that belong to no event, such as comments.
    """

    def __init__(self, limit: int = bounds.EVENT_BYTES) -> None:
        self._limit = limit
        self._line_size = 0
        self._data_size = 0
        self._at_start = True
        self._after_carriage_return = False
        self._idle_lines = 0
        self._line: list[bytes] = []
        self._data: list[str] = []
        self._event = ""

    @property
    def is_between(self) -> bool:
        """Whether nothing of an event, nor of the end of its last line, has been read."""
        return not (self._line or self._data or self._event or self._after_carriage_return)

    def feed(self, data: bytes) -> list[Event]:
        if (payloads := self.split_whole(data)) is not None:
            return [Event(payload.decode("utf-8", "replace")) for payload in payloads]
        if self._after_carriage_return and data:
            # The carriage return ended its line at once, so as not to wait for what follows it.
            self._after_carriage_return = False
            data = data.removeprefix(b"\n")
        if data.endswith(b"\r"):
            self._after_carriage_return = True
        events: list[Event] = []
        for piece in self._drop_idle_lines(data).splitlines(keepends=True):
            self._append(piece)
            if piece.endswith((b"\n", b"\r")):
                self._end_line(events)
        if self._idle_lines > bounds.IDLE_LINES and not events:  # these are read first
            self._idle_lines = 0  # the stream may still be finished
            raise ValueError(f"more than {bounds.IDLE_LINES} lines without an event")
        return events

    def _drop_idle_lines(self, data: bytes) -> bytes:
        """Drop most comments and repeated blank lines, which would cost 2 us each."""
        if self._line:
            rest, newline, data = data.partition(b"\n")
            return rest + newline + (self._drop_whole(data) if newline else b"")
        return self._drop_whole(data)

    def _drop_whole(self, data: bytes) -> bytes:
        kept, count = _COMMENT.subn(b"", data)
        self._idle_lines += count
        return _BLANK_LINES.sub(_two_ends, kept)

    def split_whole(self, data: bytes) -> list[bytes] | None:
        """Cut what nearly all senders nearly always send: whole events of one line of data.

        None for anything else, of which nothing is read.
        """
        if not (data.startswith(DATA) and data.endswith(END_OF_EVENT)) or len(data) > self._limit:
            return None
        if self._line or self._data or self._event or b"\r" in data:
            return None
        payloads = data[len(DATA) : -2].split(_BETWEEN)
        if b"\n" in b"".join(payloads):  # some event has more than one line
            return None
        self._at_start = self._after_carriage_return = False
        return payloads

    def finish(self) -> list[Event]:
        """Return the event that the end of the stream completes, if there is one."""
        events: list[Event] = []
        self._end_line(events)
        self._dispatch(events)
        return events

    def _append(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_size += len(piece)
        if self._line_size + self._data_size > self._limit:
            raise ValueError(f"an event is longer than {self._limit} bytes")

    def _end_line(self, events: list[Event]) -> None:
        # Only a whole line is decoded: a chunk may end in the middle of a character.
        line = b"".join(self._line).rstrip(b"\r\n")
        self._line.clear()
        self._line_size = 0
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            self._dispatch(events)
        elif not self._read_field(line.decode("utf-8", "replace")):
            self._idle_lines += 1

    def _read_field(self, line: str) -> bool:
        """Read a line; returns whether it belongs to an event that has data."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "error":
            # Not in the specification: older llama-servers report a failure in such a field.
            self._event = "error"
        if name in {"data", "error"}:
            self._data.append(value)
            self._data_size += len(line)
            return True
        return False

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event("\n".join(self._data), self._event))
            self._idle_lines = 0
        else:
            self._idle_lines += 1
        self._data.clear()
        self._data_size = 0
        self._event = ""


def _two_ends(run: re.Match[bytes]) -> bytes:
    """Return two of the line ends of a run of them: one ends a line, one an event."""
    return run[0][: 4 if run[0].startswith(b"\r\n") else 2]


def encode_data(payload: bytes) -> bytes:
    """Write an event with `payload`, UTF-8, as its data."""
    return DATA + _indent(payload, DATA) + END_OF_EVENT


def encode_comment(text: str) -> bytes:
    """Write a comment, which every client skips."""
    return b": " + _indent(text.encode(), b": ") + END_OF_EVENT


def _indent(payload: bytes, prefix: bytes) -> bytes:
    if b"\n" not in payload and b"\r" not in payload:
        return payload
    lines = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return (b"\n" + prefix).join(lines)
