import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path

import pytest

from proxy.errors import LaunchFailed
from proxy.processes.process import Process
from tests.patience import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[3]

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    signal.pause()
"""

# Starts a child that connects to us and waits, and waits too.
PARENT = """
import asyncio, sys
from proxy.processes.process import Process

CHILD = "import signal, socket; s = socket.create_connection(('127.0.0.1', %s)); signal.pause()"

async def main():
    child = await Process.start((sys.executable, "-c", CHILD % sys.argv[1]), name="child")
    await child.wait()

asyncio.run(main())
"""


def run(work: Coroutine[None, None, None]) -> None:
    async def with_patience() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work

    asyncio.run(with_patience())


async def start(
    script: str, grace_seconds: float = PATIENCE_SECONDS
) -> tuple[Process, asyncio.Event]:
    """Start a Python script; the event is set when it has written its first line."""
    spoke = asyncio.Event()
    process = await Process.start(
        (sys.executable, "-c", script),
        name="child",
        environment={"GREETING": "hello"},
        listener=lambda _line: spoke.set(),
        grace_seconds=grace_seconds,
    )
    return process, spoke


def test_what_a_child_says_is_kept_and_its_end_is_noticed() -> None:
    async def work() -> None:
        script = "import os, sys; print(os.environ['GREETING'], flush=True); sys.exit('goodbye')"
        process, _ = await start(script)
        assert await process.wait() == 1
        assert process.tail == ("hello", "goodbye")

    run(work())


def test_a_polite_child_ends_at_the_first_request() -> None:
    async def work() -> None:
        process, spoke = await start("import signal; print('up', flush=True); signal.pause()")
        await spoke.wait()
        assert await process.stop() == -signal.SIGTERM

    run(work())


def test_a_stubborn_child_is_killed_after_the_grace_time_and_reaped() -> None:
    async def work() -> None:
        process, spoke = await start(STUBBORN, grace_seconds=0.05)
        await spoke.wait()
        assert await process.stop() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)

    run(work())


def test_stopping_twice_or_after_the_end_does_no_harm() -> None:
    async def work() -> None:
        process, _ = await start("")
        assert await process.wait() == 0
        first, second = await asyncio.gather(process.stop(), process.stop())
        assert (first, second) == (0, 0)

    run(work())


def test_a_stop_goes_on_when_the_one_who_asked_has_left() -> None:
    async def work() -> None:
        process, spoke = await start(STUBBORN, grace_seconds=0.05)
        await spoke.wait()
        asked = asyncio.create_task(process.stop())
        await asyncio.sleep(0)
        asked.cancel()
        assert await process.wait() == -signal.SIGKILL

    run(work())


def test_a_child_ends_with_the_event_loop() -> None:
    pids: list[int] = []

    async def work() -> None:
        process, spoke = await start(STUBBORN)
        await spoke.wait()
        pids.append(process.pid)

    run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_child_is_in_a_session_of_its_own() -> None:
    async def work() -> None:
        process, spoke = await start("import os; print(os.getsid(0) == os.getpid())")
        await process.wait()
        assert process.tail == ("True",)
        assert spoke.is_set()

    run(work())


def test_a_command_that_the_system_refuses_is_a_failed_launch() -> None:
    async def work() -> None:
        with pytest.raises(LaunchFailed, match="could not be started"):
            await Process.start(("x" * 10_000_000,), name="child")

    run(work())


def test_a_child_does_not_outlive_a_parent_that_was_killed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", PARENT, port], cwd=REPOSITORY) as parent:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                parent.kill()
                assert connection.recv(1) == b""
