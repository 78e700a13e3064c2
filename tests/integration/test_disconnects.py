"""A client that leaves ends all work for it at once, wherever it stood; nobody else notices."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes import spoken
from tests.fakes.front import CHAT, Front, request, temper
from tests.fakes.scripted_backend import Asked, Ending, Script, refuses
from tests.fakes.spoken import calls, says

pytestmark = pytest.mark.anyio

PLAIN = request(tools=None)
UNUSED = says("This is for nobody.")
SILENT = Script((Ending.NEVER,))
WITH_HEADERS = Script((spoken.START, Ending.NEVER))
TALKING = Script((spoken.START + spoken.text("It is"), Ending.NEVER))


@asynccontextmanager
async def asking(front: Front, asked: JsonObject) -> AsyncGenerator[None, None]:
    """Have a client wait for an answer; it leaves at the end of the block."""
    task = asyncio.create_task(front.client.post(CHAT, json=asked))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def has_left(question: Asked) -> bool:
    """Wait until the backend has noticed that its client, Temper, went away."""
    async with asyncio.timeout(5):
        return await question.left.wait()


@pytest.mark.parametrize(
    "script",
    [SILENT, WITH_HEADERS, TALKING],
    ids=["before anything", "before the first token", "in the middle"],
)
@pytest.mark.parametrize("asked", [PLAIN, request()], ids=["plain", "with tools"])
async def test_the_generation_ends_when_the_client_leaves(
    *, script: Script, asked: JsonObject, stream: bool
) -> None:
    async with temper(script, UNUSED) as front:
        async with asking(front, {**asked, "stream": stream}):
            question = await front.backend.asked()
        assert await has_left(question)
        await front.server.settle()
    assert len(front.backend.questions) == 1


async def test_the_generation_ends_when_a_client_leaves_in_the_middle_of_a_stream() -> None:
    async with temper(TALKING, UNUSED) as front:
        body = {**PLAIN, "stream": True}
        async with front.client.stream("POST", CHAT, json=body) as response:
            async for piece in response.aiter_bytes():
                if b"It is" in piece:
                    break
        assert await has_left(front.backend.questions[0])
        await front.server.settle()
    assert len(front.backend.questions) == 1


@pytest.mark.parametrize(
    ("first", "count"),
    [((says("Prose."),), 2), ((calls("get_weather", "{}"), calls("gone", "{}")), 3)],
    ids=["nudged", "constrained"],
)
@pytest.mark.parametrize("second", [SILENT, TALKING], ids=["silent", "talking"])
async def test_a_later_attempt_ends_when_the_client_leaves(
    *, first: tuple[bytes, ...], count: int, second: Script, stream: bool
) -> None:
    async with temper(*first, second, UNUSED) as front:
        async with asking(front, request(stream=stream)):
            questions = [await front.backend.asked() for _ in range(count)]
        assert await has_left(questions[-1])
        await front.server.settle()
    assert len(front.backend.questions) == count


async def test_nothing_is_asked_for_a_client_that_left_while_a_bad_reply_arrived(
    *, stream: bool
) -> None:
    gate = asyncio.Event()
    prose = Script((spoken.START + spoken.text("Prose."), gate, spoken.end()))
    async with temper(prose, UNUSED) as front:
        async with asking(front, request(stream=stream)):
            question = await front.backend.asked()
        assert await has_left(question)
        gate.set()
        await front.server.settle()
    assert len(front.backend.questions) == 1


async def test_nobody_waits_for_a_model_to_load_for_a_client_that_left(*, stream: bool) -> None:
    loading = refuses(503, {"message": "Loading model", "type": "unavailable_error"})
    async with temper(loading, UNUSED, load_wait=60) as front:
        front.backend.health = 503
        async with asking(front, {**PLAIN, "stream": stream}):
            await front.backend.asked()
            await front.backend.probed()
        await front.server.settle()
        front.backend.health = 200
    assert len(front.backend.questions) == 1


async def test_a_client_that_leaves_before_its_body_is_complete_asks_nothing() -> None:
    async with temper(UNUSED) as front:
        async with front.server.connected() as (_, writer):
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n")
            writer.write(b'\r\n{"messages"')
            await writer.drain()
        await front.server.settle()
    assert front.backend.questions == []


async def test_others_are_not_disturbed(*, stream: bool) -> None:
    gate = asyncio.Event()
    patient = Script((spoken.START, gate, spoken.text("Hi.") + spoken.end()))
    async with temper(patient, TALKING) as front:
        other = asyncio.create_task(front.ask(PLAIN, stream=stream))
        await front.backend.asked()
        async with asking(front, {**PLAIN, "stream": stream}):
            question = await front.backend.asked()
        assert await has_left(question)
        gate.set()
        assert (await other).text == "Hi."


async def test_many_leave_at_once(*, stream: bool) -> None:
    count = 20
    async with temper(*[TALKING] * count) as front:
        body = json.dump({**PLAIN, "stream": stream})
        tasks = [asyncio.create_task(front.client.post(CHAT, content=body)) for _ in range(count)]
        questions = [await front.backend.asked() for _ in range(count)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all([await has_left(question) for question in questions])
        await front.server.settle()


async def test_a_client_that_left_is_logged_as_such(
    *, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    async with temper(TALKING) as front:
        async with asking(front, {**PLAIN, "stream": stream}):
            question = await front.backend.asked()
        assert await has_left(question)
        await front.server.settle()
    (logged,) = [one.__dict__["request"] for one in caplog.records if hasattr(one, "request")]
    assert (logged.status, logged.stream, logged.outcome) == (499, stream, None)
