"""Reads an HTTP request: its body, its sender, and the headers to send to the backend."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from proxy import bounds
from proxy.api.client_connection import ClientConnection, headers_of
from proxy.api.compressed_bodies import HEADER
from proxy.dialects.dialect import Client
from proxy.errors import InvalidRequest, NotJson, RequestTimedOut, RequestTooLarge
from proxy.observability.live_request import BoardLink, LiveRequest
from proxy.observability.observers import Observers
from proxy.observability.record import CHAT_DIALECT, CLIENT_LEFT
from proxy.observability.trace_context import state_of, trace_of
from proxy.serving.request_preparation import takes_long

Decoded = TypeVar("Decoded")

# one of these is in every POST that a page has a browser send elsewhere
_BROWSERS = frozenset({"origin", "referer", "sec-fetch-site", "sec-fetch-mode"})

# the only headers of a client that a backend ever sees
_TRAVELLING = ("authorization", "traceparent")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The largest body in bytes, and how many seconds it may take to arrive.

    With `takes_any_type` it need not be declared as JSON, as by curl, unless a browser sends it.
    """

    size: int = bounds.BODY_BYTES
    seconds: float = 30.0
    takes_any_type: bool = False


@dataclass(frozen=True, slots=True)
class RequestReader:
    """Reads requests; `body` bounds what a client may send.

    With `forwards_authorization` the client's key is sent to the backend. A body that contains one
    of `marks` takes long to decode: it refers to what is on disk, or holds a document.
    """

    body: BodyLimits
    forwards_authorization: bool = False
    marks: tuple[bytes, ...] = ()

    async def read(
        self, connection: ClientConnection, decode: Callable[[bytes], Decoded]
    ) -> Decoded:
        """Read a request; raises `InvalidRequest` kinds of errors and `ClientDisconnect`.

        A body that takes long is decoded in a thread, so that other requests are served meanwhile.
        """
        is_here = connection.has_whole_body
        body = await read_body(connection.scope, connection.receive, self.body, is_here=is_here)
        is_slow = takes_long(body) or any(map(body.__contains__, self.marks))
        return await asyncio.to_thread(decode, body) if is_slow else decode(body)

    def upstream_headers(self, scope: Scope) -> dict[str, str]:
        sent = headers_of(scope)
        headers = {name: sent[name] for name in _TRAVELLING if name in sent}
        if not self.forwards_authorization:
            headers.pop("authorization", None)
        parent = headers.get("traceparent")
        if parent and (state := state_of(parent, _tracestates(scope))):
            headers["tracestate"] = state
        return {**headers, "x-request-id": request_id(scope)}


async def read_body(
    scope: Scope, receive: Receive, limits: BodyLimits, *, is_here: bool = False
) -> bytes:
    """Read the JSON body of a request; one that `is_here` need not be waited for.

    Raises `NotJson` for another content type: browsers send those to any site without asking it.
    Raises `RequestTooLarge`, before a byte is read if the declared length is too large, and
    `RequestTimedOut`. A compression that the edge cannot undo is an `InvalidRequest`.
    Raises starlette's `ClientDisconnect` if the client leaves.
    """
    headers = headers_of(scope)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_trusted = limits.takes_any_type and _BROWSERS.isdisjoint(headers)
    if not (is_trusted or media_type == "application/json" or media_type.endswith("+json")):
        raise NotJson
    if headers.get(HEADER, "identity").strip().lower() != "identity":
        raise InvalidRequest("Use gzip or zstd, or send the body uncompressed.", HEADER)
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.size:
        raise RequestTooLarge(limits.size)
    if is_here:
        return await _whole(receive, limits.size)
    try:
        async with asyncio.timeout(limits.seconds):
            return await _whole(receive, limits.size)
    except TimeoutError as error:
        raise RequestTimedOut(limits.seconds) from error


async def _whole(receive: Receive, limit: int) -> bytes:
    pieces: list[bytes] = []
    size, is_open = 0, True
    while is_open:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise RequestTooLarge(limit)
        is_open = message.get("more_body", False)
    return b"".join(pieces)


def client_of(scope: Scope) -> Client:
    """Tell who sent a request: by the owner of the key, or by a key that is not ours."""
    sent = headers_of(scope)
    key = sent.get("authorization") or sent.get("x-api-key") or ""
    return Client(scope["state"].get("owner") or key, sent, request_id(scope))


def client_key(client: Client, scope: Scope) -> str:
    """Return the client's identity for fair queueing: the owner of its key.

    On an open server it is the key meant for the backend, else the address.
    """
    address: tuple[str, int] | None = scope.get("client")
    return client.owner or (address[0] if address else "")


def begin_live_request(
    connection: ClientConnection, observers: Observers, dialect: str = CHAT_DIALECT
) -> LiveRequest:
    """Start to observe a request; with tracing it continues the client's trace."""
    scope, board = connection.scope, observers.board
    sent = headers_of(scope).get("traceparent", "")
    live = LiveRequest(
        request_id(scope),
        trace_of(sent) if observers.traces else None,
        path=scope["path"],
        dialect=dialect,
        link=BoardLink(board, connection.cancel) if board is not None else None,
    )
    live.client = connection.owner or None
    return live


def note_status(live: LiveRequest, connection: ClientConnection) -> None:
    """Record the status of an answer once all of it was sent.

    Until then the client may leave. A failure recorded before is kept.
    """
    live.refusal = connection.refusal
    if live.status == CLIENT_LEFT and connection.is_over and not connection.is_cancelled:
        live.status = connection.status


def request_id(scope: Scope) -> str:
    own: str = scope["state"]["request_id"]
    return own


def find_secrets(scope: Scope) -> tuple[str, ...]:
    """Return what a client proved itself with."""
    sent = headers_of(scope)
    given = sent.get("authorization", "")
    return given, given.partition(" ")[2].strip(), sent.get("x-api-key", "")


def _tracestates(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"tracestate"]
