"""Several Tempers before one engine: how long its queue gets, and how long a newcomer waits.

Each Temper lets in as many as the engine has slots, and its clients take turns. So the engine never
has more than that times the replicas, and a flood of one client delays another by no more than what
every replica has let in already.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.serving.admission import WaitingQueue
from tests.fakes.first_come_engine import FirstComeEngine
from tests.fakes.front import Front, serving_all
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.patience import until

SLOTS = 4
QUESTION = b'{"model": "m", "messages": [{"role": "user", "content": "Go on."}]}'
FLOOD = 40  # requests of one client


@dataclass
class Crowd:
    """Replicas before one engine, and the requests of their clients."""

    engine: FirstComeEngine
    fronts: list[Front] = field(default_factory=list)
    lines: list[WaitingQueue] = field(default_factory=list)
    asked: list[asyncio.Task[None]] = field(default_factory=list)

    def ask(self, replica: int, client: str) -> asyncio.Task[None]:
        """Have a client ask at a replica."""
        asking = asyncio.create_task(self._ask(self.fronts[replica % len(self.fronts)], client))
        self.asked.append(asking)
        return asking

    async def end_round(self) -> None:
        """End a round of the engine, and let what follows from that happen."""
        await self.settle()
        self.engine.end_round()
        await self.settle()

    async def settle(self) -> None:
        """Wait until every request waits in a replica, or is in the engine."""
        await until(self._is_settled)

    def _is_settled(self) -> bool:
        served = sum(line.served for line in self.lines)
        waiting = sum(line.waiting for line in self.lines)
        outstanding = sum(not one.done() for one in self.asked)
        return self.engine.load == served and served + waiting == outstanding

    async def _ask(self, front: Front, client: str) -> None:
        answer = await front.send(QUESTION, {"authorization": f"Bearer {client}"})
        assert answer.status == 200


@asynccontextmanager
async def crowd(replicas: int, serving: ServerOptions) -> AsyncGenerator[Crowd]:
    """Run an engine and replicas before it; at the end everybody is answered."""
    found = Crowd(FirstComeEngine(SLOTS))
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(listening(found.engine))
        for _ in range(replicas):
            engine = LlamaServer(BackendClient(behind.url))
            stack.push_async_callback(engine.close)
            services = serving.alone(engine)
            found.lines += [service.admission.queue for service in services]
            front = serving_all(services, serving, ScriptedBackend())
            found.fronts.append(await stack.enter_async_context(front))
        yield found
        while not all(one.done() for one in found.asked):
            await found.end_round()
        await asyncio.gather(*found.asked)


async def rounds_of_newcomers(
    replicas: int, *, shares: int = 1, newcomers: int = 4
) -> tuple[list[int], FirstComeEngine]:
    """Flood the engine, and ask as somebody else at each replica; returns the rounds that took."""
    waited: list[int] = []
    async with crowd(replicas, ServerOptions(replicas=shares)) as found:
        for number in range(newcomers):
            for one in range(FLOOD - sum(not each.done() for each in found.asked)):
                found.ask(one, "a")
            await found.settle()
            begun, newcomer = found.engine.rounds, found.ask(number, "b")
            while not newcomer.done():
                await found.end_round()
            waited.append(found.engine.rounds - begun)
    return waited, found.engine


@pytest.mark.deep
@pytest.mark.parametrize("replicas", [1, 2, 4])
async def test_the_engines_queue_and_the_wait_of_a_newcomer_are_bounded(replicas: int) -> None:
    waited, engine = await rounds_of_newcomers(replicas)
    assert engine.longest_queue <= (replicas - 1) * SLOTS
    assert max(waited) <= 2 * replicas
    assert (engine.longest_queue > 0) is (replicas > 1)


@pytest.mark.parametrize(("replicas", "rounds"), [(2, 2), (4, 3)])
async def test_replicas_that_know_of_each_other_leave_no_queue_in_the_engine(
    replicas: int, rounds: int
) -> None:
    waited, engine = await rounds_of_newcomers(replicas, shares=replicas)
    assert engine.longest_queue == 0
    assert max(waited) <= rounds  # with one slot each, the turn of the flood may come first


async def test_more_replicas_than_slots_let_one_in_each() -> None:
    _, engine = await rounds_of_newcomers(6, shares=6, newcomers=1)
    assert engine.longest_queue == 6 - SLOTS


async def test_a_temper_that_lets_all_in_has_the_newcomer_wait_for_all_of_the_flood() -> None:
    async with crowd(1, ServerOptions(parallel=FLOOD + 1)) as found:
        for _ in range(FLOOD):
            found.ask(0, "a")
        await found.settle()
        newcomer = found.ask(0, "b")
        while not newcomer.done():
            await found.end_round()
        assert found.engine.longest_queue == FLOOD + 1 - SLOTS
        assert found.engine.rounds > FLOOD // SLOTS
