"""The client of the benchmarks: its counts and times do not depend on the chunking."""

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


async def answer_to(parts: Sequence[bytes]) -> Answer:
    async def script(caller: Caller) -> None:
        await caller.request()
        for part in parts:
            await caller.send(part)
            await asyncio.sleep(0)

    async with raw_backend(script) as backend:
        target = Target(backend.url)
        connection = await target.connect()
        return await connection.send(target.request(b"{}"))


def stream(*events: bytes) -> bytes:
    return STREAM_HEAD + b"".join(map(chunked, events)) + b"0\r\n\r\n"


WORDS = stream(START, delta({"content": " word1"}), delta({"content": " word2 word3"}), end())


async def test_the_count_of_words_does_not_depend_on_the_chunking() -> None:
    for size in (1, 7, 64, len(WORDS)):
        parts = [WORDS[start : start + size] for start in range(0, len(WORDS), size)]
        answer = await answer_to(parts)
        assert (answer.status, answer.words, answer.is_whole) == (200, 3, True)


async def test_the_first_content_is_the_first_delta_that_has_text() -> None:
    without_text = stream(START, delta({"content": ""}), end())
    assert (await answer_to([without_text])).first_content == 0
    answer = await answer_to([WORDS])
    assert 0 < answer.first_byte <= answer.first_content <= answer.total


async def test_a_streamed_call_counts_as_first_content() -> None:
    call = delta({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]})
    assert (await answer_to([stream(START, call, end())])).first_content > 0


async def test_the_delay_of_a_token_is_computed_from_its_time_stamp() -> None:
    sent = time.monotonic() - 2
    content = f" {int(sent * 1e6):015d}"
    answer = await answer_to([stream(START, delta({"content": content}), end())])
    (delay,) = answer.delays
    assert 2 <= delay <= time.monotonic() - sent + 1e-6  # a stamp is rounded to microseconds


async def test_truncated_response_is_an_error() -> None:
    with pytest.raises(BrokenOff):
        await answer_to([WORDS[:-40]])


async def test_a_stream_without_its_end_mark_is_a_problem() -> None:
    answer = await answer_to([stream(START, delta({"content": " word1"}))])
    assert "status 200" in Workload(Behavior("prose", 1)).problem(answer)


async def test_the_number_of_tokens_that_arrived_is_reported_if_tokens_are_missing() -> None:
    answer = await answer_to([WORDS])
    assert Workload(Behavior("prose", 3)).problem(answer) == ""
    assert Workload(Behavior("prose", 4)).problem(answer) == "3 of 4 tokens arrived"
    assert DONE in WORDS


def test_the_large_request_has_about_600_kilobytes() -> None:
    assert 600_000 < len(large(Behavior("call")).body) < 650_000
