"""The search for leaked sockets reports exactly the sockets of a closed event loop."""

import asyncio
import contextlib
import gc
import socket
import weakref

import pytest

from tests.leaks import left_open, open_sockets


class _Forgotten:
    """An object without references."""


async def connect(listener: socket.socket) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(asyncio.Protocol, *listener.getsockname()))[0]


def collect(forgotten: list[asyncio.Transport]) -> None:
    forgotten.clear()
    gc.collect()


@pytest.mark.deep
def test_a_connection_whose_loop_is_closed_is_reported_as_leaked() -> None:
    before = open_sockets()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        forgotten = [asyncio.run(connect(listener))]
        port = forgotten[0].get_extra_info("sockname")[1]
        new = open_sockets() - before
        (leaked,) = left_open(new)
    assert len(new) == 2
    assert f"'127.0.0.1', {port}" in leaked
    with pytest.warns(ResourceWarning, match="unclosed"):
        collect(forgotten)
    assert open_sockets() == before


def test_sockets_of_a_running_loop_are_not_reported_as_leaked() -> None:
    async def scene(listener: socket.socket) -> None:
        transport = await connect(listener)
        assert left_open(open_sockets()) == []
        transport.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(scene(listener))
        with contextlib.closing(socket.create_connection(listener.getsockname())):
            assert left_open(open_sockets()) == []


def test_dead_weak_proxy_does_not_stop_the_search() -> None:
    dead = weakref.proxy(_Forgotten())
    with socket.create_server(("127.0.0.1", 0)):
        assert left_open(open_sockets()) == []
    with pytest.raises(ReferenceError):
        str(dead)
