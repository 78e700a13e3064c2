"""One backend's HTTP connection: what may go out, how long and how much may come back.

Every failure of the HTTP library becomes a `BackendFailed` here and nowhere else. This module
must not know what is asked or what an answer means.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from proxy.backends.address import root_of
from proxy.errors import BackendFailed, BackendSpokeNonsense, BackendTimedOut, BackendUnavailable

# A client's header outside this list could change what the backend does: llama-server lets a
# stream with X-Conversation-Id outlive its connection, so a closed client would cancel nothing.
FORWARDED_HEADERS = frozenset({"authorization", "traceparent", "x-request-id"})

STREAM_LIMIT = 32 * 1024 * 1024
DOCUMENT_LIMIT = 1024 * 1024
LINGER = 0.1

# llama-server closes idle connections after 5 s; one that is given up earlier never breaks.
KEEP_ALIVE = 4.0

_INSECURE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_has_dialled: ContextVar[bool] = ContextVar("_has_dialled", default=False)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a backend may be silent, in seconds.

    `connect` is for the connection, `first_byte` for the whole time until the first byte of a
    body, `idle` for the time between bytes, and `lookup` for a whole small document.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 120.0
    lookup: float = 10.0


@dataclass(frozen=True, slots=True)
class Document:
    """A whole small answer; `retry_after` is the header as it came, or empty."""

    status: int
    body: bytes
    retry_after: str = ""


@contextmanager
def translated_errors(backend: str, *, mid_reply: bool = False) -> Iterator[None]:
    """Turn every error of the HTTP library into the `BackendFailed` it means."""
    try:
        yield
    except (aiohttp.ClientError, httpx.InvalidURL, httpx.StreamError) as error:
        raise _meaning(backend, error, mid_reply=mid_reply) from error
    except (TimeoutError, httpx.HTTPError) as error:
        # what the transport makes of an error says less than the error itself
        cause = error.__cause__
        told = cause if isinstance(cause, aiohttp.ClientError) else error
        raise _meaning(backend, told, mid_reply=mid_reply) from error


def _meaning(backend: str, error: Exception, *, mid_reply: bool) -> BackendFailed:
    match error:
        case (
            aiohttp.ClientConnectorError()
            | aiohttp.ConnectionTimeoutError()
            | aiohttp.InvalidURL()
            | httpx.ConnectError()
            | httpx.ConnectTimeout()
            | httpx.ProxyError()
            | httpx.UnsupportedProtocol()
            | httpx.InvalidURL()
        ):
            return BackendUnavailable(backend, f"cannot be reached ({error})")
        case TimeoutError() | httpx.TimeoutException():
            return BackendTimedOut(backend, "was silent for too long")
        case aiohttp.ClientResponseError() if not mid_reply:
            return _nonsense(backend, "does not speak HTTP", error)
        case httpx.DecodingError() | httpx.TooManyRedirects():
            return _nonsense(backend, "sent a body that cannot be decoded", error)
        case _:
            return BackendUnavailable(backend, "broke off the connection")


def _nonsense(backend: str, problem: str, error: Exception) -> BackendSpokeNonsense:
    return BackendSpokeNonsense(backend, problem, str(error).encode("utf-8", "replace"))


class Answer:
    """A backend's response, of which the body is still arriving."""

    def __init__(
        self, backend: str, response: httpx.Response, *, deadline: float, idle: float
    ) -> None:
        self._backend = backend
        self._response = response
        # Nothing but identity was asked for; undoing nothing in two more generators has its price.
        is_plain = "content-encoding" not in response.headers
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - of an AsyncClient
        self._stream = aiter(response.stream) if is_plain else response.aiter_bytes()
        self._received = 0
        self._deadline = deadline
        self._idle = idle

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status_code

    @property
    def retry_after(self) -> str:
        """The Retry-After header as it came, or empty."""
        return str(self._response.headers.get("retry-after", ""))

    async def next_chunk(self) -> bytes:
        """Return more of the body as it arrives; empty at its end."""
        with translated_errors(self._backend, mid_reply=True):
            async with asyncio.timeout_at(self._deadline):
                chunk = await anext(self._stream, b"")
        self._deadline = asyncio.get_running_loop().time() + self._idle
        self._received += len(chunk)
        if self._received > STREAM_LIMIT:
            raise BackendSpokeNonsense(self._backend, "sent a reply without an end")
        return chunk

    async def read(self, limit: int) -> bytes:
        """Return the first `limit` bytes of the body."""
        body = bytearray()
        while len(body) < limit and (chunk := await self.next_chunk()):
            body += chunk
        return bytes(body[:limit])

    async def whole(self) -> Document:
        """Return all of it, a small document: at most `DOCUMENT_LIMIT` bytes."""
        return Document(self.status, await self.read(DOCUMENT_LIMIT), self.retry_after)

    async def linger(self) -> None:
        """Wait shortly for the end of a body of which nothing more is wanted.

        It usually sits in the packet that was read last. A connection read to the end of a body
        can be used again, any other is closed.
        """
        self._deadline = asyncio.get_running_loop().time() + LINGER
        with suppress(BackendFailed):
            await self.next_chunk()


