"""The backend commits the fault that was drawn for a request, and notes what it was asked."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

import httpx
import msgspec
import pytest

from benchmarks.faults import backend
from benchmarks.faults.demands import problem_of
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.material import CHAT
from benchmarks.faults.mixture import draw
from benchmarks.faults.reading import read_stream
from tests.patience import PATIENCE_SECONDS

SEED = 1
GOOD = ("good: text", "good: a slow drip", "good: in segments of 3 bytes")


@asynccontextmanager
async def faulty() -> AsyncGenerator[httpx.AsyncClient, None]:
    server = await backend.start(0, SEED)
    async with server:
        url = "http://{}:{}".format(*server.sockets[0].getsockname())
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
            yield client


def number_of(fault: str) -> int:
    return next(number for number in count() if draw(SEED, number)[0].name == fault)


async def asked(client: httpx.AsyncClient, number: int) -> bytes:
    plan = draw(SEED, number)[1]
    return (await client.post(CHAT, content=plan.asked.body)).content


async def ledger(client: httpx.AsyncClient) -> Ledger:
    return msgspec.json.decode((await client.get(backend.LEDGER)).content, type=Ledger)


@pytest.mark.parametrize("fault", GOOD)
async def test_a_good_reply_is_the_one_that_is_demanded(fault: str) -> None:
    number = number_of(fault)
    async with faulty() as client:
        told = await asked(client, number)
    assert problem_of(draw(SEED, number)[1].demand, read_stream(told)) == ""


async def test_the_second_question_gets_the_second_reply() -> None:
    number = number_of("model: prose only")
    async with faulty() as client:
        first, second, third = [await asked(client, number) for _ in range(3)]
    assert first != second
    assert second == third


async def test_an_end_of_the_connection_is_one() -> None:
    async with faulty() as client:
        with pytest.raises(httpx.TransportError):
            await asked(client, number_of("backend: ends amid text"))


async def test_every_generation_is_noted() -> None:
    number, silent = number_of("good: text"), number_of("backend: silent")
    async with faulty() as client:
        await asked(client, number)
        await asked(client, number)
        waiting = asyncio.create_task(asked(client, silent))
        noted = await ledger(client)
        while not noted.playing:
            noted = await ledger(client)
        waiting.cancel()
        while noted.playing:
            noted = await ledger(client)
    assert {one: len(made) for one, made in noted.generations.items()} == {number: 2, silent: 1}
    assert all(one.begun <= one.ended for made in noted.generations.values() for one in made)


async def test_it_has_the_documents_of_a_llama_server() -> None:
    async with faulty() as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/props")).json()["total_slots"] == backend.SLOTS
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.post(CHAT, content=b"{}")).status_code == 404
