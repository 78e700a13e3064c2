"""One backend's HTTP client: allowed headers, timeouts and size limits.

    connect      first_byte                      idle        idle
    |----------->|------------------------------>|---------->|---------->| end of the body
    lost: at any time, without an acknowledgment from the host

Only this module converts connection failures to `BackendFailed`. It does not parse any content.
"""

import asyncio
import math
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType

import httpx

from proxy import bounds, errors
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.connection_pool import (
    LOST_SECONDS,
    BrokenOff,
    Connection,
    ConnectionPool,
    ConnectionPoolError,
    Endpoint,
    NotHttp,
    NotReached,
    PeerLost,
)
from proxy.backends.refusals import Confidential

# A client's header outside this list could change what the backend does: llama-server lets a stream
# with X-Conversation-Id outlive its connection, so the generation would continue after the client
# has disconnected.
AUTHORIZATION = "authorization"
FORWARDED_HEADERS = frozenset(
    {AUTHORIZATION, "traceparent", "tracestate", "x-request-id", PREFIX_HEADER}
)

LINGER = 0.1  # seconds to wait for the end of a body that is not needed
END_SECONDS = 0.8  # seconds from the finish reason to the end of the body

_OWN_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "temper"}
# control characters except the tab; a line break would begin another header
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FAILURES = (ConnectionPoolError, OSError)
_SETTING = "backend.url"
_ENCODING = b"content-encoding"
_PLAIN = ("", "identity")  # values of Content-Encoding for a body that is not compressed


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The limits for a silent backend, in seconds.

    `connect` limits the time to open a connection. `first_byte` limits the whole time until the
    first byte of a body. `idle` limits the time between two bytes. `lookup` limits the time for a
    whole small document. `lost` limits the time without an acknowledgment from the host's kernel.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 120.0
    lookup: float = 10.0
    lost: float = LOST_SECONDS


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """A whole small response; `retry_after` and `server` are header values, or empty."""

    status: int
    body: bytes
    retry_after: str = ""
    server: str = ""


def translate(backend: str, error: Exception, *, mid_reply: bool) -> errors.BackendFailed:
    """Convert a connection failure; `mid_reply` is True once the head of the response arrived."""
    match error:
        case NotReached():
            return errors.BackendUnavailable(
                backend, f"cannot be reached ({error})", is_unreached=True
            )
        case BrokenOff(is_unread=True):
            problem = "closed the connection unexpectedly"
            return errors.BackendUnavailable(backend, problem, is_unreached=True)
        case TimeoutError():
            return errors.BackendTimedOut(backend, "sent no data in time")
        case NotHttp() if not mid_reply:
            return errors.BackendReplyInvalid(backend, "sent invalid HTTP", error.sample)
        case PeerLost():
            return errors.BackendUnavailable(backend, "is no longer reachable over the network")
        case _:
            return errors.BackendUnavailable(backend, "closed the connection unexpectedly")


