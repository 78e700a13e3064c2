"""A mock llama-server that needs little CPU time, so that it does not limit a measurement.

It serves `/health`, `/props`, `/v1/models` and `/v1/chat/completions`; a mark in the request
selects the reply (see `replies`). It records the requests for healthy replies in a ledger;
`/requests` returns and clears this ledger.
"""

import asyncio
import socket
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import httptools
import msgspec

from benchmarks.healthy import replies as healthy
from benchmarks.healthy.ledger import Ledger, ReceivedRequest
from benchmarks.load.replies import (
    CREATED,
    MODEL,
    RESPOND,
    STAMP,
    STAMP_DIGITS,
    Behavior,
    Event,
    Reply,
    behavior_of,
    mark_in,
    streamed,
    whole,
)
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.demo.chat_template import chat_template

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_LAST_CHUNK = b"0\r\n\r\n"
_HEALTHY = healthy.PREFIX.encode()
DOCUMENTS: dict[bytes, JsonObject] = {
    b"/health": {"status": "ok"},
    b"/props": {
        "default_generation_settings": {"n_ctx": 1048576},
        "total_slots": 256,
        "model_alias": MODEL,
        "model_path": MODEL,
        "chat_template": chat_template(thinking=False),
    },
    b"/v1/models": {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": CREATED, "owned_by": "llamacpp"}],
    },
}


