import asyncio
import socket

import pytest

from benchmarks.faults.toxics import Caller
from proxy.backends.connection_pool import BrokenOff, Connection, ConnectionPool, Endpoint
from tests.fakes.connections import HEAD, OK, SOON, exchange, later, play, send
from tests.fakes.raw_backend import RawBackend


def test_new_connection_closed_by_the_server_is_not_retried() -> None:
    async def scene(pool: ConnectionPool, backend: RawBackend) -> None:
        with pytest.raises(BrokenOff):
            await send(pool)

    async def script(caller: Caller) -> None:
        await caller.request()

    assert play(scene, script).connections == 1


async def has_unexpected_data(connection: socket.socket) -> None:
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, news.set)
    await news.wait()
    loop.remove_reader(connection)


@pytest.mark.parametrize(("accepts", "reads"), [(False, False), (True, False), (True, True)])
async def test_request_unread_by_a_closing_server_is_reported(
    *, accepts: bool, reads: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        sending = asyncio.create_task(send(ConnectionPool(Endpoint(*address), SOON)))
        await has_unexpected_data(listening)
        if accepts:
            accepted, _ = listening.accept()
            await has_unexpected_data(accepted)
            if reads:
                accepted.recv(len(HEAD) + 2)
            accepted.close()
    with pytest.raises(BrokenOff) as raised:
        await sending
    error = raised.value
    assert error.is_unread is not reads


def test_connection_closed_within_a_head_is_not_retried() -> None:
    async def scene(pool: ConnectionPool, backend: RawBackend) -> None:
        await exchange(pool)
        with pytest.raises(BrokenOff):
            await send(pool)

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(OK)
        await caller.request()
        await caller.send(OK[:30])

    assert play(scene, script).connections == 1


async def test_connection_closed_before_its_use_is_reported_broken() -> None:
    line = Connection(asyncio.get_running_loop())
    line.connection_lost(None)
    with pytest.raises(BrokenOff):
        await line.begin(HEAD, b"", later())
