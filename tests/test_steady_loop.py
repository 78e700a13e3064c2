"""The clock of test event loops: no deadline passes while the process gets no CPU time."""

import asyncio
import time

from tests.fakes.steady_loop import SLICE_SECONDS, SteadyLoop

REST_SECONDS = 30 * SLICE_SECONDS
DEADLINE_SECONDS = 10 * SLICE_SECONDS


def test_asyncio_run_in_tests_uses_the_steady_loop() -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert isinstance(asyncio.run(running()), SteadyLoop)


def test_no_deadline_passes_while_the_process_is_paused() -> None:
    async def scene() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(DEADLINE_SECONDS):
            time.sleep(REST_SECONDS)  # noqa: ASYNC251 - as if others had the processor
            await asyncio.sleep(0)
        return loop.time() - begun

    assert asyncio.run(scene()) < DEADLINE_SECONDS


def test_polling_the_clock_of_a_paused_process_passes_no_deadline() -> None:
    async def scene() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(DEADLINE_SECONDS):
            for _ in range(20):
                time.sleep(SLICE_SECONDS)  # noqa: ASYNC251 - as if others had the processor
                loop.time()
            await asyncio.sleep(0)
        return loop.time() - begun

    assert asyncio.run(scene()) < DEADLINE_SECONDS


def test_a_loop_that_only_waits_reaches_its_deadline() -> None:
    async def scene() -> float:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.Event().wait()
        except TimeoutError:
            return time.monotonic() - begun
        raise AssertionError("it waits for ever")

    assert asyncio.run(scene()) >= DEADLINE_SECONDS
