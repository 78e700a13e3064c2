"""Server-sent events: a decoder for streams whose segments may end anywhere, and an encoder.

    event: ping
    data: {"a":1}
    -> Event('{"a":1}', "ping")

Decoding follows the WHATWG specification leniently and does not interpret the data.
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
    """One event; `event` is its type, "" if it has none."""

    data: str
    event: str = ""


class EventDecoder:
    """Splits a byte stream into events of at most `limit` bytes.

    `feed` and `finish` raise ValueError for a longer event. `feed` also raises ValueError if more
    than `bounds.IDLE_LINES` lines in a row, such as comments, belong to no event.
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
    def is_between_events(self) -> bool:
        """True if no part of the next event has been read."""
        return not (self._line or self._data or self._event or self._after_carriage_return)

    def feed(self, data: bytes) -> list[Event]:
        if (payloads := self.split_complete(data)) is not None:
            return [Event(payload.decode("utf-8", "replace")) for payload in payloads]
        if self._after_carriage_return and data:
            # A line ends at its carriage return; a line feed after it belongs to the same line end.
            self._after_carriage_return = False
            data = data.removeprefix(b"\n")
        if data.endswith(b"\r"):
            self._after_carriage_return = True
        events: list[Event] = []
        for part in self._drop_idle_lines(data).splitlines(keepends=True):
            self._append(part)
            if part.endswith((b"\n", b"\r")):
                self._end_line(events)
        # if there are complete events, they are returned first, and a later call raises the error
        if self._idle_lines > bounds.IDLE_LINES and not events:
            self._idle_lines = 0  # the stream may still be finished
            raise ValueError(f"more than {bounds.IDLE_LINES} lines without an event")
        return events

    def _drop_idle_lines(self, data: bytes) -> bytes:
        """Drop most comments and repeated blank lines, because reading each line costs 2 us."""
        if self._line:
            line_end, newline, data = data.partition(b"\n")
            return line_end + newline + (self._drop_complete(data) if newline else b"")
        return self._drop_complete(data)

    def _drop_complete(self, data: bytes) -> bytes:
        # a colon begins a comment only at the start of a line, and `data` begins at such a start
        remaining, count = _COMMENT.subn(b"", data)
        self._idle_lines += count
        return _BLANK_LINES.sub(_two_ends, remaining)

    def split_complete(self, data: bytes) -> list[bytes] | None:
        """Split a usual segment: complete events with one line of data each.

        Returns None for any other segment, and does not consume it.
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
        """Return the last event, if the stream ended without the blank line after it."""
        events: list[Event] = []
        self._end_line(events)
        self._dispatch(events)
        return events

    def _append(self, part: bytes) -> None:
        self._line.append(part)
        self._line_size += len(part)
        if self._line_size + self._data_size > self._limit:
            raise ValueError(f"an event is longer than {self._limit} bytes")

    def _end_line(self, events: list[Event]) -> None:
        # Only whole lines are decoded, because a segment may end in the middle of a character.
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
        """Read a line; return whether the line belongs to an event with data."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "error":
            # This field is not in the specification; older llama-servers report failures in it.
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
    """Shorten a run of line ends to two: the first ends a line, and the second ends an event."""
    return run[0][: 4 if run[0].startswith(b"\r\n") else 2]


def encode_data(payload: bytes) -> bytes:
    """Encode an event with `payload` (UTF-8) as its data."""
    return DATA + _indent(payload, DATA) + END_OF_EVENT


def encode_comment(text: str) -> bytes:
    """Encode a comment, which every client skips."""
    return b": " + _indent(text.encode(), b": ") + END_OF_EVENT


def _indent(payload: bytes, prefix: bytes) -> bytes:
    if b"\n" not in payload and b"\r" not in payload:
        return payload
    lines = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return (b"\n" + prefix).join(lines)
