"""Many requests that go wrong at the same time: only so many of them are asked again at once."""

import asyncio

import pytest

from proxy.api.app import Serving
from proxy.inference.preparation import Policy
from tests.fakes import spoken
from tests.fakes.front import request, temper
from tests.fakes.scripted_backend import Script

pytestmark = pytest.mark.anyio

LIVE = 8
ALLOWED = 3


async def test_at_most_a_fifth_of_the_live_requests_or_three_are_asked_again() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    broken = spoken.calls("get_weather", "{}")
    good = spoken.calls("get_weather", '{"city": "Paris"}')
    scripts = [Script((first, broken))] * LIVE + [Script((second, good))] * ALLOWED
    async with temper(*scripts, serving=Serving(policy=Policy(attempts=2))) as front:
        asking = [asyncio.create_task(front.ask(request())) for _ in range(LIVE)]
        for _ in range(LIVE):
            await front.backend.asked()
        first.set()
        for _ in range(ALLOWED):
            await front.backend.asked()
        _, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        while len(waiting) > ALLOWED:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        second.set()
        answers = [await each for each in asking]
        assert len(front.backend.questions) == LIVE + ALLOWED
    outcomes = [answer.report["outcome"] for answer in answers]
    assert sorted(outcomes) == ["exhausted"] * (LIVE - ALLOWED) + ["retried"] * ALLOWED
    withheld = [answer for answer in answers if "withheld=1" in answer.report["repairs"]]
    assert len(withheld) == LIVE - ALLOWED


async def test_a_client_that_leaves_gives_its_part_of_the_budget_back() -> None:
    never = asyncio.Event()
    broken = spoken.calls("get_weather", "{}")
    good = spoken.calls("get_weather", '{"city": "Paris"}')
    scripts: list[Script | bytes] = []
    for _ in range(ALLOWED + 1):
        scripts += [broken, Script((never,))]
    async with temper(*scripts, broken, good) as front:
        for _ in range(ALLOWED + 1):
            asking = asyncio.create_task(front.ask(request()))
            await front.backend.asked()
            retried = await front.backend.asked()
            asking.cancel()
            await retried.left.wait()
        answer = await front.ask(request())
    assert answer.report["outcome"] == "retried"
