"""Sends one workload repeatedly, several requests at a time, and collects the responses."""

import asyncio
import time
from dataclasses import dataclass, field

from benchmarks.load.client import Answer, BrokenOff, Connection, Target
from benchmarks.load.workloads import Workload

_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of a batch: it ends after this many `requests`, or after `seconds`.

    The connections send their first requests evenly over `ramp` seconds.
    """

    requests: int = 1_000_000
    seconds: float = 600.0
    at_once: int = 1
    ramp: float = 0.0


@dataclass(slots=True)
class Batch:
    """The valid responses, the problems of invalid ones, and the duration."""

    answers: list[Answer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def send(target: Target, workload: Workload, effort: Effort) -> Batch:
    """Send a workload over connections that stay open."""
    batch = Batch()
    begun = time.monotonic()
    queue = iter(range(effort.requests))
    request = target.request(workload.body, workload.language.path)

    async def work(number: int) -> None:
        await asyncio.sleep(effort.ramp * number / effort.at_once)
        connection: Connection | None = None
        while time.monotonic() - begun < effort.seconds and next(queue, None) is not None:
            if connection is None or not connection.is_open:
                connection = await _connect(target, batch)
            if connection is not None:
                await _send_one(connection, request, workload, batch)
        if connection is not None:
            connection.close()

    await asyncio.gather(*(work(number) for number in range(effort.at_once)))
    batch.seconds = time.monotonic() - begun
    return batch


async def _connect(target: Target, batch: Batch) -> Connection | None:
    try:
        return await target.connect()
    except OSError as error:
        batch.problems.append(f"no connection: {error}")
        await asyncio.sleep(0.01)
        return None


async def _send_one(
    connection: Connection, request: bytes, workload: Workload, batch: Batch
) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            answer = await connection.send(request)
    except (BrokenOff, TimeoutError) as error:
        connection.close()
        batch.problems.append(str(error) or "timed out")
        return
    if problem := workload.problem(answer):
        batch.problems.append(problem)
    else:
        batch.answers.append(answer)
