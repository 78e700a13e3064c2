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
from tests.timeouts import TIMEOUT_SECONDS


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_output_is_split_into_the_same_lines_for_every_size_of_chunks(size: int) -> None:
    output = "first\nse\u00e9cond\r\n\n  \nloading ...\rthird".encode()
    tail = LogTail()
    lines: list[str] = []
    for start in range(0, len(output), size):
        lines += tail.feed(output[start : start + size])
    lines += tail.finish()
    assert lines == ["first", "se\u00e9cond", "loading ...", "third"]
    assert tail.lines == tuple(lines)


def test_a_log_tail_contains_only_the_last_lines() -> None:
    tail = LogTail()
    tail.feed(b"".join(b"%d\n" % number for number in range(MOST_LINES + 5)))
    assert tail.lines == tuple(str(number) for number in range(5, MOST_LINES + 5))


def test_a_line_without_a_line_break_is_truncated_at_the_longest_length() -> None:
    tail = LogTail()
    for _ in range(100):
        assert tail.feed(b"x" * LONGEST_LINE) == []
    assert tail.finish() == ["x" * LONGEST_LINE]
    assert tail.finish() == []


def test_control_characters_in_output_are_escaped() -> None:
    tail = LogTail()
    assert tail.feed(b"a\t\x1b[31mred\x07 \xff\n") == ["a \\x1b[31mred\\x07 \ufffd"]


def test_the_attribute_dots_is_the_last_line_if_it_consists_of_dots() -> None:
    tail = LogTail()
    tail.feed(b"loading\n..")
    assert tail.dots == ".."
    tail.feed(b".")
    assert tail.dots == "..."
    tail.feed(b"x")
    assert tail.dots == ""
    tail.feed(b"\n")
    assert tail.dots == ""


def test_a_log_tail_contains_only_the_latest_line_of_a_progress_bar() -> None:
    tail = LogTail()
    lines = tail.feed(b"start\rDownloading 1%\rDownloading 2%\x1b[K\rDownloading 3%\rend\n")
    assert len(lines) == 5
    assert tail.lines == ("start", "Downloading 3%", "end")


REPORTS_TERMINAL = """
import sys, time
print(sys.stdout.isatty(), sys.stderr.isatty(), flush=True)
print("Downloading m.gguf 10%", end="\\r")
print("Downloading m.gguf 20%", end="\\r")
print("done")
"""


def open_files() -> set[str]:
    """Return the open files of this process by descriptor and name.

    Descriptors alone are not enough: files of earlier tests may be closed at any time, and their
    descriptors reused.
    """
    files: set[str] = set()
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself is already closed
            files.add(f"{descriptor.name} {descriptor.readlink()}")
    return files


def test_the_terminal_of_a_child_with_on_terminal_is_closed_when_the_child_exits() -> None:
    lines: list[str] = []

    async def work() -> tuple[str, ...]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            command = (sys.executable, "-c", REPORTS_TERMINAL)
            child = await Process.start(
                command, name="child", listener=lines.append, on_terminal=True
            )
            assert await child.wait() == 0
        return child.tail

    before = open_files()
    tail = asyncio.run(work())
    assert lines == ["True True", "Downloading m.gguf 10%", "Downloading m.gguf 20%", "done"]
    assert tail == (
        "True True",
        "Downloading m.gguf 20%",
        "done",
    )  # the latest line of a progress bar replaces its earlier lines
    assert open_files() - before == set()


REPOSITORY = Path(__file__).parents[3]

IGNORES_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    signal.pause()
"""

# Starts a child that connects to the test and waits for a signal.
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
    script: str, grace_seconds: float = TIMEOUT_SECONDS
) -> tuple[Process, asyncio.Event]:
    """Start a Python script; the event is set when it has written its first line."""
    has_output = asyncio.Event()
    process = await Process.start(
        (sys.executable, "-c", script),
        name="child",
        environment={"GREETING": "hello"},
        listener=lambda _line: has_output.set(),
        grace_seconds=grace_seconds,
    )
    return process, has_output


async def test_the_output_and_exit_code_of_a_child_are_returned() -> None:
    script = "import os, sys; print(os.environ['GREETING'], flush=True); sys.exit('goodbye')"
    process, _ = await start(script)
    assert await process.wait() == 1
    assert process.tail == ("hello", "goodbye")


async def test_stop_sends_sigterm_to_the_child() -> None:
    process, has_output = await start("import signal; print('up', flush=True); signal.pause()")
    await has_output.wait()
    assert await process.stop() == -signal.SIGTERM


async def test_stop_kills_a_child_that_ignores_sigterm() -> None:
    process, has_output = await start(IGNORES_SIGTERM, grace_seconds=0.05)
    await has_output.wait()
    assert await process.stop() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_stop_after_the_exit_returns_the_exit_code() -> None:
    process, _ = await start("")
    assert await process.wait() == 0
    first, second = await asyncio.gather(process.stop(), process.stop())
    assert (first, second) == (0, 0)


async def test_a_canceled_stop_returns_only_after_the_child_has_exited() -> None:
    process, has_output = await start(IGNORES_SIGTERM, grace_seconds=0.05)
    await has_output.wait()
    stopping = asyncio.create_task(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not process.is_running
    assert await process.wait() == -signal.SIGKILL


def test_a_running_child_is_killed_when_asyncio_run_returns() -> None:
    pids: list[int] = []

    async def work() -> None:
        process, has_output = await start(IGNORES_SIGTERM)
        await has_output.wait()
        pids.append(process.pid)

    asyncio.run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_child_runs_in_a_separate_session() -> None:
    process, has_output = await start("import os; print(os.getsid(0) == os.getpid())")
    await process.wait()
    assert process.tail == ("True",)
    assert has_output.is_set()


async def test_a_command_that_the_system_rejects_raises_launch_failed() -> None:
    with pytest.raises(LaunchFailed, match="could not be started"):
        await Process.start(("x" * 10_000_000,), name="child")


def test_a_child_is_killed_when_its_parent_is_killed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_SECONDS)
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", PARENT, port], cwd=REPOSITORY) as parent:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(TIMEOUT_SECONDS)
                parent.kill()
                assert connection.recv(1) == b""
