"""Clients that send requests and misbehave according to a plan."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import httpx

from benchmarks.faults.demands import Received
from benchmarks.faults.material import Manner, Plan
from benchmarks.faults.reading import read_body, read_stream

_EARLY_SECONDS = 0.3
_REQUEST_SENT = (
    "http11.send_request_headers.complete"  # an event name of httpcore's trace extension
)
_AMID_BYTES = 2_000  # received bytes after which a client disconnects within the response
_SLOW_BYTES, _SLOW_SECONDS = 16_384, 0.01
# of slow clients; a large buffer would receive the data before the client reads it
_SMALL_BUFFER = 32_768
# shorter than any server's keep-alive, so the server has not closed a reused connection
_REST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds: the client's limit for a response, and the server's stall timeout."""

    answer: float
    stall: float


@dataclass(frozen=True, slots=True)
class Sent:
    """A finished request: the response, and the monotonic time at which the request ended."""

    over: float
    received: Received


class Clients:
    """The clients of one run, which share connections to the server."""

    def __init__(self, url: str, limits: TimeLimits) -> None:
        connections = httpx.Limits(max_connections=None, keepalive_expiry=_REST_SECONDS)
        usual = httpx.AsyncHTTPTransport(verify=False, limits=connections)
        small = (socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        slow = httpx.AsyncHTTPTransport(verify=False, limits=connections, socket_options=[small])
        self._usual, self._slow = (
            httpx.AsyncClient(
                base_url=url, transport=transport, trust_env=False, timeout=limits.answer
            )
            for transport in (usual, slow)
        )
        self._limits = limits

    async def close(self) -> None:
        await self._usual.aclose()
        await self._slow.aclose()

    async def send(self, number: int, plan: Plan) -> Sent:
        """Send a request and return its result; never raises."""
        if plan.manner is not Manner.SENDS_TWICE:
            return await self._send(number, plan)
        once, again = await asyncio.gather(self._send(number, plan), self._send(number, plan))
        if once.received != again.received:
            again.received.problem = (
                again.received.problem or f"two answers for one key: {once.received}"
            )
        return again

    async def _send(self, number: int, plan: Plan) -> Sent:
        exchange = _Exchange(self._client_for(plan.manner), number, plan, self._limits)
        try:
            async with asyncio.timeout(self._limits.answer):
                await exchange.run()
        except TimeoutError:
            exchange.received.problem = f"no end after {self._limits.answer:g} s"
        except (httpx.HTTPError, OSError) as error:
            exchange.received.problem = f"the connection broke: {error!r}"
        return Sent(exchange.over or time.monotonic(), exchange.received)

    def _client_for(self, manner: Manner) -> httpx.AsyncClient:
        is_slow = manner in (Manner.READS_SLOWLY, Manner.STOPS_READING)
        return self._slow if is_slow else self._usual


class _Exchange:
    """One request in progress; `over` is the time at which the client disconnected, otherwise 0."""

    def __init__(
        self, client: httpx.AsyncClient, number: int, plan: Plan, limits: TimeLimits
    ) -> None:
        self.received = Received()
        self.over = 0.0
        self._client = client
        self._plan = plan
        self._id = f"soak-{number}"
        self._limits = limits
        self._disconnect_timeout: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Send the request, and disconnect if the plan says so."""
        if self._plan.manner not in (
            Manner.DISCONNECTS_EARLY,
            Manner.DISCONNECTS_WHILE_SENDING,
        ):
            await self._exchange()
            return
        try:
            async with asyncio.timeout(None) as self._disconnect_timeout:
                await self._exchange()
        except TimeoutError:
            self._disconnect()

    async def _exchange(self) -> None:
        if self._plan.manner is Manner.STOPS_SENDING:
            await self._stall_sending()
            return
        request = self._plan.request
        headers = {**request.headers, "x-request-id": self._id}
        streaming = self._client.stream(
            request.method,
            request.path,
            content=self._content(headers),
            headers=headers,
            extensions={"trace": self._follow},
        )
        async with streaming as response:
            body = await self._read(response)
            if not self.received.is_disconnected:
                self.received = _read(response, body)
                if response.headers.get("x-request-id") != self._id:
                    self.received.problem = self.received.problem or "another request's id"

    async def _follow(self, event: str, _: object) -> None:
        """Let the client disconnect `_EARLY_SECONDS` after it has sent the request."""
        if event == _REQUEST_SENT and self._disconnect_timeout is not None:
            self._disconnect_timeout.reschedule(asyncio.get_running_loop().time() + _EARLY_SECONDS)

    def _content(self, headers: dict[str, str]) -> bytes | AsyncGenerator[bytes, None]:
        body = self._plan.request.body
        if self._plan.manner is not Manner.DISCONNECTS_WHILE_SENDING:
            return body
        headers["content-length"] = str(len(body))
        return _half_then_block(body)

    async def _read(self, response: httpx.Response) -> bytes:
        manner = self._plan.manner
        size = _SLOW_BYTES if manner is Manner.READS_SLOWLY else None
        body = bytearray()
        async for piece in response.aiter_raw(size):
            body += piece
            if manner is Manner.READS_SLOWLY:
                await asyncio.sleep(_SLOW_SECONDS)
            elif manner is Manner.DISCONNECTS_WITHIN_RESPONSE and len(body) > _AMID_BYTES:
                self._disconnect()
                break
            elif manner is Manner.STOPS_READING:
                await self._stall()
                break
        return bytes(body)

    async def _stall(self) -> None:
        """Stop reading for twice the server's stall timeout."""
        await asyncio.sleep(2 * self._limits.stall)
        self._disconnect()

    async def _stall_sending(self) -> None:
        """Send half of the request, and wait for a response.

        httpx reads no response before it has sent the whole request, so a raw connection is used.
        """
        request, url = self._plan.request, self._client.base_url
        lines = [f"POST {request.path} HTTP/1.1", f"host: {url.netloc.decode()}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        head = "\r\n".join([*lines, f"content-length: {len(request.body)}", "", ""])
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(head.encode() + request.body[: len(request.body) // 2])
            answer = await reader.read()
        finally:
            writer.close()
        response_head, end, body = answer.partition(b"\r\n\r\n")
        if end:
            self.received = read_body(int(response_head.split(b" ")[1]), body, {})

    def _disconnect(self) -> None:
        self.received.is_disconnected = True
        self.over = time.monotonic()


async def _half_then_block(body: bytes) -> AsyncGenerator[bytes, None]:
    """Yield half of a body, then block."""
    yield body[: len(body) // 2]
    await asyncio.Event().wait()


def _read(response: httpx.Response, body: bytes) -> Received:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return read_stream(body)
    report = {
        name.removeprefix("x-temper-"): value
        for name, value in response.headers.items()
        if name.startswith("x-temper-")
    }
    return read_body(response.status_code, body, report)