class Connection:
    """One backend's HTTP client.

    `api_key` is sent as a bearer token; without one a client's own Authorization travels on. The
    operator's `headers` are sent with every request.
    """

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._root = root_of(url)
        self._authorization = f"Bearer {api_key}" if api_key else ""
        self._timeouts = timeouts or Timeouts()
        wire = transport or open_transport(self._root)
        self._client = open_client(self._timeouts, wire, headers or {})

    @property
    def name(self) -> str:
        """The backend's address without credentials."""
        return self._root

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[Answer, None]:
        """Send a JSON body; leaving the context cancels what the backend still does."""
        content_type = {"content-type": "application/json"}
        request = self._request("POST", path, body, {**headers, **content_type})
        timeouts = self._timeouts
        deadline = asyncio.get_running_loop().time() + timeouts.first_byte
        response = await self._send(request, deadline)
        try:
            yield Answer(self.name, response, deadline=deadline, idle=timeouts.idle)
        finally:
            await response.aclose()

    async def get(self, path: str, *, patience: float | None = None) -> Document:
        """Fetch a small document, all of it within `patience` seconds."""
        request = self._request("GET", path, b"", {})
        within = self._timeouts.lookup if patience is None else patience
        deadline = asyncio.get_running_loop().time() + within
        response = await self._send(request, deadline)
        try:
            answer = Answer(self.name, response, deadline=deadline, idle=within)
            with translated_errors(self.name):
                async with asyncio.timeout_at(deadline):
                    return await answer.whole()
        finally:
            await response.aclose()

    def _request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> httpx.Request:
        allowed = {
            name: value
            for name, value in headers.items()
            if name in FORWARDED_HEADERS or name == "content-type"
        }
        if self._authorization:
            allowed["authorization"] = self._authorization
        # Header values came in as latin-1 and leave as latin-1; httpx would insist on ASCII.
        encoded = [
            (name.encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in allowed.items()
        ]
        return self._client.build_request(method, self._root + path, content=body, headers=encoded)

    async def _send(self, request: httpx.Request, deadline: float) -> httpx.Response:
        _has_dialled.set(False)
        with translated_errors(self.name):
            async with asyncio.timeout_at(deadline):
                try:
                    return await self._client.send(request, stream=True)
                except (httpx.TransportError, aiohttp.ClientError) as error:
                    # A kept-alive connection that the backend had closed meanwhile says nothing
                    # about this request; a connection made for it does.
                    if _has_dialled.get() or not _is_hang_up(error):
                        raise
                return await self._client.send(request, stream=True)


def _is_hang_up(error: Exception) -> bool:
    """Tell whether a connection broke that had been there."""
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
    if isinstance(cause, aiohttp.ClientConnectorError):
        return False
    hang_ups = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)
    return isinstance(cause, (*hang_ups, httpx.RemoteProtocolError, httpx.ReadError))


def open_client(
    timeouts: Timeouts, transport: httpx.AsyncBaseTransport, headers: Mapping[str, str]
) -> httpx.AsyncClient:
    """Make the HTTP client for one backend; the environment's proxies do not apply to it."""
    own = {"accept-encoding": "identity", "user-agent": "temper"}
    return httpx.AsyncClient(
        headers={**own, **{name.lower(): value for name, value in headers.items()}},
        # Everything behind the connect has deadlines of its own, see `Answer`.
        timeout=httpx.Timeout(None, connect=timeouts.connect),
        follow_redirects=False,
        trust_env=False,
        transport=transport,
    )


def open_transport(root: str) -> httpx.AsyncBaseTransport:
    """Make a transport for an address, with aiohttp below httpx's interface.

    One core carries three times the requests that way: httpx's own pool looks at every idle
    connection for each of them.
    """
    # certificates take longer to load than everything else here
    security = httpx.create_ssl_context() if root.startswith("https:") else _INSECURE

    def open_session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, ssl=security),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[_dialling()],
        )

    return AiohttpTransport(verify=security, client=open_session)


def _dialling() -> aiohttp.TraceConfig:
    """Notice whether a request had to open a connection of its own."""

    async def note(*_: object) -> None:
        _has_dialled.set(True)

    config = aiohttp.TraceConfig()
    config.on_connection_create_start.append(note)
    return config
