import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from proxy.api import half_closed
from proxy.api.half_closed import DepartureCheck
from proxy.api.server import listen
from tests.timeouts import with_timeout


@asynccontextmanager
async def accept_connection() -> AsyncGenerator[
    tuple[socket.socket, asyncio.Transport, asyncio.Event]
]:
    """Yield a client's socket, the server's transport, and an event for the transport's end."""
    lost = asyncio.Event()
    made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.set_result(cast("asyncio.Transport", transport))

        def eof_received(self) -> bool:
            return True

        def connection_lost(self, exc: Exception | None) -> None:
            lost.set()

    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        server = await asyncio.get_running_loop().create_server(Server, sock=listening)
        with socket.create_connection(listening.getsockname()) as client:
            transport = await made
            yield client, transport, lost
            transport.abort()
        server.close()


@with_timeout
async def test_a_client_that_closed_its_socket_is_detected() -> None:
    async with accept_connection() as (client, transport, lost):
        check = DepartureCheck(transport, lambda: transport.write(b"x"))
        client.close()
        check.start()
        await lost.wait()


@with_timeout
async def test_a_half_closed_client_that_still_reads_is_probed_and_stays_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(half_closed, "_AGAIN_SECONDS", 0.0)
    probes = asyncio.Semaphore(0)
    async with accept_connection() as (client, transport, lost):
        check = DepartureCheck(transport, probes.release)
        client.shutdown(socket.SHUT_WR)
        check.start()
        for _ in range(3):
            await probes.acquire()
        check.stop()
        assert not lost.is_set()


@with_timeout
async def test_a_client_that_disconnects_later_is_noticed_by_a_later_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(half_closed, "_AGAIN_SECONDS", 0.0)
    async with accept_connection() as (client, transport, lost):
        probed = asyncio.Event()

        def probe() -> None:
            transport.write(b"x")
            probed.set()

        client.shutdown(socket.SHUT_WR)
        DepartureCheck(transport, probe).start()
        await probed.wait()
        client.close()
        await lost.wait()


async def test_a_departure_check_that_was_never_started_can_be_stopped() -> None:
    async with accept_connection() as (_, transport, _lost):
        DepartureCheck(transport, lambda: None).stop()
