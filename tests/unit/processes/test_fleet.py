import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager

import pytest

from proxy.errors import ExitedUnexpectedly, LaunchFailed, QueueFull
from proxy.processes.fleet import Fleet, Lease
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import ServerStatus
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from tests.fakes.servers import Server


class World:
    """A fleet of two servers, of which one fits, and its held slots."""

    def __init__(self, ttl: float | None, most_waiting: int) -> None:
        self.servers = {"a": Server(), "b": Server()}
        models = [LoadableModel(name, ttl=ttl) for name in self.servers]
        swapping = SwapPlanner(models, Budget(models=1))
        self.fleet = Fleet(self.servers, swapping, most_waiting=most_waiting)
        self.held: dict[str, ExitStack] = {}

    def lease(self, name: str, request: str = "", key: str = "") -> Lease:
        stack = self.held[request or name] = ExitStack()
        return stack.enter_context(self.fleet.lease(name, key))

    def release(self, request: str) -> None:
        self.held.pop(request).close()


@asynccontextmanager
async def running(*, ttl: float | None = None, most_waiting: int = 9) -> AsyncGenerator[World]:
    world = World(ttl, most_waiting)
    try:
        yield world
    finally:
        await world.fleet.close()
        for request in tuple(world.held):
            world.release(request)


async def test_the_first_request_starts_a_model_and_waits_for_it() -> None:
    async with running() as world:
        first, second = world.lease("a", "1"), world.lease("a", "2")
        assert not first.is_granted
        assert (first.ahead, second.ahead) == (0, 1)
        assert world.fleet.condition("a") == "loading"
        world.servers["a"].finish()
        await first.wait_until_granted()
        await second.wait_until_granted()
        assert world.fleet.condition("a") == "loaded"
        assert world.lease("a", "3").is_granted
        assert world.servers["a"].starts == 1


async def test_an_idle_model_is_swapped_for_another() -> None:
    async with running() as world:
        world.servers["a"].finish()
        world.servers["b"].finish()
        await world.lease("a").wait_until_granted()
        newcomer = world.lease("b")
        assert world.fleet.condition("b") == "unloaded"
        assert world.servers["a"].stops == 0
        world.release("a")
        await newcomer.wait_until_granted()
        assert (world.servers["a"].stops, world.servers["b"].starts) == (1, 1)
        assert world.fleet.condition("a") == "unloaded"


async def test_waiting_requests_fail_with_the_reason_of_a_failed_load() -> None:
    async with running() as world:
        hold = world.lease("a", "1")
        world.servers["a"].finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed, match="is out of memory"):
            await hold.wait_until_granted()
        assert world.fleet.condition("a") == "failed"
        assert "is out of memory" in world.fleet.problem("a")
        assert world.fleet.problem("b") == ""
        with pytest.raises(LaunchFailed):
            await world.lease("a", "2").wait_until_granted()
        assert world.servers["a"].starts == 1


async def test_an_abandoned_load_is_canceled_for_another_model() -> None:
    async with running() as world:
        world.lease("a")
        await world.servers["a"].wanted.wait()
        world.release("a")
        newcomer = world.lease("b")
        world.servers["b"].finish()
        await newcomer.wait_until_granted()
        assert world.servers["a"].stops == 1


async def test_an_unwanted_model_is_stopped_immediately() -> None:
    async with running() as world:
        world.servers["a"].finish()
        await world.lease("a").wait_until_granted()
        world.release("a")
        world.fleet.keep("a", 0)
        await world.servers["a"].stopped.wait()
        assert world.fleet.condition("a") == "unloaded"


async def test_an_idle_model_is_stopped_after_its_ttl() -> None:
    async with running(ttl=0.01) as world:
        world.servers["a"].finish()
        await world.lease("a").wait_until_granted()
        world.release("a")
        await world.servers["a"].stopped.wait()
        assert world.fleet.condition("a") == "unloaded"


async def test_a_failed_server_is_noticed_and_can_be_restarted() -> None:
    async with running() as world:
        server = world.servers["a"]
        server.finish()
        await world.lease("a").wait_until_granted()
        world.release("a")
        server.status = ServerStatus(RestartState.WAITING)
        assert world.fleet.condition("a") == "loading"
        server.status = ServerStatus(RestartState.DOWN, reason="it crashed")
        assert world.fleet.condition("a") == "failed"
        with pytest.raises(ExitedUnexpectedly, match=r"The server of a is down.*it crashed"):
            await world.lease("a").wait_until_granted()
        await server.stopped.wait()


async def test_waiting_requests_are_limited() -> None:
    async with running(most_waiting=1) as world:
        world.lease("a")
        with pytest.raises(QueueFull):
            world.lease("b")


async def test_closing_stops_everything_and_starts_nothing() -> None:
    async with running(ttl=60) as world:
        world.servers["a"].finish()
        await world.lease("a").wait_until_granted()
        waiting = world.lease("b")
        await world.fleet.close()
        world.release("a")
        assert not waiting.is_granted
        assert [server.starts for server in world.servers.values()] == [1, 0]
        assert [server.stops for server in world.servers.values()] == [1, 1]


async def test_a_waiting_request_may_leave_without_affecting_others() -> None:
    async with running() as world:
        leaver, stayer = world.lease("a", "1"), world.lease("a", "2")
        waiting = asyncio.create_task(leaver.wait_until_granted())
        await asyncio.sleep(0)
        waiting.cancel()
        world.release("1")
        world.servers["a"].finish()
        await stayer.wait_until_granted()


async def test_a_model_can_be_preloaded() -> None:
    async with running() as world:
        world.fleet.preload("a")
        await world.servers["a"].wanted.wait()
        assert world.fleet.condition("a") == "loading"
        world.servers["a"].finish()
        hold = world.lease("a")
        await hold.wait_until_granted()
        assert world.servers["a"].starts == 1


async def test_a_model_that_cannot_be_preloaded_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world:
        world.fleet.preload("a")
        await world.servers["a"].wanted.wait()
        asking = world.lease("a")
        world.servers["a"].finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed):
            await asking.wait_until_granted()
        assert "a: not loaded: llama-server is out of memory" in caplog.text
        assert world.fleet.condition("a") == "failed"


@pytest.mark.fault("F102")
async def test_one_key_cannot_fill_the_queue_for_a_model() -> None:
    async with running(most_waiting=3) as world:
        flood = [world.lease("a", f"x{number}", "x") for number in range(3)]
        with pytest.raises(QueueFull):
            world.lease("a", "x3", "x")
        world.lease("a", "y0", "y")
        with pytest.raises(QueueFull):
            await flood[2].wait_until_granted()
        with pytest.raises(QueueFull):
            world.lease("a", "y1", "y")
        world.release("x2")
        assert not any(lease.is_settled for lease in flood[:2])
