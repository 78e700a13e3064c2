"""A supervisor of small real programs that report when they are ready."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.errors import ExitedUnexpectedly, LaunchFailed, NeverBecameReady, ProcessFailed
from proxy.processes.process import Process, RunningServer, ServerAddress
from proxy.processes.restarts import RestartPolicy, RestartState
from proxy.processes.supervisor import RemoteStatus, ServerStatus, Start, Supervisor

AT_ONCE = RestartPolicy(first_delay=0.0)
LASTS = "import signal; print('up', flush=True); signal.pause()"
CRASHES = "import sys; print('up', flush=True); sys.exit('the dog ate it')"
# the first time it is ready and crashes, then it is as it should be
STUMBLES = f"""
import pathlib, sys
mark = pathlib.Path(sys.argv[1])
if not mark.exists():
    mark.touch()
    print('up', flush=True)
    sys.exit('stumbled')
{LASTS}
"""


def program(script: str, *arguments: str) -> Start:
    """Return a launcher of a Python script that is ready after its first line."""

    @asynccontextmanager
    async def start() -> AsyncGenerator[RunningServer]:
        spoke = asyncio.Event()
        process = await Process.start(
            (sys.executable, "-c", script, *arguments),
            name="child",
            listener=lambda _line: spoke.set(),
        )
        try:
            await spoke.wait()
            yield RunningServer("http://127.0.0.1:1", "key", process)
        finally:
            await process.stop()

    return start


@asynccontextmanager
async def broken(error: Exception | None) -> AsyncGenerator[RunningServer]:
    if error is not None:
        raise error
    yield RunningServer("", "", await Process.start((sys.executable,), name="never"))


def is_running(server: RunningServer) -> bool:
    try:
        os.kill(server.process.pid, 0)
    except ProcessLookupError:
        return False
    return True


class Seen:
    def __init__(self) -> None:
        self.statuses: list[ServerStatus] = []
        self._reached: asyncio.Queue[RestartState] = asyncio.Queue()

    def note(self, status: ServerStatus) -> None:
        self.statuses.append(status)
        self._reached.put_nowait(status.state)

    @property
    def states(self) -> list[RestartState]:
        return [status.state for status in self.statuses]

    async def until(self, state: RestartState) -> ServerStatus:
        while await self._reached.get() is not state:
            pass
        return next(status for status in reversed(self.statuses) if status.state is state)


async def test_it_starts_on_demand_and_all_callers_share_the_start() -> None:
    seen = Seen()
    supervisor = Supervisor("child", program(LASTS), on_change=seen.note)
    assert supervisor.status.state is RestartState.STOPPED
    served: list[int] = []

    async def wait_for_it(number: int) -> RunningServer:
        server = await supervisor.ready()
        served.append(number)
        return server

    servers = await asyncio.gather(*map(wait_for_it, range(200)))
    assert {server.process.pid for server in servers} == {servers[0].process.pid}
    assert served == list(range(200))
    assert seen.states == [RestartState.STARTING, RestartState.READY]
    assert supervisor.status.address == ServerAddress("http://127.0.0.1:1", "key")
    await supervisor.close()
    assert not is_running(servers[0])


async def test_a_crash_is_followed_by_a_restart_with_a_new_server(tmp_path: Path) -> None:
    seen = Seen()
    start = program(STUMBLES, str(tmp_path / "mark"))
    supervisor = Supervisor("child", start, policy=AT_ONCE, on_change=seen.note)
    first = await supervisor.ready()
    waiting = await seen.until(RestartState.WAITING)
    second = await supervisor.ready()
    assert first.process.pid != second.process.pid
    assert waiting.reason == "child crashed (exit code 1); last output: stumbled"
    assert (waiting.address, waiting.retry_after, waiting.log) == (None, 0, ("up", "stumbled"))
    after = supervisor.status
    assert (after.state, after.restarts, after.retry_after) == (RestartState.READY, 1, None)
    assert after.reason == waiting.reason
    await supervisor.close()


async def test_a_caller_right_after_a_crash_gets_no_dead_server() -> None:
    supervisor = Supervisor("child", program(LASTS), policy=AT_ONCE)
    first = await supervisor.ready()
    os.kill(first.process.pid, signal.SIGKILL)
    await first.process.wait()
    second = await supervisor.ready()
    assert is_running(second)
    await supervisor.close()


async def test_a_crash_loop_is_ended_and_its_reason_reported_to_all() -> None:
    seen = Seen()
    policy = RestartPolicy(first_delay=0.0, most_failures=3)
    supervisor = Supervisor("child", program(CRASHES), policy=policy, on_change=seen.note)
    await supervisor.ready()
    down = await seen.until(RestartState.DOWN)
    assert down.log[-1] == "the dog ate it"
    assert (down.restarts, down.retry_after) == (2, None)
    for _ in range(2):
        with pytest.raises(ExitedUnexpectedly, match="the dog ate it"):
            await supervisor.ready()
    assert seen.states.count(RestartState.STARTING) == 3
    await supervisor.stop()
    assert supervisor.status.state is RestartState.STOPPED
    await supervisor.ready()  # a new chance
    await supervisor.close()


async def test_a_permanent_failure_is_not_retried() -> None:
    seen = Seen()
    failure = LaunchFailed("child", "is no program", is_lasting=True)
    supervisor = Supervisor("child", lambda: broken(failure), on_change=seen.note)
    waiting = [asyncio.create_task(supervisor.ready()) for _ in range(3)]
    for task in waiting:
        with pytest.raises(LaunchFailed, match="is no program"):
            await task
    assert seen.states == [RestartState.STARTING, RestartState.DOWN]
    assert supervisor.status.reason == "child is no program"


async def test_a_start_that_fails_for_an_unknown_reason_is_tried_until_the_end_of_patience() -> (
    None
):
    seen = Seen()
    failure = LaunchFailed("child", "had a bad day")
    supervisor = Supervisor("child", lambda: broken(failure), policy=AT_ONCE, on_change=seen.note)
    with pytest.raises(LaunchFailed, match="had a bad day"):
        await supervisor.ready()
    assert seen.states.count(RestartState.STARTING) == AT_ONCE.most_failures


async def test_a_stop_leaves_no_process_and_the_next_request_starts_again() -> None:
    supervisor = Supervisor("child", program(LASTS))
    await supervisor.stop()
    first = await supervisor.ready()
    await asyncio.gather(supervisor.stop(), supervisor.stop())
    assert not is_running(first)
    assert supervisor.status.state is RestartState.STOPPED
    second = await supervisor.ready()
    assert is_running(second)
    await supervisor.close()


async def test_a_waiting_caller_is_notified_of_a_stop() -> None:
    supervisor = Supervisor("child", program("import signal; signal.pause()"))
    waiting = asyncio.create_task(supervisor.ready())
    await asyncio.sleep(0)
    await supervisor.stop()
    with pytest.raises(NeverBecameReady, match="child was stopped"):
        await waiting


async def test_two_servers_never_run_at_once() -> None:
    running = 0

    @asynccontextmanager
    async def counted() -> AsyncGenerator[RunningServer]:
        nonlocal running
        running += 1
        assert running == 1
        try:
            async with program(LASTS)() as server:
                yield server
        finally:
            running -= 1

    supervisor = Supervisor("child", counted)
    await supervisor.ready()
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    await supervisor.ready()
    await stopping
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    stopping.cancel()  # its end is no longer awaited
    await supervisor.ready()
    assert supervisor.status.state is RestartState.READY
    await supervisor.close()
    assert running == 0


async def test_a_canceled_waiter_does_not_affect_the_others() -> None:
    supervisor = Supervisor("child", program(LASTS))
    impatient, patient = (asyncio.create_task(supervisor.ready()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert is_running(await patient)
    await supervisor.close()


async def test_a_closed_supervisor_stays_closed() -> None:
    supervisor = Supervisor("child", program(LASTS))
    await supervisor.close()
    with pytest.raises(ProcessFailed, match="was stopped"):
        await supervisor.ready()


async def test_no_caller_waits_forever_when_the_supervisor_crashes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor("child", lambda: broken(ZeroDivisionError()), policy=AT_ONCE)
    with pytest.raises(ExitedUnexpectedly, match="its supervisor crashed"):
        await supervisor.ready()
    await supervisor.close()
    assert "ZeroDivisionError" in caplog.text


HERE = ServerAddress("http://127.0.0.1:1", "key")


async def test_a_caller_waits_until_the_server_is_ready() -> None:
    remote = RemoteStatus("server")
    waiting = [asyncio.create_task(remote.ready()) for _ in range(3)]
    await asyncio.sleep(0)
    remote.note(ServerStatus(RestartState.STARTING))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    remote.note(ServerStatus(RestartState.READY, address=HERE))
    assert await asyncio.gather(*waiting) == [HERE] * 3
    assert await remote.ready() == HERE
    assert remote.status.state is RestartState.READY


async def test_bad_news_end_the_waiting() -> None:
    remote = RemoteStatus("server")
    waiting = asyncio.create_task(remote.ready())
    await asyncio.sleep(0)
    remote.note(ServerStatus(RestartState.DOWN, reason="server crashed (SIGABRT)"))
    with pytest.raises(ProcessFailed, match=r"server is down: server crashed \(SIGABRT\)"):
        await waiting
