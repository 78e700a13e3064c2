"""What stands before every route: request ids, hosts, API keys, and what a body may be."""

import asyncio
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.errors import describe, error_response
from proxy.api.fronts import Fronts
from proxy.api.headers import headers_of
from proxy.errors import (
    HostNotAllowed,
    InvalidRequest,
    NotAuthorized,
    NotJson,
    RequestTimedOut,
    RequestTooLarge,
)

HEALTH_PATHS = ("/healthz", "/readyz", "/health")
_KEY_HEADERS = frozenset({"authorization", "x-api-key"})
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WITH_PORT = re.compile(r"(^|[^:\]]|\]):\d*$")  # an IPv6 address without brackets has none


@dataclass(frozen=True, slots=True)
class Access:
    """Who gets in: `keys` by the names of their owners, none for an open server.

    Where `hosts` is set, requests have to call Temper by one of these names: a web page that has
    a name of its own resolved to this machine (DNS rebinding) uses that name.
    """

    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    hosts: frozenset[str] | None = None

    def owner_of(self, headers: Mapping[str, str]) -> str | None:
        """Return whose key was sent, "" where none is needed, and None for a stranger."""
        if not self.keys:
            return ""
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            sent = headers.get("x-api-key", "")
        sent = sent.strip()
        # every key is compared, so that the time tells nothing
        found = [name for name, key in self.keys.items() if _is_same(sent, key)]
        return found[0] if found else None

    def allows_host(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        name = host.rpartition(":")[0] if _WITH_PORT.search(host) else host
        return self.hosts is None or name.strip("[]").lower() in self.hosts


class Limits:
    """ASGI middleware: names every request, and turns away what has no business here.

    The id is `x-request-id` as the client sent it, if it is plain, else a new one; it is put into
    `scope["state"]["request_id"]` and into the response, the owner of the key into
    `scope["state"]["owner"]`, and the language of its path into `scope["state"]["front"]`. What is
    in `open_paths` needs neither key nor name, what is in `public_paths` no key.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        fronts: Fronts,
        *,
        open_paths: tuple[str, ...] = HEALTH_PATHS,
        public_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._access = access
        self._fronts = fronts
        self._open_paths = open_paths
        self._public_paths = public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        wished = headers.get("x-request-id", "")
        request_id = wished if _PLAIN_ID.fullmatch(wished) else f"req_{secrets.token_hex(12)}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state["front"] = front = self._fronts.of(scope["path"], headers)
        names = dict.fromkeys(("x-request-id", front.id_header))
        own_headers = [(name.encode(), request_id.encode()) for name in names]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *own_headers]
            await send(message)

        owner = self._access.owner_of(headers)
        if scope["path"] in self._open_paths:
            await self._app(scope, receive, send_with_id)
        elif not self._access.allows_host(headers.get("host", "")):
            refusal = error_response(describe(HostNotAllowed()), scope)
            await refusal(scope, receive, send_with_id)
        elif owner is None and scope["path"] not in self._public_paths:
            was_sent = not _KEY_HEADERS.isdisjoint(headers)
            refusal = error_response(describe(NotAuthorized(was_sent=was_sent)), scope)
            await refusal(scope, receive, send_with_id)
        else:
            state["owner"] = owner or ""
            await self._app(scope, receive, send_with_id)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be, in bytes, and how long it may take to come, in seconds."""

    size: int = 32 * 2**20
    seconds: float = 30.0


async def read_body(request: Request, limits: BodyLimits) -> bytes:
    """Read the JSON body of a request.

    Raises `NotJson` for another content type: browsers send those to anybody, without asking.
    Raises `RequestTooLarge`, before a byte is read if the declared length is too large, and
    `RequestTimedOut`. A compressed body is an `InvalidRequest`: its size would be known too late.
    Raises starlette's `ClientDisconnect` if the client leaves.
    """
    headers = headers_of(request.scope)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise NotJson
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise InvalidRequest("Send the body uncompressed.", "content-encoding")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.size:
        raise RequestTooLarge(limits.size)
    try:
        async with asyncio.timeout(limits.seconds):
            return await _whole(request, limits.size)
    except TimeoutError as error:
        raise RequestTimedOut(limits.seconds) from error


async def _whole(request: Request, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise RequestTooLarge(limit)
        pieces.append(piece)
    return b"".join(pieces)


def _is_same(sent: str, key: str) -> bool:
    return hmac.compare_digest(sent.encode(), key.encode())
