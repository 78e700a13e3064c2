"""A mock llama-server, as cheap as Python allows: it must never be what limits a measurement.

It answers `/health`, `/props`, `/v1/models` and `/v1/chat/completions`; how, is up to a mark in the
request, see `replies`.
"""

import asyncio
import socket
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import httptools
import msgspec

from benchmarks.load.replies import (
    CREATED,
    MODEL,
    RESPOND,
    STAMP,
    STAMP_DIGITS,
    Behaviour,
    Event,
    behaviour_of,
    streamed,
    whole,
    wish_of,
)
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.demo.chat_template import chat_template

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_LAST_CHUNK = b"0\r\n\r\n"
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
    """The few members of a request that decide the answer."""

    stream: bool | None = False
    tools: list[_Tool] | None = None
    stream_options: _StreamOptions | None = None


_read = msgspec.json.Decoder(_Request)


class _Connection(asyncio.Protocol):
    """One client's connection, on which requests come one after the other."""

    def __init__(self) -> None:
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
        """Begin a request."""
        self._url = url
        self._body.clear()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the request's body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Answer the request, which is complete."""
        if self._url.endswith(b"/chat/completions"):
            self._answer(b"".join(self._body))
        elif (document := DOCUMENTS.get(self._url)) is not None:
            self._write(_document(document))
        else:
            self._write(_refusal(404, f"there is no {self._url.decode()}"))

    def _answer(self, body: bytes) -> None:
        try:
            asked = _read.decode(body)
            behaviour = behaviour_of(wish_of(body))
        except ValueError as error:
            self._write(_refusal(400, str(error)))
            return
        offered = (tool.function.name for tool in asked.tools or ())
        responds = behaviour.kind == "prose" and RESPOND in offered
        if not asked.stream:
            self._answer_whole(behaviour, whole(behaviour, responds=responds))
            return
        options = asked.stream_options
        has_usage = options is not None and options.include_usage
        speech = _speech(behaviour, responds=responds, has_usage=has_usage)
        self._write(speech.start)
        if speech.tokens:
            now = asyncio.get_running_loop().time()
            self._continue(speech, 0, now + speech.delay)

    def _answer_whole(self, behaviour: Behaviour, body: bytes) -> None:
        """Answer in one piece, as late as a model is that has to write it first."""
        if not behaviour.delay_ms:
            self._write(_headed(b"200 OK", body))
            return
        now, delay = time.monotonic_ns() // 1000, behaviour.delay_ms * 1000
        stamps = tuple(int(now + delay * place) for place in range(1, body.count(STAMP) + 1))
        answer = _headed(b"200 OK", body % stamps)
        seconds = delay * behaviour.tokens / 1e6
        self._timer = asyncio.get_running_loop().call_later(seconds, self._write, answer)

    def _continue(self, speech: "_Speech", place: int, due: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(due, self._say, speech, place, due)

    def _say(self, speech: "_Speech", place: int, due: float) -> None:
        """Send the token that is due; a late one does not put off those behind it."""
        event = speech.tokens[place]
        if event.after:
            stamp = STAMP % (time.monotonic_ns() // 1000)
            self._write(event.before + stamp + event.after)
        else:
            self._write(event.before)
        if place + 1 < len(speech.tokens):
            self._continue(speech, place + 1, due + speech.delay)

    def _write(self, raw: bytes) -> None:
        if self._transport is not None:
            self._transport.write(raw)


@dataclass(frozen=True, slots=True)
class _Speech:
    """The bytes of an answer: what is sent at once, and what follows, `delay` seconds apart."""

    start: bytes
    tokens: tuple[Event, ...] = ()
    delay: float = 0.0


@lru_cache
def _speech(behaviour: Behaviour, *, responds: bool, has_usage: bool) -> _Speech:
    reply = streamed(behaviour, responds=responds, has_usage=has_usage)
    start = _STREAM_HEAD + b"".join(map(_framed, reply.start))
    end = b"".join(map(_framed, reply.end)) + _LAST_CHUNK
    if not behaviour.delay_ms:
        everything = b"".join(_framed(event.before) for event in reply.tokens)
        return _Speech(start + everything + end)
    tokens = [_framed_event(event) for event in reply.tokens]
    return _Speech(start, (*tokens, Event(end)), behaviour.delay_ms / 1000)


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


def _framed_event(event: Event) -> Event:
    if not event.after:
        return Event(_framed(event.before))
    length = len(event.before) + STAMP_DIGITS + len(event.after)
    return Event(b"%x\r\n%s" % (length, event.before), event.after + b"\r\n")


def _document(value: JsonValue) -> bytes:
    return _headed(b"200 OK", json.dump(value))


def _refusal(status: int, message: str) -> bytes:
    error: JsonObject = {"code": status, "message": message, "type": "invalid_request_error"}
    return _headed(b"%d Refused" % status, json.dump({"error": error}))


def _headed(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %s\r\nServer: llama.cpp\r\nContent-Type: application/json\r\n" % status
    return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


async def start(port: int) -> asyncio.Server:
    """Listen on a port of this machine; 0 takes a free one."""
    listening = socket.create_server(("127.0.0.1", port), backlog=1024)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return await asyncio.get_running_loop().create_server(_Connection, sock=listening)


async def serve(port: int) -> None:
    """Serve until cancelled."""
    server = await start(port)
    await server.serve_forever()
