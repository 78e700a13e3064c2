"""More requests than the backend has slots: they wait, take turns, and the queue has an end."""

import asyncio
from contextlib import suppress

import pytest

from proxy.api.app import Serving
from tests.fakes import spoken
from tests.fakes.front import Front, request, temper
from tests.fakes.scripted_backend import Script

pytestmark = pytest.mark.anyio

GOOD = spoken.calls("get_weather", '{"city": "Paris"}')


def with_slots(front: Front, slots: int) -> None:
    front.backend.properties = {"model_alias": "m", "total_slots": slots}


async def ask(front: Front, key: str, prompt: str, *, stream: bool = False) -> str:
    body = request(messages=[{"role": "user", "content": prompt}])
    answer = await front.ask(body, stream=stream, headers={"authorization": f"Bearer {key}"})
    return answer.report["outcome"]


def prompts(front: Front) -> list[str]:
    return [str(asked.messages[0]) for asked in front.backend.questions]


async def test_no_more_questions_are_put_than_the_backend_has_slots(*, stream: bool) -> None:
    gate = asyncio.Event()
    async with temper(*[Script((gate, GOOD))] * 5) as front:
        with_slots(front, 2)
        asking = [asyncio.create_task(ask(front, "k", "Hi", stream=stream)) for _ in range(5)]
        await front.backend.asked()
        await front.backend.asked()
        health = await front.client.get("/healthz")
        assert (health.status_code, len(front.backend.questions)) == (200, 2)
        gate.set()
        assert await asyncio.gather(*asking) == ["clean"] * 5


async def test_clients_take_turns() -> None:
    gate = asyncio.Event()
    async with temper(Script((gate, GOOD)), *[GOOD] * 4) as front:
        with_slots(front, 1)
        asking = []
        for key, prompt in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")]:
            asking.append(asyncio.create_task(ask(front, key, prompt)))
            await settled(front, len(asking))
        gate.set()
        await asyncio.gather(*asking)
        order = [prompt[-5:-3] for prompt in prompts(front)]
    assert order == ["a1", "a2", "b1", "c1", "a3"]


async def settled(front: Front, inside: int) -> None:
    """Wait until so many requests are inside and have come as far as they can."""
    async with asyncio.timeout(5):
        while len(front.server.state.tasks) != inside:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_client_that_leaves_the_queue_is_never_asked_for() -> None:
    gate = asyncio.Event()
    async with temper(Script((gate, GOOD)), GOOD) as front:
        with_slots(front, 1)
        first = asyncio.create_task(ask(front, "a", "one"))
        await front.backend.asked()
        leaving = asyncio.create_task(ask(front, "b", "two"))
        await settled(front, 2)
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
        await settled(front, 1)
        third = asyncio.create_task(ask(front, "c", "three"))
        gate.set()
        await asyncio.gather(first, third)
        assert ["two" in prompt for prompt in prompts(front)] == [False, False]


async def test_a_full_queue_is_a_429_that_says_when_to_come_back(*, stream: bool) -> None:
    gate = asyncio.Event()
    serving = Serving(max_waiting=1, parallel=1)
    async with temper(Script((gate, GOOD)), GOOD, serving=serving) as front:
        first = asyncio.create_task(ask(front, "a", "one"))
        await front.backend.asked()
        second = asyncio.create_task(ask(front, "a", "two"))
        await settled(front, 2)
        answer = await front.ask(request(), stream=stream)
        gate.set()
        await asyncio.gather(first, second)
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.error is not None
    assert (answer.error["type"], answer.error["code"]) == ("rate_limit_error", "queue_full")
