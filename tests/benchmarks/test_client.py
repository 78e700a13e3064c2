"""The client's measurements of a response do not depend on its division into reads."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from benchmarks.load.client import Answer, BrokenOff, Target
from benchmarks.load.replies import Behavior
from benchmarks.load.workloads import Workload, large
from tests.fakes.raw_backend import raw_backend
from tests.fakes.sse import DONE, START, delta, end


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


async def received(pieces: Sequence[bytes]) -> Answer:
    async def script(caller: Caller) -> None:
        await caller.request()
        for piece in pieces:
            await caller.send(piece)
            await asyncio.sleep(0)

    async with raw_backend(script) as backend:
        target = Target(backend.url)
        connection = await target.connect()
        return await connection.send(target.request(b"{}"))


def stream(*events: bytes) -> bytes:
    return STREAM_HEAD + b"".join(map(chunked, events)) + b"0\r\n\r\n"


WORDS = stream(START, delta({"content": " word1"}), delta({"content": " word2 word3"}), end())


async def test_words_are_counted_in_any_pieces() -> None:
    for size in (1, 7, 64, len(WORDS)):
        pieces = [WORDS[start : start + size] for start in range(0, len(WORDS), size)]
        answer = await received(pieces)
        assert (answer.status, answer.words, answer.is_whole) == (200, 3, True)


async def test_content_begins_with_the_first_delta_with_text() -> None:
    silent = stream(START, delta({"content": ""}), end())
    assert (await received([silent])).first_content == 0
    answer = await received([WORDS])
    assert 0 < answer.first_byte <= answer.first_content <= answer.total


async def test_a_call_is_content() -> None:
    call = delta({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]})
    assert (await received([stream(START, call, end())])).first_content > 0


async def test_time_stamp_gives_the_latency_of_its_token() -> None:
    sent = time.monotonic() - 2
    content = f" {int(sent * 1e6):015d}"
    answer = await received([stream(START, delta({"content": content}), end())])
    (delay,) = answer.delays
    assert 2 <= delay <= time.monotonic() - sent + 1e-6  # stamps are whole microseconds


async def test_truncated_response_is_an_error() -> None:
    with pytest.raises(BrokenOff):
        await received([WORDS[:-40]])


async def test_a_stream_without_its_end_mark_is_a_problem() -> None:
    answer = await received([stream(START, delta({"content": " word1"}))])
    assert "status 200" in Workload(Behavior("prose", 1)).problem(answer)


async def test_missing_tokens_are_a_problem() -> None:
    answer = await received([WORDS])
    assert Workload(Behavior("prose", 3)).problem(answer) == ""
    assert Workload(Behavior("prose", 4)).problem(answer) == "3 of 4 tokens arrived"
    assert DONE in WORDS


def test_large_request_has_the_documented_size() -> None:
    assert 600_000 < len(large(Behavior("call")).body) < 650_000
