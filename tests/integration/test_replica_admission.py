"""Several Tempers in front of one engine: the engine's queue, and the wait of a new client.

Each Temper admits as many requests as the engine has slots, and its clients take turns. So the
engine never holds more requests than its slots times the replicas. If one client has many waiting
requests, a request of another client waits only for those that the replicas have admitted already.
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
from tests.fakes.running_proxy import RunningProxy, serving_all
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.timeouts import until

SLOTS = 4
QUESTION = b'{"model": "m", "messages": [{"role": "user", "content": "Go on."}]}'
FLOOD = 40  # requests of one client


@dataclass
class Crowd:
    """Replicas in front of one engine, and the requests of their clients."""

    engine: FirstComeEngine
    proxies: list[RunningProxy] = field(default_factory=list)
    lines: list[WaitingQueue] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def ask(self, replica: int, client: str) -> asyncio.Task[None]:
        """Send a request of a client to a replica."""
        asking = asyncio.create_task(self._ask(self.proxies[replica % len(self.proxies)], client))
        self.tasks.append(asking)
        return asking

    async def end_round(self) -> None:
        """End a round of the engine, and wait for its effects."""
        await self.settle()
        self.engine.end_round()
        await self.settle()

    async def settle(self) -> None:
        """Wait until every request waits in a replica, or is in the engine."""
        await until(self._is_settled)

    def _is_settled(self) -> bool:
        served = sum(line.served for line in self.lines)
        waiting = sum(line.waiting for line in self.lines)
        outstanding = sum(not task.done() for task in self.tasks)
        return self.engine.load == served and served + waiting == outstanding

    async def _ask(self, proxy: RunningProxy, client: str) -> None:
        answer = await proxy.send(QUESTION, {"authorization": f"Bearer {client}"})
        assert answer.status == 200


@asynccontextmanager
async def crowd(replicas: int, serving: ServerOptions) -> AsyncGenerator[Crowd]:
    """Run an engine and replicas in front of it; at the end every request is answered."""
    clients = Crowd(FirstComeEngine(SLOTS))
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(listening(clients.engine))
        for _ in range(replicas):
            engine = LlamaServer(BackendClient(upstream.url))
            stack.push_async_callback(engine.close)
            services = serving.services_for(engine)
            clients.lines += [service.admission.queue for service in services]
            proxy = serving_all(services, serving, ScriptedBackend())
            clients.proxies.append(await stack.enter_async_context(proxy))
        yield clients
        while not all(task.done() for task in clients.tasks):
            await clients.end_round()
        await asyncio.gather(*clients.tasks)


async def rounds_of_newcomers(
    replicas: int, *, shares: int = 1, newcomers: int = 4
) -> tuple[list[int], FirstComeEngine]:
    """Let client `a` flood the engine; return how many rounds each request of client `b` waits.

    The requests of `b` go to the replicas by turns. The second return value is the engine.
    """
    waited: list[int] = []
    async with crowd(replicas, ServerOptions(replicas=shares)) as clients:
        for number in range(newcomers):
            for request in range(FLOOD - sum(not each.done() for each in clients.tasks)):
                clients.ask(request, "a")
            await clients.settle()
            begun, newcomer = clients.engine.rounds, clients.ask(number, "b")
            while not newcomer.done():
                await clients.end_round()
            waited.append(clients.engine.rounds - begun)
    return waited, clients.engine


@pytest.mark.deep
@pytest.mark.parametrize("replicas", [1, 2, 4])
async def test_the_queue_of_the_engine_and_the_wait_of_a_new_client_are_bounded(
    replicas: int,
) -> None:
    waited, engine = await rounds_of_newcomers(replicas)
    assert engine.longest_queue <= (replicas - 1) * SLOTS
    assert max(waited) <= 2 * replicas
    assert (engine.longest_queue > 0) is (replicas > 1)


@pytest.mark.parametrize(("replicas", "rounds"), [(2, 2), (4, 3)])
async def test_replicas_that_know_how_many_they_are_leave_no_queue_in_the_engine(
    replicas: int, rounds: int
) -> None:
    waited, engine = await rounds_of_newcomers(replicas, shares=replicas)
    assert engine.longest_queue == 0
    assert max(waited) <= rounds  # the only slot of a replica may first go to the flood


async def test_each_replica_admits_one_request_if_there_are_more_replicas_than_slots() -> None:
    _, engine = await rounds_of_newcomers(6, shares=6, newcomers=1)
    assert engine.longest_queue == 6 - SLOTS


async def test_a_new_client_waits_for_all_requests_of_another_client_if_there_is_no_limit() -> None:
    async with crowd(1, ServerOptions(parallel=FLOOD + 1)) as clients:
        for _ in range(FLOOD):
            clients.ask(0, "a")
        await clients.settle()
        newcomer = clients.ask(0, "b")
        while not newcomer.done():
            await clients.end_round()
        assert clients.engine.longest_queue == FLOOD + 1 - SLOTS
        assert clients.engine.rounds > FLOOD // SLOTS
