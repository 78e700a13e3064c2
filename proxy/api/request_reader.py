"""What is read of an HTTP request: its body, who sent it, and the headers that travel on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from proxy.api.cancelling import DEPARTURE, CancelScope
from proxy.api.headers import headers_of
from proxy.api.limits import BodyLimits, read_body
from proxy.backends.client import PassthroughRequest
from proxy.conversation import json
from proxy.dialects.front import Sender
from proxy.dialects.raw_json import kind, read_object
from proxy.errors import InvalidRequest
from proxy.observability.live_request import BoardLink, LiveRequest
from proxy.observability.observers import Observers
from proxy.observability.record import CHAT_DIALECT
from proxy.observability.trace_context import state_of, trace_of

Decoded = TypeVar("Decoded")

_LARGE = 2**20  # bytes

# what is passed on: the field that the model reads, and whether its answer can be a stream
PASSED_ON = MappingProxyType(
    {"/v1/completions": ("prompt", True), "/v1/embeddings": ("input", False)}
)

# the only headers of a client that a backend ever sees
_TRAVELLING = ("authorization", "traceparent")


@dataclass(frozen=True, slots=True)
class RequestReader:
    """Reads requests; `body` bounds what a client may send.

    With `forwards_authorization` a client's own key travels to the backend. To decode a body in
    which one of `references` stands, something has to be read from a disk.
    """

    body: BodyLimits
    forwards_authorization: bool = False
    references: tuple[bytes, ...] = ()

    async def read(self, http: HttpRequest, decode: Callable[[bytes], Decoded]) -> Decoded:
        """Read a request; raises `InvalidRequest` kinds of errors and `ClientDisconnect`.

        What takes long is decoded beside the event loop, so that others are served meanwhile.
        """
        body = await read_body(http, self.body)
        takes_long = len(body) > _LARGE or any(each in body for each in self.references)
        return await asyncio.to_thread(decode, body) if takes_long else decode(body)

    def upstream_headers(self, http: HttpRequest) -> dict[str, str]:
        """Return the headers that travel to the backend."""
        sent = headers_of(http.scope)
        headers = {name: sent[name] for name in _TRAVELLING if name in sent}
        if not self.forwards_authorization:
            headers.pop("authorization", None)
        parent = headers.get("traceparent")
        if parent and (state := state_of(parent, http.headers.getlist("tracestate"))):
            headers["tracestate"] = state
        return {**headers, "x-request-id": request_id(http)}


def decode_passage(path: str, body: bytes) -> PassthroughRequest:
    """Read no more of a request than whose it is and how it is answered; raises InvalidRequest."""
    read = read_object(body)
    model, stream = read.get("model"), read.get("stream")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest(f"Expected a string, got {kind(model)}.", "model")
    text_field, may_stream = PASSED_ON[path]
    fields = json.split_object(body)
    return PassthroughRequest(
        path, text_field, model or "", fields, stream=may_stream and stream is True
    )


def sender_of(http: HttpRequest) -> Sender:
    """Tell who sent a request: by the owner of the key, or by a key that is not ours."""
    sent = headers_of(http.scope)
    return Sender(http.scope["state"].get("owner") or _key_in(http), sent, request_id(http))


def client_key(http: HttpRequest) -> str:
    """Tell clients apart, so that they take turns: by the owner of their key.

    Where nobody needs a key, by the one that is meant for the backend, else by their address.
    """
    owner: str = http.scope["state"].get("owner", "")
    return owner or _key_in(http) or (http.client.host if http.client is not None else "")


def begin_live_request(
    http: HttpRequest, observers: Observers, dialect: str = CHAT_DIALECT
) -> LiveRequest:
    """Follow a request from now on; where there are traces it goes on with its client's."""
    trace = trace_of(http.headers.get("traceparent", "")) if observers.traces else None
    state = http.scope["state"]
    departure: CancelScope | None = state.get(DEPARTURE)
    link: BoardLink | None = None
    if observers.board is not None:
        leave = departure.leave if departure is not None else None
        link = BoardLink(observers.board, leave)
    path = http.scope["path"]
    live = LiveRequest(request_id(http), trace, path=path, dialect=dialect, link=link)
    live.client = state.get("owner") or None
    return live


def request_id(http: HttpRequest) -> str:
    """Return the id that `limits` gave a request."""
    own: str = http.scope["state"]["request_id"]
    return own


def secrets_sent(http: HttpRequest) -> tuple[str, ...]:
    """Return what a client proved itself with."""
    sent = headers_of(http.scope)
    given = sent.get("authorization", "")
    return given, given.partition(" ")[2].strip(), sent.get("x-api-key", "")


def _key_in(http: HttpRequest) -> str:
    sent = headers_of(http.scope)
    return sent.get("authorization") or sent.get("x-api-key") or ""