class _Function(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    function: _Function


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Request(msgspec.Struct):
    """The members of a request that the response depends on."""

    stream: bool | None = False
    tools: list[_Tool] | None = None
    stream_options: _StreamOptions | None = None

    @property
    def offers_respond(self) -> bool:
        return any(tool.function.name == RESPOND for tool in self.tools or ())

    @property
    def has_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


_read = msgspec.json.Decoder(_Request)


class Connection(asyncio.Protocol):
    """A client's connection, with one request at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._received: ReceivedRequest | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without being of this class
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url
        self._body.clear()

    def on_body(self, body: bytes) -> None:
        """Store a part of the request's body."""
        self._body.append(body)

    @property
    def is_chat(self) -> bool:
        return self._url.endswith(b"/chat/completions")

    def on_message_complete(self) -> None:
        """Answer the request."""
        if self.is_chat:
            self._answer(b"".join(self._body))
        elif self._url == b"/requests":
            self._write(_with_head(b"200 OK", self._ledger.dump_and_clear()))
        elif (document := DOCUMENTS.get(self._url)) is not None:
            self._write(_document(document))
        else:
            self._write(_error_response(404, f"there is no {self._url.decode()}"))

    def _answer(self, body: bytes) -> None:
        self._received = None
        try:
            request, mark_text = _read.decode(body), mark_in(body)
            if mark_text.startswith(_HEALTHY):
                self._answer_healthy(request, healthy.read_choice(mark_text), body)
                return
            behavior = behavior_of(mark_text)
        except ValueError as error:
            self._write(_error_response(400, str(error)))
            return
        responds = behavior.kind == "prose" and request.offers_respond
        if request.stream:
            self._send_stream(
                _render_stream(behavior, responds=responds, has_usage=request.has_usage)
            )
        else:
            self._answer_whole(behavior, whole(behavior, responds=responds))

    def _answer_healthy(self, request: _Request, choice: healthy.ReplyChoice, body: bytes) -> None:
        """Send the healthy reply; a repeated request gets the reply to a retry."""
        self._received, is_repeated = self._ledger.note(choice.id, body)
        reply = healthy.KINDS[choice.kind](choice.number)
        if is_repeated and not reply.calls:
            reply = healthy.call_after_retry(choice.number)
        calls_respond = (
            choice.kind == healthy.RESPONDING and request.offers_respond and not reply.calls
        )
        responds = RESPOND if calls_respond else ""
        if request.stream:
            rendered = healthy.streamed(reply, responds=responds, has_usage=request.has_usage)
            self._send_stream(_timed_stream(rendered, choice.delay_ms))
            return
        answer = _with_head(b"200 OK", healthy.whole(reply, responds=responds))
        seconds = choice.delay_ms * len(reply.deltas) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._write, answer)

    def _send_stream(self, stream: "TimedStream") -> None:
        self._write(stream.start)
        if stream.tokens:
            now = asyncio.get_running_loop().time()
            self._continue(stream, 0, now + stream.delay)

    def _answer_whole(self, behavior: Behavior, body: bytes) -> None:
        """Send a response that is not streamed, after the time that a model would need."""
        if not behavior.delay_ms:
            self._write(_with_head(b"200 OK", body))
            return
        now, delay = time.monotonic_ns() // 1000, behavior.delay_ms * 1000
        stamps = tuple(int(now + delay * number) for number in range(1, body.count(STAMP) + 1))
        answer = _with_head(b"200 OK", body % stamps)
        seconds = delay * behavior.tokens / 1e6
        self._timer = asyncio.get_running_loop().call_later(seconds, self._write, answer)

    def _continue(self, stream: "TimedStream", index: int, due: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(due, self._send_token, stream, index, due)

    def _send_token(self, stream: "TimedStream", index: int, due: float) -> None:
        """Send a token when it is due; if it is late, the later tokens are still sent on time."""
        event = stream.tokens[index]
        if self._received is not None:
            self._received.sent.append(time.monotonic())
        if event.after:
            stamp = STAMP % (time.monotonic_ns() // 1000)
            self._write(event.before + stamp + event.after)
        else:
            self._write(event.before)
        if index + 1 < len(stream.tokens):
            self._continue(stream, index + 1, due + stream.delay)

    def _write(self, raw: bytes) -> None:
        if self._transport is not None:
            self._transport.write(raw)


@dataclass(frozen=True, slots=True)
class TimedStream:
    """The bytes of a response: the start, then tokens that are sent every `delay` seconds."""

    start: bytes
    tokens: tuple[Event, ...] = ()
    delay: float = 0.0


@lru_cache
def _render_stream(behavior: Behavior, *, responds: bool, has_usage: bool) -> TimedStream:
    rendered = streamed(behavior, responds=responds, has_usage=has_usage)
    return _timed_stream(rendered, behavior.delay_ms)


def _timed_stream(reply: Reply, delay_ms: float) -> TimedStream:
    start = _STREAM_HEAD + b"".join(map(_frame, reply.start))
    end = b"".join(map(_frame, reply.end)) + _LAST_CHUNK
    if not delay_ms:
        everything = b"".join(_frame(event.before) for event in reply.tokens)
        return TimedStream(start + everything + end)
    tokens = [_frame_event(event) for event in reply.tokens]
    return TimedStream(start, (*tokens, Event(end)), delay_ms / 1000)


def _frame(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


def _frame_event(event: Event) -> Event:
    if not event.after:
        return Event(_frame(event.before))
    length = len(event.before) + STAMP_DIGITS + len(event.after)
    return Event(b"%x\r\n%s" % (length, event.before), event.after + b"\r\n")


def _document(value: JsonValue) -> bytes:
    return _with_head(b"200 OK", json.dump(value))


def _error_response(status: int, message: str) -> bytes:
    error: JsonObject = {"code": status, "message": message, "type": "invalid_request_error"}
    return _with_head(b"%d Refused" % status, json.dump({"error": error}))


def _with_head(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %s\r\nServer: llama.cpp\r\nContent-Type: application/json\r\n" % status
    return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


async def start(port: int) -> asyncio.Server:
    """Listen on a local port; 0 selects a free port."""
    listening = socket.create_server(("127.0.0.1", port), backlog=1024)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ledger = Ledger()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(ledger), sock=listening)


async def serve(port: int) -> None:
    server = await start(port)
    await server.serve_forever()
