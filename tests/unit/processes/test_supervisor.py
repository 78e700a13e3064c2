"""Tests of the supervisor with small Python programs, which write a line when they are ready."""

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

NO_DELAY = RestartPolicy(first_delay=0.0)
KEEPS_RUNNING = "import signal; print('up', flush=True); signal.pause()"
CRASHES = "import sys; print('up', flush=True); sys.exit('the dog ate it')"
# crashes at the first start, and keeps running after the second
CRASHES_ONCE = f"""
import pathlib, sys
mark = pathlib.Path(sys.argv[1])
if not mark.exists():
    mark.touch()
    print('up', flush=True)
    sys.exit('stumbled')
{KEEPS_RUNNING}
"""


def program(script: str, *arguments: str, grace_seconds: float = 3.0) -> Start:
    """Return a start function for a Python script, which is ready after its first line."""

    @asynccontextmanager
    async def start() -> AsyncGenerator[RunningServer]:
        has_output = asyncio.Event()
        process = await Process.start(
            (sys.executable, "-c", script, *arguments),
            name="child",
            listener=lambda _line: has_output.set(),
            grace_seconds=grace_seconds,
        )
        try:
            await has_output.wait()
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


class StatusRecorder:
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


async def test_concurrent_calls_of_ready_start_one_process() -> None:
    recorder = StatusRecorder()
    supervisor = Supervisor("child", program(KEEPS_RUNNING), on_change=recorder.note)
    assert supervisor.status.state is RestartState.STOPPED
    order: list[int] = []

    async def wait_for_server(number: int) -> RunningServer:
        server = await supervisor.ready()
        order.append(number)
        return server

    servers = await asyncio.gather(*map(wait_for_server, range(200)))
    assert {server.process.pid for server in servers} == {servers[0].process.pid}
    assert order == list(range(200))
    assert recorder.states == [RestartState.STARTING, RestartState.READY]
    assert supervisor.status.address == ServerAddress("http://127.0.0.1:1", "key")
    await supervisor.close()
    assert not is_running(servers[0])


async def test_a_crashed_server_is_restarted(tmp_path: Path) -> None:
    recorder = StatusRecorder()
    start = program(CRASHES_ONCE, str(tmp_path / "mark"))
    supervisor = Supervisor("child", start, policy=NO_DELAY, on_change=recorder.note)
    first = await supervisor.ready()
    waiting = await recorder.until(RestartState.WAITING)
    second = await supervisor.ready()
    assert first.process.pid != second.process.pid
    assert waiting.reason == "child crashed (exit code 1); last output: stumbled"
    assert (waiting.address, waiting.retry_after, waiting.log) == (None, 0, ("up", "stumbled"))
    status = supervisor.status
    assert (status.state, status.restarts, status.retry_after) == (RestartState.READY, 1, None)
    assert status.reason == waiting.reason
    await supervisor.close()


async def test_ready_called_after_a_crash_returns_the_restarted_server() -> None:
    supervisor = Supervisor("child", program(KEEPS_RUNNING), policy=NO_DELAY)
    first = await supervisor.ready()
    os.kill(first.process.pid, signal.SIGKILL)
    await first.process.wait()
    second = await supervisor.ready()
    assert is_running(second)
    await supervisor.close()


async def test_ready_raises_the_reason_after_too_many_crashes_until_stop_is_called() -> None:
    recorder = StatusRecorder()
    policy = RestartPolicy(first_delay=0.0, most_failures=3)
    supervisor = Supervisor("child", program(CRASHES), policy=policy, on_change=recorder.note)
    await supervisor.ready()
    down = await recorder.until(RestartState.DOWN)
    assert down.log[-1] == "the dog ate it"
    assert (down.restarts, down.retry_after) == (2, None)
    for _ in range(2):
        with pytest.raises(ExitedUnexpectedly, match="the dog ate it"):
            await supervisor.ready()
    assert recorder.states.count(RestartState.STARTING) == 3
    await supervisor.stop()
    assert supervisor.status.state is RestartState.STOPPED
    await supervisor.ready()  # after a stop the failures are forgotten
    await supervisor.close()


async def test_a_start_with_a_lasting_failure_is_not_retried() -> None:
    recorder = StatusRecorder()
    failure = LaunchFailed("child", "is no program", is_lasting=True)
    supervisor = Supervisor("child", lambda: broken(failure), on_change=recorder.note)
    waiting = [asyncio.create_task(supervisor.ready()) for _ in range(3)]
    for task in waiting:
        with pytest.raises(LaunchFailed, match="is no program"):
            await task
    assert recorder.states == [RestartState.STARTING, RestartState.DOWN]
    assert supervisor.status.reason == "child is no program"


