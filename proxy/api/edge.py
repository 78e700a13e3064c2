"""The outermost ASGI application: accepts and authenticates requests, and calls their endpoint.

Frequent requests bypass FastAPI's router, because its error pages and exit stacks add five layers
to each message. The edge knows only the paths of the endpoints.
"""

import asyncio
import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.client_connection import ClientConnection, Endpoint, headers_of
from proxy.api.compressed_bodies import HEADER, decompress, is_compressed
from proxy.api.dialects import Dialects
from proxy.api.errors import refuse
from proxy.errors import HostNotAllowed, NotAuthorized, RequestCancelled, ServerStopped, TemperError

Endpoints: TypeAlias = Mapping[str, Callable[[], Endpoint]]

IDEMPOTENCY_KEY = "idempotency-key"
HEALTH_PATHS = ("/healthz", "/readyz", "/health")
_KEY_HEADERS = frozenset({"authorization", "x-api-key"})
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WITH_PORT = re.compile(r"(^|[^:\]]|\]):\d*$")  # an IPv6 address without brackets has no port
_FAREWELL_SECONDS = 1.0  # the timeout of the last error, because the client may not be reading


@dataclass(frozen=True, slots=True)
class Access:
    """Access to the server: the API `keys` by their owners; without keys, the server is open.

    With `hosts`, the Host header of a request must be one of these names. This stops DNS rebinding:
    if an attacker's host name resolves to this machine, the browser still sends that host name.
    """

    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    hosts: frozenset[str] | None = None

    def owner_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the name of the key's owner, "" if no key is needed, None for a wrong key."""
        if not self.keys:
            return ""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        # Claude Code sends its account's token in addition to the key. The token is wrong here, and
        # must not hide the right key.
        candidates = (bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
        sent_keys = [candidate.strip().encode() for candidate in candidates]
        # every key is compared, so that the duration reveals nothing about the keys
        owners = [
            name
            for candidate in sent_keys
            for name, key in self.keys.items()
            if hmac.compare_digest(candidate, key.encode())
        ]
        return owners[0] if owners else None

    def allows_host(self, host: str) -> bool:
        host = host.strip(" \t")  # RFC 9110, 5.5; llhttp does not remove white space after a value
        name = host.rpartition(":")[0] if _WITH_PORT.search(host) else host
        return self.hosts is None or name.strip("[]").lower() in self.hosts


@dataclass(frozen=True, slots=True)
class OpenPaths:
    """Paths with fewer checks: neither kind needs a key; `probes` also accept any Host header."""

    probes: tuple[str, ...] = HEALTH_PATHS
    public: frozenset[str] = frozenset()


@dataclass(eq=False)
class Edge:
    """Accepts and authenticates requests, and calls the endpoint of their path.

    Three members of `scope["state"]` are set: `request_id` is the client's `x-request-id` if it has
    only safe characters, otherwise a new id; `owner` is the name of the key's owner; `dialect` is
    the API dialect of the path. The request id is also sent in the response. Web pages from
    `origins` may use the server.

    `endpoints` maps paths to functions that create an endpoint at the first request. A POST to one
    of these paths goes to its endpoint. If the POST has an Idempotency-Key, and the path is also in
    `repeatable`, it goes to the endpoint there. All other requests go to `app`.
    """

    app: FastAPI
    endpoints: Endpoints
    access: Access
    dialects: Dialects
    _: KW_ONLY
    repeatable: Endpoints = field(default_factory=dict)
    paths: OpenPaths = field(default_factory=OpenPaths)
    origins: InitVar[Sequence[str]] = ()

    def __post_init__(self, origins: Sequence[str]) -> None:
        self._enter: ASGIApp = self.accept
        if origins:  # before the other checks, because a browser's preflight request has no key
            self._enter = CORSMiddleware(
                self.accept, allow_origins=[*origins], allow_methods=["*"], allow_headers=["*"]
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._enter if scope["type"] == "http" else self.app
        await app(scope, receive, send)

    async def accept(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a request its id, its dialect and its connection."""
        headers = headers_of(scope)
        if HEADER in headers and is_compressed(headers):
            # here, so that every reader of the body, including FastAPI, gets uncompressed bytes
            scope, receive = decompress(scope, receive, headers[HEADER])
            headers = headers_of(scope)
        path: str = scope["path"]
        if (root := scope.get("root_path", "")) and path.startswith(f"{root}/"):
            path = path[len(root) :]  # without the prefix at which Temper is mounted
        client_id = headers.get("x-request-id", "")
        request_id = client_id if _PLAIN_ID.fullmatch(client_id) else f"req_{os.urandom(12).hex()}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state["dialect"] = dialect = self.dialects.of(path, headers)
        raw_id = request_id.encode()
        response_headers = [(b"x-request-id", raw_id)]
        if dialect.id_header != "x-request-id":  # Anthropic's SDK reads `request-id`
            response_headers.append((dialect.id_header.encode(), raw_id))
        connection = ClientConnection(scope, receive, send, response_headers)
        try:
            if await self.authenticate(connection, path, headers):
                await self._call(connection, path, headers)
        except asyncio.CancelledError:
            if not connection.is_of_own_server:
                raise
            # Temper's own server cancels the remaining requests when it stops. The cancellation
            # must not leave the application, because uvicorn would log it as a bug.
            if not connection.has_begun:
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await refuse(connection, ServerStopped())

    async def authenticate(
        self, connection: ClientConnection, path: str, headers: Mapping[str, str]
    ) -> bool:
        """Find the owner of the key; return False after a refusal was sent."""
        access, owner = self.access, self.access.owner_of(headers)
        # a probe has no key, and may send the address of a pod as its host
        if path not in self.paths.probes:
            if not access.allows_host(headers.get("host", "")):
                await refuse(connection, HostNotAllowed())
                return False
            if owner is None and path not in self.paths.public:
                has_key = not _KEY_HEADERS.isdisjoint(headers)
                await refuse(connection, NotAuthorized(was_sent=has_key))
                return False
        connection.scope["state"]["owner"] = owner or ""
        return True

    async def _call(
        self, connection: ClientConnection, path: str, headers: Mapping[str, str]
    ) -> None:
        scope, create = connection.scope, None
        if scope["method"] == "POST":
            create = self.endpoints.get(path)
            if IDEMPOTENCY_KEY in headers:
                create = self.repeatable.get(path, create)
        if create is not None:
            await serve(create(), connection)
            return
        if path in self.paths.probes and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # HEAD of monitoring tools; no body is sent for it
        await self.app(scope, connection.receive, connection.send)


async def serve(endpoint: Endpoint, connection: ClientConnection) -> None:
    """Run an endpoint; after a bug, or if an operator ended the request, send an error."""
    try:
        await endpoint(connection)
    except Exception:  # a bug, which the server logs
        if not connection.has_begun:
            await refuse(connection, TemperError())
        raise
    if connection.is_cancelled and not connection.is_over:
        if connection.has_begun:
            await connection.end()
        else:
            await refuse(connection, RequestCancelled())
