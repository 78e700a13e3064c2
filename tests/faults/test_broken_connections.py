"""Connections that the server closes: when a request is sent again, and when it fails."""

import asyncio
import socket

import pytest

from benchmarks.faults.toxics import Caller
from proxy.backends.connection_pool import BrokenOff, Connection, ConnectionPool, Endpoint
from tests.fakes.connections import HEAD, OK, SOON, exchange, later, play, send
from tests.fakes.raw_backend import RawBackend


def test_a_request_on_a_new_connection_that_the_server_closes_is_not_sent_again() -> None:
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
async def test_a_connection_that_the_server_closes_without_a_response_raises_broken_off(
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


def test_a_request_is_not_sent_again_if_the_server_closes_within_the_response_head() -> None:
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


async def test_a_request_on_a_closed_connection_raises_broken_off() -> None:
    line = Connection(asyncio.get_running_loop())
    line.connection_lost(None)
    with pytest.raises(BrokenOff):
        await line.begin(HEAD, b"", later())
