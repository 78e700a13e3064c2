"""One backend's HTTP client: allowed headers, timeouts and size limits.

Only this module turns failures of the HTTP library into `BackendFailed`. It knows neither questions
nor answers.
"""

import asyncio
import re
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

import httpx

from proxy import bounds, errors
from proxy.backends import connection_pool
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.refusals import Confidential

# A client's header outside this list could change what the backend does: llama-server lets a
# stream with X-Conversation-Id outlive its connection, so a closed client would cancel nothing.
AUTHORIZATION = "authorization"
FORWARDED_HEADERS = frozenset(
    {AUTHORIZATION, "traceparent", "tracestate", "x-request-id", PREFIX_HEADER}
)

STREAM_LIMIT, DOCUMENT_LIMIT = bounds.STREAM_BYTES, bounds.DOCUMENT_BYTES
LINGER = 0.1

_INSECURE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_OWN_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "temper"}
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FAILURES = (
    connection_pool.ConnectionPoolError,
    OSError,
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
)
_SETTING = "backend.url"
_ENCODING = b"content-encoding"
_PLAIN = ("", "identity")

Outgoing: TypeAlias = tuple[str, str, Mapping[str, str], bytes]
"""A request: its method, path, headers and body."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a backend may be silent, in seconds.

    `connect` is for the connection, `first_byte` for the whole time until the first byte of a
    body, `idle` for the time between bytes, and `lookup` for a whole small document. `lost` is for
    its host, which acknowledges what is sent to it, and the kernel's probes.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 120.0
    lookup: float = 10.0
    lost: float = connection_pool.LOST_SECONDS


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """A whole small answer; `retry_after` and `server` are headers as they came, or empty."""

    status: int
    body: bytes
    retry_after: str = ""
    server: str = ""


@contextmanager
def translate_errors(backend: str, *, mid_reply: bool = False) -> Iterator[None]:
    """Turn every error of the HTTP library into the `BackendFailed` it means."""
    try:
        yield
    except _FAILURES as error:
        raise _meaning(backend, error, mid_reply=mid_reply) from error


def _meaning(backend: str, error: Exception, *, mid_reply: bool) -> errors.BackendFailed:
    match error:
        case (
            connection_pool.NotReached()
            | httpx.ConnectError()
            | httpx.ConnectTimeout()
            | httpx.ProxyError()
            | httpx.UnsupportedProtocol()
            | httpx.InvalidURL()
        ):
            return errors.BackendUnavailable(
                backend, f"cannot be reached ({error})", is_unreached=True
            )
        case connection_pool.BrokenOff(is_unread=True):
            return errors.BackendUnavailable(backend, "broke off the connection", is_unreached=True)
        case TimeoutError() | httpx.TimeoutException():
            return errors.BackendTimedOut(backend, "was silent for too long")
        case connection_pool.NotHttp() if not mid_reply:
            return errors.BackendSpokeNonsense(backend, "does not speak HTTP", error.sample)
        case httpx.DecodingError() | httpx.TooManyRedirects():
            said = str(error).encode("utf-8", "replace")
            return errors.BackendSpokeNonsense(backend, "sent a body that cannot be decoded", said)
        case _:
            is_lost = isinstance(error, connection_pool.PeerLost)
            problem = "has gone from the network" if is_lost else "broke off the connection"
            return errors.BackendUnavailable(backend, problem)


class _HttpxExchange:
    """A response of httpx, read like a `Connection`."""

    is_over = False

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.close = response.aclose
        self._response = response
        # what httpx unpacks might have no end
        is_plain = self.header(_ENCODING) in _PLAIN
        self._stream = response.aiter_bytes() if is_plain else response.aiter_raw()

    def header(self, name: bytes) -> str:
        return str(self._response.headers.get(name.decode(), ""))

    async def receive(self, deadline: float) -> bytes:
        async with asyncio.timeout_at(deadline):
            return await anext(self._stream, b"")

    def set_sink(self, sink: Callable[[bytes], bool], idle: float) -> None:
        """Go on as before: nothing comes while nobody receives."""


class BackendResponse:
    """A backend's response to a request; leaving its context cancels what is still to come.

    What is confidential is taken out of violations, which may quote what the backend was sent.
    """

    # a generator that is a context would cost more

    def __init__(
        self, client: "BackendClient", request: Outgoing, *, first_byte: float, idle: float
    ) -> None:
        self._client = client
        self._request = request
        self._received = 0
        self._idle = idle
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + first_byte
        self._arriving: connection_pool.Connection | _HttpxExchange

    async def __aenter__(self) -> "BackendResponse":
        try:
            self._arriving = await self._client.open(self._request, self._deadline)
        except errors.BackendSpokeNonsense as error:
            self._redact(error)
            raise
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await self._client.release(self._arriving)
        if isinstance(error, errors.BackendSpokeNonsense):
            self._redact(error)

    def _redact(self, error: errors.BackendSpokeNonsense) -> None:
        error.sample = self._client.confidential.out_of(error.sample)

    @property
    def status(self) -> int:
        return self._arriving.status

    @property
    def retry_after(self) -> str:
        return self._arriving.header(b"retry-after")

    @property
    def is_whole(self) -> bool:
        return self._arriving.is_over

    async def next_chunk(self) -> bytes:
        """Return more of the body as it arrives; empty at its end."""
        try:
            chunk = await self._arriving.receive(self._deadline)
        except _FAILURES as error:
            raise _meaning(self._client.name, error, mid_reply=True) from error
        self._deadline = self._clock() + self._idle
        self._received += len(chunk)
        if self._received > STREAM_LIMIT:
            problem = f"sent a reply without an end: more than {STREAM_LIMIT} bytes"
            raise errors.BackendSpokeNonsense(self._client.name, problem, is_endless=True)
        return chunk

    def set_sink(self, sink: Callable[[bytes], bool]) -> None:
        """Offer what comes to a sink first, which reports whether it takes it."""

        def take(chunk: bytes) -> bool:
            received = self._received + len(chunk)
            if received > STREAM_LIMIT or not sink(chunk):
                return False
            self._received = received
            return True

        self._arriving.set_sink(take, self._idle)

    async def read(self, limit: int) -> bytes:
        """Return the first `limit` bytes of the body."""
        body = bytearray()
        while len(body) < limit and (chunk := await self.next_chunk()):
            body += chunk
        return bytes(body[:limit])

    async def whole(self) -> WholeResponse:
        """Return all of it, a small document: at most `DOCUMENT_LIMIT` bytes."""
        body = await self.read(DOCUMENT_LIMIT)
        arriving = self._arriving
        if arriving.header(_ENCODING) not in _PLAIN:
            try:
                # gzip or deflate, whichever it is
                body = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, DOCUMENT_LIMIT)
            except zlib.error:
                body = b""
        if self.status >= HTTPStatus.BAD_REQUEST:
            body = self._client.confidential.out_of(body)
        return WholeResponse(self.status, body, self.retry_after, arriving.header(b"server"))

    async def linger(self) -> None:
        """Wait shortly for the end of a body that is not needed any more.

        It usually sits in the packet that was read last. A connection read to the end of a body
        can be used again, any other is closed.
        """
        self._deadline = self._clock() + LINGER
        with suppress(errors.BackendFailed):
            await self.next_chunk()


class BackendClient:
    """One backend's HTTP client.

    `api_key` is sent as a bearer token; without one the client's Authorization is sent. A backend
    that takes its key in another header, `key_header`, never gets a client's key. The
    operator's `headers` are sent with every request. Questions have a pool of
    connections of their own, documents go through httpx; a `transport` of httpx takes both.
    """

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        key_header: str = AUTHORIZATION,
    ) -> None:
        if _UNSENDABLE.search(api_key):
            raise errors.InvalidConfiguration(
                "backend.api_key", "must be one line of plain characters"
            )
        self.name = root_of(url)
        is_bearer = key_header == AUTHORIZATION
        self._forwarded = FORWARDED_HEADERS - (frozenset() if is_bearer else {AUTHORIZATION})
        written = f"Bearer {api_key}" if is_bearer else api_key
        self._key = {key_header: written} if api_key else {}
        self.confidential = Confidential((api_key, *(headers or {}).values()))
        self._timeouts = timeouts or Timeouts()
        # certificates take longer to load than everything else here
        security = httpx.create_ssl_context() if self.name.startswith("https:") else None
        own = {name.lower(): value for name, value in (headers or {}).items()}
        self._standing = {**_OWN_HEADERS, **own}
        connect = self._timeouts.connect
        self._client = httpx.AsyncClient(
            headers=self._standing,
            # Everything behind the connect has deadlines of its own, see `BackendResponse`.
            timeout=httpx.Timeout(None, connect=connect),
            follow_redirects=False,
            trust_env=False,  # the environment's proxies are not for backends
            transport=transport or _transport(security, self._timeouts.lost),
        )
        address = httpx.URL(self.name)
        self._target = address.raw_path.rstrip(b"/").decode()
        self._netloc = address.netloc.decode()
        self._pool: connection_pool.ConnectionPool | None = None
        if transport is None:
            port = address.port or (80 if security is None else 443)
            host = address.raw_host.decode().strip("[]")
            endpoint = connection_pool.Endpoint(host, port, security)
            self._pool = connection_pool.ConnectionPool(endpoint, connect, self._timeouts.lost)

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        await self._client.aclose()

    def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        may_pause: bool = False,
        method: str = "POST",
    ) -> BackendResponse:
        """Send a JSON body; the context of the result begins with the head of the answer.

        A backend that `may_pause` within its reply gets as much time there as before it.
        """
        own = {**self._allow_headers(headers), "content-type": "application/json"}
        first_byte = self._timeouts.first_byte
        idle = first_byte if may_pause else self._timeouts.idle
        return BackendResponse(self, (method, path, own, body), first_byte=first_byte, idle=idle)

    async def get(self, path: str, *, patience: float | None = None) -> WholeResponse:
        """Fetch a small document, all of it within `patience` seconds."""
        within = self._timeouts.lookup if patience is None else patience
        deadline = asyncio.get_running_loop().time() + within
        request = ("GET", path, self._allow_headers({}), b"")
        async with BackendResponse(self, request, first_byte=within, idle=within) as answer:
            with translate_errors(self.name):
                async with asyncio.timeout_at(deadline):
                    return await answer.whole()

    async def open(
        self, request: Outgoing, deadline: float
    ) -> connection_pool.Connection | _HttpxExchange:
        """Send a request and wait for its answer, which has to be released when it was read."""
        method, path, headers, body = request
        line: connection_pool.Connection | _HttpxExchange
        if self._pool is None or method != "POST":
            line = _HttpxExchange(await self._send(request, deadline))
        else:
            try:
                line = await self._pool.send(self._head(path, headers, len(body)), body, deadline)
            except _FAILURES as error:
                raise _meaning(self.name, error, mid_reply=False) from error
        # only what is read whole may come compressed: a document or an error
        is_whole = method == "GET" or line.status >= HTTPStatus.BAD_REQUEST
        if line.header(_ENCODING) not in _PLAIN and not is_whole:
            await self.release(line)
            raise errors.BackendSpokeNonsense(self.name, "sent a compressed body nobody asked for")
        return line

    async def release(self, arriving: connection_pool.Connection | _HttpxExchange) -> None:
        """Release an answer; the unread rest is cancelled."""
        if isinstance(arriving, _HttpxExchange):
            await arriving.close()
        elif self._pool is not None:
            self._pool.release(arriving)

    def _allow_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {name: headers[name] for name in self._forwarded if name in headers} | self._key

    def _head(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        """Write the head of a request, a client's values in latin-1 as they came in."""
        lines = [f"{name}: {value}\r\n" for name, value in {**self._standing, **headers}.items()]
        return (
            f"POST {self._target}{path} HTTP/1.1\r\n"
            f"host: {self._netloc}\r\n"
            "connection: keep-alive\r\n"
            f"{''.join(lines)}content-length: {length}\r\n\r\n"
        ).encode("latin-1", "replace")

    async def _send(self, request: Outgoing, deadline: float) -> httpx.Response:
        method, path, headers, body = request
        # Header values came in as latin-1 and leave as latin-1; httpx would insist on ASCII.
        encoded = [
            (name.encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in headers.items()
        ]
        url = self.name + path
        written = self._client.build_request(method, url, content=body, headers=encoded)
        with translate_errors(self.name):
            async with asyncio.timeout_at(deadline):
                try:
                    return await self._client.send(written, stream=True)
                except (httpx.RemoteProtocolError, httpx.ReadError):
                    # a kept connection that the backend had closed meanwhile
                    return await self._client.send(written, stream=True)


def _transport(security: ssl.SSLContext | None, lost: float) -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(
        verify=security or _INSECURE,
        limits=httpx.Limits(keepalive_expiry=connection_pool.KEEP_ALIVE),
        socket_options=connection_pool.acknowledged_within(lost),
    )


def root_of(url: str) -> str:
    """Return a base URL with its scheme but without a trailing slash and `/v1`.

    Raises InvalidConfiguration for an invalid address, or one with credentials: addresses appear
    in headers and logs.
    """
    written = url.strip()
    try:
        parsed = httpx.URL(written if "://" in written else f"http://{written}")
    except httpx.InvalidURL as error:
        raise errors.InvalidConfiguration(_SETTING, "is not a URL") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise errors.InvalidConfiguration(
            _SETTING, "should be an address like http://127.0.0.1:8080"
        )
    if parsed.userinfo:
        raise errors.InvalidConfiguration(
            _SETTING, "must not contain credentials: use backend.api_key"
        )
    if parsed.query or parsed.fragment:
        raise errors.InvalidConfiguration(_SETTING, "must not have a query or a fragment")
    return str(parsed).rstrip("/").removesuffix("/v1").rstrip("/")