async def test_a_failed_start_is_retried_up_to_the_limit() -> None:
    recorder = StatusRecorder()
    failure = LaunchFailed("child", "had a bad day")
    supervisor = Supervisor(
        "child", lambda: broken(failure), policy=NO_DELAY, on_change=recorder.note
    )
    with pytest.raises(LaunchFailed, match="had a bad day"):
        await supervisor.ready()
    assert recorder.states.count(RestartState.STARTING) == NO_DELAY.most_failures


async def test_stop_ends_the_process_and_ready_starts_it_again() -> None:
    supervisor = Supervisor("child", program(KEEPS_RUNNING))
    await supervisor.stop()
    first = await supervisor.ready()
    await asyncio.gather(supervisor.stop(), supervisor.stop())
    assert not is_running(first)
    assert supervisor.status.state is RestartState.STOPPED
    second = await supervisor.ready()
    assert is_running(second)
    await supervisor.close()


async def test_calls_that_wait_in_ready_raise_never_became_ready_if_stop_is_called() -> None:
    supervisor = Supervisor("child", program("import signal; signal.pause()"))
    waiting = asyncio.create_task(supervisor.ready())
    await asyncio.sleep(0)
    await supervisor.stop()
    with pytest.raises(NeverBecameReady, match="child was stopped"):
        await waiting


async def test_ready_waits_until_the_previous_server_has_stopped() -> None:
    running = 0

    @asynccontextmanager
    async def start_counted() -> AsyncGenerator[RunningServer]:
        nonlocal running
        running += 1
        assert running == 1
        try:
            async with program(KEEPS_RUNNING)() as server:
                yield server
        finally:
            running -= 1

    supervisor = Supervisor("child", start_counted)
    await supervisor.ready()
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    await supervisor.ready()
    await stopping
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    stopping.cancel()  # the server is stopped nevertheless
    await supervisor.ready()
    assert supervisor.status.state is RestartState.READY
    await supervisor.close()
    assert running == 0


async def test_stop_waits_for_the_exit_of_a_server_whose_start_failed() -> None:
    """Simulation, seed 574: the next model was loaded while the old one was still in memory."""
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    started: list[Process] = []

    @asynccontextmanager
    async def never_ready(is_ready: bool = False) -> AsyncGenerator[RunningServer]:
        script = f"{stubborn}\nwhile True: signal.pause()"
        async with program(script, grace_seconds=0.2)() as server:
            started.append(server.process)
            if not is_ready:
                raise LaunchFailed("child", "was not ready in time")
            yield server

    supervisor = Supervisor("child", never_ready)
    waiting = asyncio.create_task(supervisor.ready())
    while not started:  # noqa: ASYNC110 - the start is in the supervisor's task
        await asyncio.sleep(0)
    await supervisor.stop()
    assert not started[0].is_running
    with pytest.raises(NeverBecameReady, match="child was stopped"):
        await waiting


async def test_canceling_one_call_of_ready_does_not_cancel_the_other_calls() -> None:
    supervisor = Supervisor("child", program(KEEPS_RUNNING))
    canceled, waiting = (asyncio.create_task(supervisor.ready()) for _ in range(2))
    await asyncio.sleep(0)
    canceled.cancel()
    assert is_running(await waiting)
    await supervisor.close()


async def test_ready_called_after_close_raises_process_failed() -> None:
    supervisor = Supervisor("child", program(KEEPS_RUNNING))
    await supervisor.close()
    with pytest.raises(ProcessFailed, match="was stopped"):
        await supervisor.ready()


async def test_ready_raises_exited_unexpectedly_if_the_supervisor_crashes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor("child", lambda: broken(ZeroDivisionError()), policy=NO_DELAY)
    with pytest.raises(ExitedUnexpectedly, match="its supervisor crashed"):
        await supervisor.ready()
    await supervisor.close()
    assert "ZeroDivisionError" in caplog.text


ADDRESS = ServerAddress("http://127.0.0.1:1", "key")


async def test_ready_of_a_remote_status_waits_until_the_address_is_reported() -> None:
    remote = RemoteStatus("server")
    waiting = [asyncio.create_task(remote.ready()) for _ in range(3)]
    await asyncio.sleep(0)
    remote.note(ServerStatus(RestartState.STARTING))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    remote.note(ServerStatus(RestartState.READY, address=ADDRESS))
    assert await asyncio.gather(*waiting) == [ADDRESS] * 3
    assert await remote.ready() == ADDRESS
    assert remote.status.state is RestartState.READY


async def test_ready_of_a_remote_status_raises_process_failed_if_the_server_is_down() -> None:
    remote = RemoteStatus("server")
    waiting = asyncio.create_task(remote.ready())
    await asyncio.sleep(0)
    remote.note(ServerStatus(RestartState.DOWN, reason="server crashed (SIGABRT)"))
    with pytest.raises(ProcessFailed, match=r"server is down: server crashed \(SIGABRT\)"):
        await waiting
