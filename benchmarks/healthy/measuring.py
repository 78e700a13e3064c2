"""Requests healthy replies from the backend and through Temper in turn, and compares them."""

import asyncio
from dataclasses import dataclass, replace

import httpx

from benchmarks.healthy.client import ClientResponse, Recording, read_answer
from benchmarks.healthy.ledger import read_ledger
from benchmarks.healthy.replies import KINDS, LONG, ReplyChoice
from benchmarks.healthy.request import body_of
from benchmarks.healthy.tally import (
    DIRECT,
    POLICIES,
    THROUGH,
    WAYS,
    Batch,
    Pair,
    count_changes,
    counted_name,
    measure_times,
    problems_of,
    timed_name,
    worst,
)
from benchmarks.load.client import BrokenOff, Target
from benchmarks.load.figures import Figures

# Milliseconds between tokens. For the 3,000 tokens of a long argument, the usual delay would take
# too long. If the response is not streamed, the delay is even shorter, because the client does not
# see it.
_DELAY_MS = 4.0
_LONG_DELAY_MS = {"streamed": 1.0, "whole": 0.25}
_AT_ONCE = 4
_PATIENCE_SECONDS = 60.0
_WARMING_UP = 4  # replies of each kind


async def measure(
    target: Target, backend_url: str, replies: int
) -> tuple[Figures, tuple[str, ...]]:
    """Measure all kinds of replies; returns the figures and the first problems of each batch."""
    servers = _Servers(Target(backend_url), target)
    await servers.warm_up()
    figures: Figures = {"replies": replies}
    problems: list[str] = []
    for kind in KINDS:
        for way, is_streamed in WAYS.items():
            choice = ReplyChoice(kind, is_streamed=is_streamed)
            delay = _LONG_DELAY_MS[way] if kind == LONG else _DELAY_MS
            batch = await servers.request_both(replace(choice, delay_ms=delay), replies)
            for name, value in measure_times(batch).items():
                figures[timed_name(kind, way, name)] = value
            problems += problems_of(f"{kind} ({way})", batch)
            for policy, headers in POLICIES.items():
                without_delay = _Servers(servers.direct, replace(target, headers=headers))
                batch = await without_delay.request_both(choice, replies)
                for name, value in count_changes(batch).items():
                    key = counted_name(policy, kind, name)
                    figures[key] = figures.get(key, 0) + value
    return figures | worst(figures), tuple(problems)


@dataclass(frozen=True, slots=True)
class _Servers:
    """The two compared servers: the backend, and Temper in front of it."""

    direct: Target
    through: Target

    async def warm_up(self) -> None:
        """Request a few replies of each kind."""
        for kind in KINDS:
            await self.request_both(ReplyChoice(kind), _WARMING_UP)

    async def request_both(self, choice: ReplyChoice, replies: int) -> Batch:
        """Request the same replies from both servers, several at a time."""
        batch = Batch()
        queue = iter(range(1, replies + 1))

        async def work() -> None:
            sides = {DIRECT: _Side(self.direct), THROUGH: _Side(self.through)}
            for number in queue:
                numbered = replace(choice, number=number)
                # alternating, so that a change of the machine's load affects both sides alike
                order = (DIRECT, THROUGH) if number % 2 else (THROUGH, DIRECT)
                responses = {side: await sides[side].request(numbered, side) for side in order}
                batch.pairs.append(Pair(numbered, responses[DIRECT], responses[THROUGH]))
            for side in sides.values():
                side.close()

        await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, replies))))
        async with httpx.AsyncClient(trust_env=False) as client:
            batch.ledger = read_ledger((await client.get(f"{self.direct.url}/requests")).content)
        return batch


class _Side:
    """A server, and a connection that is reused."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection: Recording | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def request(self, choice: ReplyChoice, side: str) -> ClientResponse:
        """Request a reply; a failure becomes the `problem` of the result."""
        body = body_of(replace(choice, id=choice.named(side)))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                connection = self._connection
                if connection is None or not connection.is_open:
                    connection = self._connection = await self._target.connect_as(Recording)
                answer = await connection.send(self._target.request(body))
        except (OSError, BrokenOff, TimeoutError) as error:
            self.close()
            return ClientResponse(problem=str(error) or "timed out")
        return read_answer(connection, answer)