class BackendResponse:
    """A backend's response to a request; leaving its context cancels an incomplete response.

    The first byte has to arrive within `first_byte` seconds, and each later byte within `idle`
    seconds. If `idle` is None, the whole body has to arrive within `first_byte` seconds. Secrets
    are redacted in protocol errors, because these may quote the request.
    """

    # a class, because a generator-based context manager costs more per request

    def __init__(
        self,
        client: "BackendClient",
        head: bytes,
        body: bytes,
        *,
        first_byte: float,
        idle: float | None,
    ) -> None:
        self._client = client
        self._pool = client.documents if idle is None else client.chats
        self._head, self._body = head, body
        self._received = 0
        self._idle = idle
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + first_byte
        self._end_by = math.inf
        self._is_late = False
        self._connection: Connection

    async def __aenter__(self) -> "BackendResponse":
        client = self._client
        try:
            self._connection = await self._pool.send(self._head, self._body, self._deadline)
        except _FAILURES as error:
            failure = translate(client.name, error, mid_reply=False)
            if isinstance(failure, errors.BackendReplyInvalid):
                self._redact(failure)
            raise failure from error
        # only documents and errors may be compressed, because they are read whole
        is_whole = self._idle is None or self.status >= HTTPStatus.BAD_REQUEST
        if not is_whole and self._connection.header(_ENCODING) not in _PLAIN:
            self._pool.release(self._connection)
            raise errors.BackendReplyInvalid(
                client.name, "sent a compressed body, which was not requested"
            )
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._pool.release(self._connection)
        if isinstance(error, errors.BackendReplyInvalid):
            self._redact(error)

    def _redact(self, error: errors.BackendReplyInvalid) -> None:
        error.sample = self._client.confidential.redact(error.sample)

    @property
    def status(self) -> int:
        return self._connection.status

    @property
    def retry_after(self) -> str:
        return self._connection.header(b"retry-after")

    @property
    def is_whole(self) -> bool:
        return self._connection.is_over

    async def next_chunk(self) -> bytes:
        """Return more of the body as it arrives; b"" at its end.

        After `expect_end`, the result is also b"" once `END_SECONDS` have passed.
        """
        if self._is_late:
            return b""
        self._is_late = self._clock() >= self._end_by  # bytes that have arrived are still read
        try:
            chunk = await self._connection.receive(min(self._deadline, self._end_by))
        except TimeoutError as error:
            if self._end_by < self._deadline:
                return b""
            raise translate(self._client.name, error, mid_reply=True) from error
        except _FAILURES as error:
            raise translate(self._client.name, error, mid_reply=True) from error
        if self._idle is not None:
            self._deadline = self._clock() + self._idle
        self._received += len(chunk)
        if self._received > bounds.STREAM_BYTES:
            problem = f"sent an endless reply of more than {bounds.STREAM_BYTES} bytes"
            raise errors.BackendReplyInvalid(self._client.name, problem, is_endless=True)
        return chunk

    @property
    def is_end_expected(self) -> bool:
        return self._end_by < math.inf

    def expect_end(self) -> None:
        """Wait at most `END_SECONDS` for the end of the body.

        Some engines never end it after the finish reason (vllm-mlx#101).
        """
        self._end_by = self._clock() + END_SECONDS

    def set_sink(self, sink: Callable[[bytes], bool]) -> None:
        """Offer each chunk to a sink first; `next_chunk` skips the chunks that the sink takes."""

        def take(chunk: bytes) -> bool:
            received = self._received + len(chunk)
            if received > bounds.STREAM_BYTES or not sink(chunk):
                return False
            self._received = received
            return True

        self._connection.set_sink(take, self._idle or 0.0)

    async def read_all(self, limit: int = bounds.DOCUMENT_BYTES) -> WholeResponse:
        """Return the whole body, at most `limit` bytes."""
        received = bytearray()
        while len(received) < limit and (chunk := await self.next_chunk()):
            received += chunk
        body = bytes(received[:limit])
        if self._connection.header(_ENCODING) not in _PLAIN:
            try:
                # with a limit, because 1 kB may expand to 1 MB
                gzip_or_deflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
                body = gzip_or_deflate.decompress(body, limit)
            except zlib.error:
                body = b""
        if self.status >= HTTPStatus.BAD_REQUEST:
            body = self._client.confidential.redact(body)
        server = self._connection.header(b"server")
        return WholeResponse(self.status, body, self.retry_after, server)

    async def linger(self) -> None:
        """Wait briefly for the end of a body that is not needed any more.

        The end is usually in the packet that was read last. Only a connection that was read to the
        end of a body can be reused.
        """
        self._deadline = self._clock() + LINGER
        with suppress(errors.BackendFailed):
            await self.next_chunk()


