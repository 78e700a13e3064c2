"""Reads an HTTP request: its body, its client, and the headers to send to the backend."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from proxy import bounds
from proxy.api.client_connection import ClientConnection, headers_of
from proxy.api.compressed_bodies import HEADER
from proxy.api.documents import PDF_MARK, DocumentTexts
from proxy.dialects.dialect import Client
from proxy.errors import InvalidRequest, NotJson, RequestTimedOut, RequestTooLarge
from proxy.observability.live_request import BoardLink, LiveRequest
from proxy.observability.observers import Observers
from proxy.observability.record import CHAT_DIALECT, CLIENT_LEFT
from proxy.observability.trace_context import state_of, trace_of
from proxy.serving.request_preparation import takes_long

Decoded = TypeVar("Decoded")

# when a page of another site sends a POST, the browser adds at least one of these headers
_BROWSER_HEADERS = frozenset({"origin", "referer", "sec-fetch-site", "sec-fetch-mode"})

# the only headers of a client that are sent to a backend
_FORWARDED = ("authorization", "traceparent")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The maximum size of a body in bytes, and the time limit for receiving it in seconds.

    With `takes_any_type`, the content type of a body may be missing or wrong, unless a browser sent
    the request. For example, curl sends `application/x-www-form-urlencoded` by default.
    """

    size: int = bounds.BODY_BYTES
    seconds: float = 30.0
    takes_any_type: bool = False


@dataclass(frozen=True, slots=True)
class RequestReader:
    """Reads requests within the limits of `body`.

    With `forwards_authorization`, the client's key is sent to the backend. `documents` replaces
    PDFs by their text; it is None for dialects that forward the body unchanged. A body that
    contains one of `slow_marks` refers to stored responses. It is decoded in a thread, because
    reading the store may take long.
    """

    body: BodyLimits
    forwards_authorization: bool = False
    documents: DocumentTexts | None = None
    slow_marks: tuple[bytes, ...] = ()

    async def read(
        self,
        connection: ClientConnection,
        client: Client,
        decode: Callable[[bytes, Client], Decoded],
    ) -> Decoded:
        """Read and decode a body; raises subclasses of `InvalidRequest`, and `ClientDisconnect`.

        A large body is decoded in a thread, so that it does not delay other requests.
        """
        is_complete = connection.has_whole_body  # if True, as nearly always, no timer is needed
        body = await read_body(
            connection.scope, connection.receive, self.body, is_complete=is_complete
        )
        # PDFs are read by a child process, which may take seconds
        has_document = self.documents is not None and PDF_MARK in body
        is_slow = takes_long(body) or any(map(body.__contains__, self.slow_marks))
        if has_document or is_slow:
            return await asyncio.to_thread(self._decode, body, client, decode)
        return decode(body, client)

    def _decode(
        self, body: bytes, client: Client, decode: Callable[[bytes, Client], Decoded]
    ) -> Decoded:
        return decode(body if self.documents is None else self.documents.expand(body), client)

    def upstream_headers(self, scope: Scope) -> dict[str, str]:
        """Return the headers for the backend; the others may be secrets and are not forwarded."""
        client_headers = headers_of(scope)
        headers = {name: client_headers[name] for name in _FORWARDED if name in client_headers}
        if not self.forwards_authorization:
            headers.pop("authorization", None)
        parent = headers.get("traceparent")
        if parent and (state := state_of(parent, _tracestates(scope))):
            headers["tracestate"] = state
        return {**headers, "x-request-id": request_id(scope)}


async def read_body(
    scope: Scope, receive: Receive, limits: BodyLimits, *, is_complete: bool = False
) -> bytes:
    """Read the JSON body of a request; if it has arrived already (`is_complete`), set no timer.

    Raises `NotJson` for another content type, because a page in a browser may send some other types
    to any site without a preflight request (CORS). Raises `RequestTooLarge`; if the declared length
    is too large, no byte is read. Raises `RequestTimedOut`, `InvalidRequest` for an unsupported
    compression, and starlette's `ClientDisconnect`.
    """
    headers = headers_of(scope)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_trusted = limits.takes_any_type and _BROWSER_HEADERS.isdisjoint(headers)
    if not (is_trusted or media_type == "application/json" or media_type.endswith("+json")):
        raise NotJson
    if headers.get(HEADER, "identity").strip().lower() != "identity":
        raise InvalidRequest("Use gzip or zstd, or send the body uncompressed.", HEADER)
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.size:
        raise RequestTooLarge(limits.size)
    if is_complete:
        return await _read_whole(receive, limits.size)
    try:
        async with asyncio.timeout(limits.seconds):
            return await _read_whole(receive, limits.size)
    except TimeoutError as error:
        raise RequestTimedOut(limits.seconds) from error


async def _read_whole(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size, is_open = 0, True
    while is_open:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        # the bytes are counted while they arrive, because a chunked body declares no length
        size += len(parts[-1])
        if size > limit:
            raise RequestTooLarge(limit)
        is_open = message.get("more_body", False)
    return b"".join(parts)


def client_of(scope: Scope) -> Client:
    """Identify the client by the owner of its key; on an open server, by the key itself."""
    headers = headers_of(scope)
    key = headers.get("authorization") or headers.get("x-api-key") or ""
    return Client(scope["state"].get("owner") or key, headers, request_id(scope))


def queue_key_of(client: Client, scope: Scope) -> str:
    """Return the key for fair queueing: the client's owner or key, or else its address."""
    address: tuple[str, int] | None = scope.get("client")
    return client.owner or (address[0] if address else "")


def begin_live_request(
    connection: ClientConnection, observers: Observers, dialect: str = CHAT_DIALECT
) -> LiveRequest:
    """Begin the record of a request; with tracing, the record continues the client's trace."""
    scope, board = connection.scope, observers.board
    parent = headers_of(scope).get("traceparent", "")
    live = LiveRequest(
        request_id(scope),
        trace_of(parent) if observers.traces else None,
        path=scope["path"],
        dialect=dialect,
        link=BoardLink(board, connection.cancel) if board is not None else None,
    )
    live.client = connection.owner or None
    return live


def note_status(live: LiveRequest, connection: ClientConnection) -> None:
    """Record the status of a response that was sent completely; a recorded failure stays."""
    live.refusal = connection.refusal
    if live.status == CLIENT_LEFT and connection.is_over and not connection.is_cancelled:
        live.status = connection.status


def request_id(scope: Scope) -> str:
    identifier: str = scope["state"]["request_id"]
    return identifier


def find_secrets(scope: Scope) -> tuple[str, ...]:
    """Return the client's credentials, which a recording must not contain."""
    headers = headers_of(scope)
    authorization = headers.get("authorization", "")
    return authorization, authorization.partition(" ")[2].strip(), headers.get("x-api-key", "")


def _tracestates(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"tracestate"]
