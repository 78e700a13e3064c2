import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.backends.connecting import addresses_of, first_connected

Attempt = Callable[[], Awaitable[str]]


class Addresses:
    """What becomes of attempts to connect; notes what was tried, dropped and given up."""

    def __init__(self, **attempts: Attempt) -> None:
        self.attempts = attempts
        self.tried: list[str] = []
        self.dropped: list[str] = []
        self.given_up: list[str] = []

    async def connect(self, address: str) -> str:
        self.tried.append(address)
        try:
            return await self.attempts[address]()
        except asyncio.CancelledError:
            self.given_up.append(address)
            raise

    async def first(self) -> str:
        return await first_connected([*self.attempts], self.connect, self.dropped.append)


async def good() -> str:
    return "good"


async def refusing() -> str:
    raise ConnectionRefusedError("nobody there")


async def unreachable() -> str:
    raise OSError("no route")


async def swallowing() -> str:
    await asyncio.Event().wait()
    return "never"


async def stubborn() -> str:
    """Connect just when nobody wants it any more."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "late"
    return "never"


def test_the_first_address_is_enough_if_it_is_good() -> None:
    addresses = Addresses(a=good, b=good)
    assert asyncio.run(addresses.first()) == "good"
    assert addresses.tried == ["a"]


def test_a_refusal_is_followed_by_the_next_address_at_once() -> None:
    addresses = Addresses(a=refusing, b=unreachable, c=good)
    assert asyncio.run(addresses.first()) == "good"
    assert addresses.tried == ["a", "b", "c"]


def test_where_all_refuse_the_first_refusal_is_told() -> None:
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(Addresses(a=refusing, b=unreachable).first())


def test_an_address_that_swallows_everything_has_a_head_start_and_no_more() -> None:
    addresses = Addresses(a=swallowing, b=good)
    assert asyncio.run(addresses.first()) == "good"
    assert addresses.given_up == ["a"]


def test_what_is_connected_too_many_is_dropped() -> None:
    async def scene() -> None:
        both = asyncio.Event()

        async def together() -> str:
            both.set() if addresses.tried == ["a", "b"] else None
            await both.wait()
            return "good"

        addresses = Addresses(a=together, b=together)
        assert await addresses.first() == "good"
        assert addresses.dropped == ["good"]
        late = Addresses(a=stubborn, b=good)
        assert await late.first() == "good"
        for _ in range(3):
            await asyncio.sleep(0)
        assert late.dropped == ["late"]

    asyncio.run(scene())


def test_who_stops_waiting_stops_every_attempt() -> None:
    async def scene() -> None:
        addresses = Addresses(a=swallowing, b=refusing)
        waiting = asyncio.create_task(addresses.first())
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        assert addresses.given_up == ["a"]

    asyncio.run(scene())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_is_its_own(address: str) -> None:
    assert asyncio.run(addresses_of(address, 1)) == [address]


def test_a_name_has_every_address_once() -> None:
    assert "127.0.0.1" in asyncio.run(addresses_of("localhost", 1))
    found = asyncio.run(addresses_of("localhost", 1))
    assert len(found) == len(set(found))
