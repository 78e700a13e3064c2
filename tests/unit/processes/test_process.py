import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.errors import LaunchFailed
from proxy.processes.process import LONGEST_LINE, MOST_LINES, LogTail, Process
from tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_at_any_chunking(size: int) -> None:
    output = "first\nse\u00e9cond\r\n\n  \nloading ...\rthird".encode()
    tail = LogTail()
    lines: list[str] = []
    for start in range(0, len(output), size):
        lines += tail.feed(output[start : start + size])
    lines += tail.finish()
    assert lines == ["first", "se\u00e9cond", "loading ...", "third"]
    assert tail.lines == tuple(lines)


def test_only_the_last_lines_are_kept() -> None:
    tail = LogTail()
    tail.feed(b"".join(b"%d\n" % number for number in range(MOST_LINES + 5)))
    assert tail.lines == tuple(str(number) for number in range(5, MOST_LINES + 5))


def test_a_line_without_an_end_stays_within_bounds() -> None:
    tail = LogTail()
    for _ in range(100):
        assert tail.feed(b"x" * LONGEST_LINE) == []
    assert tail.finish() == ["x" * LONGEST_LINE]
    assert tail.finish() == []


def test_control_characters_are_escaped() -> None:
    tail = LogTail()
    assert tail.feed(b"a\t\x1b[31mred\x07 \xff\n") == ["a \\x1b[31mred\\x07 \ufffd"]


def test_a_growing_row_of_dots_is_visible() -> None:
    tail = LogTail()
    tail.feed(b"loading\n..")
    assert tail.dots == ".."
    tail.feed(b".")
    assert tail.dots == "..."
    tail.feed(b"x")
    assert tail.dots == ""
    tail.feed(b"\n")
    assert tail.dots == ""


def test_only_the_latest_state_of_a_progress_bar_is_kept() -> None:
    tail = LogTail()
    lines = tail.feed(b"start\rDownloading 1%\rDownloading 2%\x1b[K\rDownloading 3%\rend\n")
    assert len(lines) == 5
    assert tail.lines == ("start", "Downloading 3%", "end")


TELLS = """
import sys, time
print(sys.stdout.isatty(), sys.stderr.isatty(), flush=True)
print("Downloading m.gguf 10%", end="\\r")
print("Downloading m.gguf 20%", end="\\r")
print("done")
"""


def open_files() -> set[str]:
    """Return them by descriptor and name; files of others may be closed at any time."""
    files: set[str] = set()
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the folder itself was one of them
            files.add(f"{descriptor.name} {descriptor.readlink()}")
    return files


def test_a_child_has_a_terminal_and_unbuffered_lines() -> None:
    lines: list[str] = []

    async def work() -> tuple[str, ...]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            command = (sys.executable, "-c", TELLS)
            child = await Process.start(
                command, name="child", listener=lines.append, on_terminal=True
            )
            assert await child.wait() == 0
        return child.tail

    before = open_files()
    tail = asyncio.run(work())
    assert lines == ["True True", "Downloading m.gguf 10%", "Downloading m.gguf 20%", "done"]
    assert tail == ("True True", "Downloading m.gguf 20%", "done")  # a bar is kept once
    assert open_files() - before == set()


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


async def test_the_output_of_a_child_is_kept_and_its_exit_noticed() -> None:
    script = "import os, sys; print(os.environ['GREETING'], flush=True); sys.exit('goodbye')"
    process, _ = await start(script)
    assert await process.wait() == 1
    assert process.tail == ("hello", "goodbye")


async def test_a_cooperative_child_ends_at_the_first_signal() -> None:
    process, spoke = await start("import signal; print('up', flush=True); signal.pause()")
    await spoke.wait()
    assert await process.stop() == -signal.SIGTERM


async def test_a_stubborn_child_is_killed_after_the_grace_time_and_reaped() -> None:
    process, spoke = await start(STUBBORN, grace_seconds=0.05)
    await spoke.wait()
    assert await process.stop() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_stopping_twice_or_after_the_end_is_harmless() -> None:
    process, _ = await start("")
    assert await process.wait() == 0
    first, second = await asyncio.gather(process.stop(), process.stop())
    assert (first, second) == (0, 0)


async def test_a_stop_continues_when_its_caller_is_canceled() -> None:
    process, spoke = await start(STUBBORN, grace_seconds=0.05)
    await spoke.wait()
    stopping = asyncio.create_task(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    assert await process.wait() == -signal.SIGKILL


def test_a_child_ends_with_the_event_loop() -> None:
    pids: list[int] = []

    async def work() -> None:
        process, spoke = await start(STUBBORN)
        await spoke.wait()
        pids.append(process.pid)

    asyncio.run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_child_is_in_a_separate_session() -> None:
    process, spoke = await start("import os; print(os.getsid(0) == os.getpid())")
    await process.wait()
    assert process.tail == ("True",)
    assert spoke.is_set()


async def test_a_command_that_the_system_refuses_is_a_failed_launch() -> None:
    with pytest.raises(LaunchFailed, match="could not be started"):
        await Process.start(("x" * 10_000_000,), name="child")


def test_a_child_does_not_outlive_a_killed_parent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", PARENT, port], cwd=REPOSITORY) as parent:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                parent.kill()
                assert connection.recv(1) == b""
