"""A minimal HTTP client that times the parts of a chat completion.

It inspects the bytes as cheaply as possible, because it shares a core with the backend.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast
from urllib.parse import urlsplit

import httptools

from benchmarks.load.languages import CHAT
from benchmarks.load.replies import STAMP_DIGITS, WORD

# The first delta with content or a call, in the JSON of any server.
_CONTENT = re.compile(
    rb'"content"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{|"text_delta"|"response\.output_text\.delta"'
)
# The end of a stream, or a field of a response that is not streamed.
_WHOLE = re.compile(
    rb'data: \[DONE\]|"chat\.completion"|event: (?:message_stop|response\.completed)'
    rb'|\A\{"id":"(?:msg|resp)_|"done":true'
)
_STAMP = re.compile(rb" (\d{%d})" % STAMP_DIGITS)
_WORD = WORD.encode()
_MOST_REPORTED = 500


AnyConnection = TypeVar("AnyConnection", bound="Connection")


class BrokenOff(Exception):
    """The server closed the connection before the response was complete."""


@dataclass(slots=True)
class Answer:
    """The times (seconds since the request) and counts of a response.

    `gaps` are the seconds between reads after the first content. For tokens with a time stamp,
    `delays` are the seconds from the sending to the arrival; `words` counts all other tokens.
    `beginning` is the start of the body.
    """

    status: int = 0
    first_byte: float = 0.0
    first_content: float = 0.0
    total: float = 0.0
    gaps: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    words: int = 0
    is_whole: bool = False
    beginning: bytes = b""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and its additional request headers."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, body: bytes, path: str = CHAT.path) -> bytes:
        """Write a request, by default for a chat completion."""
        lines = (
            f"POST {path} HTTP/1.1",
            f"Host: {urlsplit(self.url).netloc}",
            "Content-Type: application/json",
            "Authorization: Bearer nobody",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def connect(self) -> "Connection":
        """Open a connection; raises OSError."""
        return await self.connect_as(Connection)

    async def connect_as(self, kind: "Callable[[], AnyConnection]") -> "AnyConnection":
        """Open a connection of this class; raises OSError."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or 80
        _, connection = await asyncio.get_running_loop().create_connection(kind, host, port)
        return connection


class Connection(asyncio.Protocol):
    """A connection that stays open until the server closes it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._finished: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._parts: list[bytes] = []
        self._rest = b""
        self._last = 0.0
        self._is_complete = False
        self._sent = time.monotonic()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def has_begun(self) -> bool:
        """True if a byte of the response to the last request has arrived."""
        return bool(self._answer.first_byte)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def send(self, request: bytes) -> Answer:
        """Send a request and wait for the whole answer; raises BrokenOff."""
        if self._transport is None:
            raise BrokenOff("closed before the request")
        self._begin()
        self._finished = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._finished
        return self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without being of this class
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a pending `send` with BrokenOff."""
        self._transport = None
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(BrokenOff(str(exc or "closed without an answer")))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        answer = self._answer
        if not answer.first_byte:
            answer.first_byte = now - self._sent
        self._parser.feed_data(data)
        if self._parts:
            self._inspect(now)
        if self._is_complete and self._finished is not None and not self._finished.done():
            answer.total = now - self._sent
            self._finished.set_result(None)

    def on_status(self, _reason: bytes) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Store a part of the body until all received data has been parsed."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Mark the response as complete, and close a connection that is not kept alive."""
        self._is_complete = True
        if not self._parser.should_keep_alive():
            self.close()

    def _inspect(self, now: float) -> None:
        """Inspect the complete lines; a partial line is inspected with the next data."""
        text = self._rest + b"".join(self._parts)
        self._parts.clear()
        cut = len(text) if self._is_complete else text.rfind(b"\n") + 1
        lines, self._rest = text[:cut], text[cut:]
        answer = self._answer
        if len(answer.beginning) < _MOST_REPORTED:
            answer.beginning += lines[:_MOST_REPORTED]
        if not answer.first_content:
            if _CONTENT.search(lines):
                answer.first_content = now - self._sent
        else:
            answer.gaps.append(now - self._last)
        self._last = now
        words = lines.count(_WORD)
        answer.words += words
        if not words:
            answer.delays += [now - int(stamp) / 1e6 for stamp in _STAMP.findall(lines)]
        answer.is_whole |= _WHOLE.search(lines) is not None
