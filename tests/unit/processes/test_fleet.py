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


class FleetScenario:
    """A fleet of two models, a and b, and its open leases. Only one model fits into memory."""

    def __init__(self, ttl: float | None, most_waiting: int) -> None:
        self.servers = {"a": Server(), "b": Server()}
        models = [LoadableModel(name, ttl=ttl) for name in self.servers]
        swapping = SwapPlanner(models, Budget(models=1))
        self.fleet = Fleet(self.servers, swapping, most_waiting=most_waiting)
        self.leases: dict[str, ExitStack] = {}

    def lease(self, name: str, request: str = "", key: str = "") -> Lease:
        stack = self.leases[request or name] = ExitStack()
        return stack.enter_context(self.fleet.lease(name, key))

    def release(self, request: str) -> None:
        self.leases.pop(request).close()


@asynccontextmanager
async def running_fleet(
    *, ttl: float | None = None, most_waiting: int = 9
) -> AsyncGenerator[FleetScenario]:
    scenario = FleetScenario(ttl, most_waiting)
    try:
        yield scenario
    finally:
        await scenario.fleet.close()
        for request in tuple(scenario.leases):
            scenario.release(request)


async def test_the_first_request_starts_a_model_and_later_requests_wait_for_it() -> None:
    async with running_fleet() as scenario:
        first, second = scenario.lease("a", "1"), scenario.lease("a", "2")
        assert not first.is_granted
        assert (first.ahead, second.ahead) == (0, 1)
        assert scenario.fleet.condition("a") == "loading"
        scenario.servers["a"].finish()
        await first.wait_until_granted()
        await second.wait_until_granted()
        assert scenario.fleet.condition("a") == "loaded"
        assert scenario.lease("a", "3").is_granted
        assert scenario.servers["a"].starts == 1


async def test_an_idle_model_is_unloaded_for_a_request_for_another_model() -> None:
    async with running_fleet() as scenario:
        scenario.servers["a"].finish()
        scenario.servers["b"].finish()
        await scenario.lease("a").wait_until_granted()
        lease = scenario.lease("b")
        assert scenario.fleet.condition("b") == "unloaded"
        assert scenario.servers["a"].stops == 0
        scenario.release("a")
        await lease.wait_until_granted()
        assert (scenario.servers["a"].stops, scenario.servers["b"].starts) == (1, 1)
        assert scenario.fleet.condition("a") == "unloaded"


async def test_waiting_requests_fail_with_the_reason_if_their_model_fails_to_load() -> None:
    async with running_fleet() as scenario:
        lease = scenario.lease("a", "1")
        scenario.servers["a"].finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed, match="is out of memory"):
            await lease.wait_until_granted()
        assert scenario.fleet.condition("a") == "failed"
        assert "is out of memory" in scenario.fleet.problem("a")
        assert scenario.fleet.problem("b") == ""
        with pytest.raises(LaunchFailed):
            await scenario.lease("a", "2").wait_until_granted()
        assert scenario.servers["a"].starts == 1


async def test_loading_is_canceled_if_its_requests_left_and_another_model_is_requested() -> None:
    async with running_fleet() as scenario:
        scenario.lease("a")
        await scenario.servers["a"].wanted.wait()
        scenario.release("a")
        lease = scenario.lease("b")
        scenario.servers["b"].finish()
        await lease.wait_until_granted()
        assert scenario.servers["a"].stops == 1


async def test_keep_with_zero_seconds_stops_an_idle_model_at_once() -> None:
    async with running_fleet() as scenario:
        scenario.servers["a"].finish()
        await scenario.lease("a").wait_until_granted()
        scenario.release("a")
        scenario.fleet.keep("a", 0)
        await scenario.servers["a"].stopped.wait()
        assert scenario.fleet.condition("a") == "unloaded"


async def test_an_idle_model_is_stopped_after_its_ttl() -> None:
    async with running_fleet(ttl=0.01) as scenario:
        scenario.servers["a"].finish()
        await scenario.lease("a").wait_until_granted()
        scenario.release("a")
        await scenario.servers["a"].stopped.wait()
        assert scenario.fleet.condition("a") == "unloaded"


async def test_the_next_request_to_a_server_that_is_down_fails_and_the_server_is_stopped() -> None:
    async with running_fleet() as scenario:
        server = scenario.servers["a"]
        server.finish()
        await scenario.lease("a").wait_until_granted()
        scenario.release("a")
        server.status = ServerStatus(RestartState.WAITING)
        assert scenario.fleet.condition("a") == "loading"
        server.status = ServerStatus(RestartState.DOWN, reason="it crashed")
        assert scenario.fleet.condition("a") == "failed"
        with pytest.raises(ExitedUnexpectedly, match=r"The server of a is down.*it crashed"):
            await scenario.lease("a").wait_until_granted()
        await server.stopped.wait()


async def test_a_request_above_the_limit_of_waiting_requests_raises_queue_full() -> None:
    async with running_fleet(most_waiting=1) as scenario:
        scenario.lease("a")
        with pytest.raises(QueueFull):
            scenario.lease("b")


async def test_close_stops_all_servers_and_starts_no_model_that_requests_wait_for() -> None:
    async with running_fleet(ttl=60) as scenario:
        scenario.servers["a"].finish()
        await scenario.lease("a").wait_until_granted()
        waiting = scenario.lease("b")
        await scenario.fleet.close()
        scenario.release("a")
        assert not waiting.is_granted
        assert [server.starts for server in scenario.servers.values()] == [1, 0]
        assert [server.stops for server in scenario.servers.values()] == [1, 1]


async def test_canceling_a_waiting_request_does_not_affect_other_waiting_requests() -> None:
    async with running_fleet() as scenario:
        first, second = scenario.lease("a", "1"), scenario.lease("a", "2")
        waiting = asyncio.create_task(first.wait_until_granted())
        await asyncio.sleep(0)
        waiting.cancel()
        scenario.release("1")
        scenario.servers["a"].finish()
        await second.wait_until_granted()


async def test_preload_starts_a_model_without_a_request() -> None:
    async with running_fleet() as scenario:
        scenario.fleet.preload("a")
        await scenario.servers["a"].wanted.wait()
        assert scenario.fleet.condition("a") == "loading"
        scenario.servers["a"].finish()
        lease = scenario.lease("a")
        await lease.wait_until_granted()
        assert scenario.servers["a"].starts == 1


async def test_the_reason_is_logged_if_a_preloaded_model_fails_to_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_fleet() as scenario:
        scenario.fleet.preload("a")
        await scenario.servers["a"].wanted.wait()
        lease = scenario.lease("a")
        scenario.servers["a"].finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed):
            await lease.wait_until_granted()
        assert "a: not loaded: llama-server is out of memory" in caplog.text
        assert scenario.fleet.condition("a") == "failed"


@pytest.mark.fault("F102")
async def test_a_full_queue_drops_a_request_of_the_busiest_key_for_a_new_key() -> None:
    async with running_fleet(most_waiting=3) as scenario:
        flood = [scenario.lease("a", f"x{number}", "x") for number in range(3)]
        with pytest.raises(QueueFull):
            scenario.lease("a", "x3", "x")
        scenario.lease("a", "y0", "y")
        with pytest.raises(QueueFull):
            await flood[2].wait_until_granted()
        with pytest.raises(QueueFull):
            scenario.lease("a", "y1", "y")
        scenario.release("x2")
        assert not any(lease.is_settled for lease in flood[:2])
