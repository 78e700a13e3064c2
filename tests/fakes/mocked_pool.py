"""A backend's connection pool over an httpx transport, such as a mock."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import httpx

from proxy.backends.connection_pool import (
    BrokenOff,
    Connection,
    ConnectionPool,
    Endpoint,
    NotReached,
)


class MockedPool(ConnectionPool):
    """Sends every request to `transport`; keeps no connection alive."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        super().__init__(Endpoint("host", 80), 5.0)
        self._transport = transport

    async def send(self, head: bytes, body: bytes, deadline: float) -> Connection:
        line, *lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        url = f"http://{headers['host']}{target}"
        request = httpx.Request(method, url, headers=encoded, content=body)
        with _translated_errors():
            async with asyncio.timeout_at(deadline):
                return _MockedConnection(await self._transport.handle_async_request(request))


class _MockedConnection(Connection):
    def __init__(self, response: httpx.Response) -> None:
        super().__init__(asyncio.get_running_loop())
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self.status = response.status_code
        self._response = response
        self._pieces = aiter(response.stream)

    def header(self, name: bytes) -> str:
        return str(self._response.headers.get(name.decode(), ""))

    async def receive(self, deadline: float) -> bytes:
        with _translated_errors():
            async with asyncio.timeout_at(deadline):
                while (piece := await anext(self._pieces, None)) == b"":
                    pass
        return piece or b""

    def close(self) -> None:
        closing = asyncio.ensure_future(self._response.aclose())
        closing.add_done_callback(lambda _: None)


@contextmanager
def _translated_errors() -> Generator[None, None, None]:
    """Translate the exceptions of httpx into those of a connection."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NotReached(str(error)) from error
    except httpx.TimeoutException as error:
        raise TimeoutError from error
    except httpx.TransportError as error:
        raise BrokenOff from error