class BackendClient:
    """One backend's HTTP client.

    `api_key` is sent in the header `key_header`: in Authorization as a bearer token, in any other
    header unchanged. The client's Authorization is forwarded only if `key_header` is Authorization
    and there is no `api_key`. The operator's `headers` are sent with every request. Tests replace
    the `pool`.
    """

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        pool: ConnectionPool | None = None,
        key_header: str = AUTHORIZATION,
    ) -> None:
        if _UNSENDABLE.search(api_key):
            raise errors.InvalidConfiguration(
                "backend.api_key", "must be one line of plain characters"
            )
        self.name = root_of(url)
        is_bearer = key_header == AUTHORIZATION
        self._forwarded = FORWARDED_HEADERS - (frozenset() if is_bearer else {AUTHORIZATION})
        credentials = f"Bearer {api_key}" if is_bearer else api_key
        self._key = {key_header: credentials} if api_key else {}
        self.confidential = Confidential((api_key, *(headers or {}).values()))
        self._timeouts = timeouts or Timeouts()
        # loading certificates is slow, so they are loaded only for https addresses
        security = httpx.create_ssl_context() if self.name.startswith("https:") else None
        configured = {name.lower(): value for name, value in (headers or {}).items()}
        address = httpx.URL(self.name)
        self._target = address.raw_path.rstrip(b"/").decode()
        defaults = {"host": address.netloc.decode(), "connection": "keep-alive", **_OWN_HEADERS}
        configured.pop("content-length", None)  # `_head` sends it
        self._constant_headers = {**defaults, **configured}
        self._constant_lines = _write_lines(self._constant_headers)
        port = address.port or (80 if security is None else 443)
        endpoint = Endpoint(address.raw_host.decode().strip("[]"), port, security)
        limits = self._timeouts
        # Chats and documents have separate pools, so a chat never reuses the connection of a
        # document. A request is sent again if the server has closed the reused connection.
        self.chats = pool or ConnectionPool(endpoint, limits.connect, limits.lost)
        self.documents = pool or ConnectionPool(endpoint, limits.connect, limits.lost)

    async def close(self) -> None:
        self.chats.close()
        self.documents.close()

    def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        may_pause: bool = False,
        method: str = "POST",
    ) -> BackendResponse:
        """Return a context manager that sends a JSON body and waits for the response's head.

        If the backend `may_pause` within its reply, the long timeout for the first byte applies to
        every later byte as well.
        """
        sent = {**self._allow_headers(headers), "content-type": "application/json"}
        first_byte = self._timeouts.first_byte
        idle = first_byte if may_pause else self._timeouts.idle
        head = self._head(method, path, sent, len(body))
        return BackendResponse(self, head, body, first_byte=first_byte, idle=idle)

    async def fetch(
        self,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        within: float | None = None,
        limit: int = bounds.DOCUMENT_BYTES,
    ) -> WholeResponse:
        """Fetch a small document: with POST if there is a JSON `body`, else with GET.

        The whole document has to arrive `within` this many seconds. It is cut off after `limit`
        bytes.
        """
        sent = self._allow_headers(headers)
        if body:
            sent["content-type"] = "application/json"
        head = self._head("POST" if body else "GET", path, sent, len(body))
        first_byte = self._timeouts.lookup if within is None else within
        async with BackendResponse(self, head, body, first_byte=first_byte, idle=None) as answer:
            return await answer.read_all(limit)

    def _allow_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {name: headers[name] for name in self._forwarded if name in headers} | self._key

    def _head(self, method: str, path: str, headers: Mapping[str, str], length: int) -> bytes:
        """Write the head of a request.

        The client's header values were decoded as Latin-1, so they are encoded as Latin-1.
        """
        # a header of the request replaces a constant header of the same name
        constant = self._constant_lines
        if not self._constant_headers.keys().isdisjoint(headers):
            constant, headers = "", {**self._constant_headers, **headers}
        size = f"content-length: {length}\r\n" if length else ""
        lines = f"{constant}{_write_lines(headers)}{size}"
        head = f"{method} {self._target}{path} HTTP/1.1\r\n{lines}\r\n"
        return head.encode("latin-1", "replace")


def _write_lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def root_of(url: str) -> str:
    """Return a base URL with its scheme but without a trailing slash and `/v1`.

    Raises InvalidConfiguration for an invalid address, and for an address with credentials, because
    addresses appear in headers and logs.
    """
    address = url.strip()
    try:
        parsed = httpx.URL(address if "://" in address else f"http://{address}")
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
