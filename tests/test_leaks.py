"""What looks for forgotten sockets: it finds those of an event loop that is over."""

import asyncio
import contextlib
import gc
import socket
import weakref

import pytest

from tests.leaks import left_open, open_sockets


class _Forgotten:
    """Nobody keeps it."""


async def connect(listener: socket.socket) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(asyncio.Protocol, *listener.getsockname()))[0]


def collect(forgotten: list[asyncio.Transport]) -> None:
    forgotten.clear()
    gc.collect()


@pytest.mark.deep
def test_a_connection_that_outlives_its_loop_is_found() -> None:
    before = open_sockets()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        forgotten = [asyncio.run(connect(listener))]
        port = forgotten[0].get_extra_info("sockname")[1]
        new = open_sockets() - before
        (found,) = left_open(new)
    assert len(new) == 2
    assert f"'127.0.0.1', {port}" in found
    with pytest.warns(ResourceWarning, match="unclosed"):
        collect(forgotten)
    assert open_sockets() == before


def test_what_a_loop_or_a_fixture_still_uses_is_not_blamed_on_a_test() -> None:
    async def scene(listener: socket.socket) -> None:
        transport = await connect(listener)
        assert left_open(open_sockets()) == []
        transport.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(scene(listener))
        with contextlib.closing(socket.create_connection(listener.getsockname())):
            assert left_open(open_sockets()) == []


def test_a_proxy_of_what_is_gone_does_not_keep_others_from_being_looked_at() -> None:
    dead = weakref.proxy(_Forgotten())
    with socket.create_server(("127.0.0.1", 0)):
        assert left_open(open_sockets()) == []
    with pytest.raises(ReferenceError):
        str(dead)
