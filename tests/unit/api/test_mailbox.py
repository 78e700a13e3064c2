import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from proxy.api.mailbox import Mailbox


def run(work: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(5):
            await work

    asyncio.run(within())


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_what_was_put_is_taken_together_and_in_order() -> None:
    async def scene() -> None:
        box = Mailbox[int](10)
        for number in range(3):
            await box.put(number)
        assert await box.take() == [0, 1, 2]
        box.close()
        assert await box.take() == []

    run(scene())


def test_whoever_takes_waits_for_something_to_come() -> None:
    async def scene() -> None:
        box = Mailbox[int](10)
        taking = asyncio.create_task(box.take())
        await turns(2)
        assert not taking.done()
        await box.put(1)
        assert await taking == [1]

    run(scene())


def test_whoever_puts_waits_for_room() -> None:
    async def scene() -> None:
        box = Mailbox[int](2)
        await box.put(1)
        putting = asyncio.create_task(box.put(2))
        await turns(2)
        assert not putting.done()
        assert await box.take() == [1, 2]
        await putting

    run(scene())


def test_waiting_can_be_given_up() -> None:
    async def scene() -> None:
        box = Mailbox[int](1)
        for work in (box.take(), box.put(1)):
            waiting = asyncio.create_task(work)
            await turns(2)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
        assert await box.take() == [1]

    run(scene())


@given(
    st.integers(min_value=1, max_value=4),
    st.lists(st.integers(min_value=0, max_value=3), max_size=60),
    st.lists(st.integers(min_value=0, max_value=3), min_size=1, max_size=10),
)
def test_nothing_is_lost_and_nobody_hangs_at_any_pace(
    room: int, pauses: list[int], rests: list[int]
) -> None:
    async def scene() -> None:
        box = Mailbox[int](room)

        async def put_all() -> None:
            for number, pause in enumerate(pauses):
                await box.put(number)
                await turns(pause)
            box.close()

        putting = asyncio.create_task(put_all())
        taken: list[int] = []
        while batch := await box.take():
            assert len(batch) <= room
            taken += batch
            await turns(rests[len(taken) % len(rests)])
        await putting
        assert taken == list(range(len(pauses)))

    run(scene())
