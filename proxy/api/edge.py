"""The outermost ASGI application: makes a request's connection, checks access, finds the endpoint.

Frequent requests bypass FastAPI's router, because its error pages and exit stacks add five layers
to each message. The edge does not know what the endpoints do.
"""

import asyncio
import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from types import MappingProxyType

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.client_connection import ClientConnection, Endpoint, headers_of
from proxy.api.compressed_bodies import HEADER, decompress, is_compressed
from proxy.api.dialects import Dialects
from proxy.api.errors import refuse
from proxy.errors import HostNotAllowed, NotAuthorized, RequestCancelled, ServerStopped, TemperError

HEALTH_PATHS = ("/healthz", "/readyz", "/health")
_KEY_HEADERS = frozenset({"authorization", "x-api-key"})
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WITH_PORT = re.compile(r"(^|[^:\]]|\]):\d*$")  # an IPv6 address without brackets has none
_FAREWELL_SECONDS = 1.0  # a client may not be reading


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the server: `keys` by the names of their owners, none for an open server.

    If `hosts` is set, a request's Host header has to be one of these names. That stops DNS
    rebinding: a web page that resolves its own name to this machine sends that name.
    """

    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    hosts: frozenset[str] | None = None

    def owner_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the name of the key's owner, "" if no key is needed, None for a wrong key."""
        if not self.keys:
            return ""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        # Claude Code sends its account's token next to the key, so a wrong one hides no valid one
        candidates = (bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
        sent = [key.strip().encode() for key in candidates]
        # compares every key, so that the time reveals nothing
        owners = [
            name
            for candidate in sent
            for name, key in self.keys.items()
            if hmac.compare_digest(candidate, key.encode())
        ]
        return owners[0] if owners else None

    def allows_host(self, host: str) -> bool:
        host = host.strip(" \t")  # RFC 9110, 5.5; llhttp leaves what follows a value
        name = host.rpartition(":")[0] if _WITH_PORT.search(host) else host
        return self.hosts is None or name.strip("[]").lower() in self.hosts


@dataclass(frozen=True, slots=True)
class OpenPaths:
    """Open paths: `probes` need neither key nor host name, `public` ones need no key."""

    probes: tuple[str, ...] = HEALTH_PATHS
    public: frozenset[str] = frozenset()


@dataclass(eq=False)
class Edge:
    """Refuses requests without access, and finds the endpoint of all others.

    Sets in `scope["state"]`: `request_id`, the client's `x-request-id` if it has only safe
    characters, else a new one; `owner`, the name of the key's owner; `dialect`, the language of the
    path. The id is also sent in the response. Web pages from `origins` may use the server.

    A POST to a path of `endpoints` goes to that endpoint, which is made on its first request.
    All else goes to `app`.
    """

    app: FastAPI
    endpoints: Mapping[str, Callable[[], Endpoint]]
    access: Access
    dialects: Dialects
    _: KW_ONLY
    paths: OpenPaths = field(default_factory=OpenPaths)
    origins: InitVar[Sequence[str]] = ()

    def __post_init__(self, origins: Sequence[str]) -> None:
        self._enter: ASGIApp = self._receive
        if origins:  # before the checks, because a browser's preflight request has no key
            self._enter = CORSMiddleware(
                self._receive, allow_origins=[*origins], allow_methods=["*"], allow_headers=["*"]
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = self._enter if scope["type"] == "http" else self.app
        await answering(scope, receive, send)

    async def _receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        if HEADER in headers and is_compressed(headers):
            scope, receive = decompress(scope, receive, headers[HEADER])
            headers = headers_of(scope)
        path: str = scope["path"]
        if (root := scope.get("root_path", "")) and path.startswith(f"{root}/"):
            path = path[len(root) :]  # where Temper is mounted
        wished = headers.get("x-request-id", "")
        request_id = wished if _PLAIN_ID.fullmatch(wished) else f"req_{os.urandom(12).hex()}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state["front"] = dialect = self.dialects.of(path, headers)
        written = request_id.encode()
        own_headers = [(b"x-request-id", written)]
        if dialect.id_header != "x-request-id":
            own_headers.append((dialect.id_header.encode(), written))
        connection = ClientConnection(scope, receive, send, own_headers)
        try:
            await self._serve(connection, path, headers)
        except asyncio.CancelledError:
            if not connection.is_of_own_server:
                raise
            if not connection.has_begun:
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await refuse(connection, ServerStopped())

    async def _serve(
        self, connection: ClientConnection, path: str, headers: Mapping[str, str]
    ) -> None:
        access, scope = self.access, connection.scope
        owner = access.owner_of(headers)
        is_open = path in self.paths.probes
        if not is_open and not access.allows_host(headers.get("host", "")):
            await refuse(connection, HostNotAllowed())
        elif not is_open and owner is None and path not in self.paths.public:
            was_sent = not _KEY_HEADERS.isdisjoint(headers)
            await refuse(connection, NotAuthorized(was_sent=was_sent))
        else:
            scope["state"]["owner"] = owner or ""
            make = self.endpoints.get(path) if scope["method"] == "POST" else None
            if make is None:
                if is_open and scope["method"] == "HEAD":  # monitors; the server sends no body
                    scope = {**scope, "method": "GET"}
                await self.app(scope, connection.receive, connection.send)
            else:
                await serve(make(), connection)


async def serve(endpoint: Endpoint, connection: ClientConnection) -> None:
    """Run an endpoint; after a bug, or if an operator ended the request, send an error."""
    try:
        await endpoint(connection)
    except Exception:  # a bug of ours, which the server logs
        if not connection.has_begun:
            await refuse(connection, TemperError())
        raise
    if connection.is_cancelled and not connection.is_over:
        if connection.has_begun:
            await connection.end()
        else:
            await refuse(connection, RequestCancelled())
