"""Starts candidates in front of the mock backend, and waits until they answer."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.load.candidates import REPOSITORY, Launch, Situation, launch_of
from benchmarks.load.client import Answer, BrokenOff, Target
from benchmarks.load.peers import NotAvailable
from benchmarks.load.processes import Usage, free_port, pinned, started, usage
from benchmarks.load.replies import Behavior
from benchmarks.load.workloads import Workload

_START_SECONDS = 60.0
_POLL_SECONDS = 0.005
_FIRST = Workload(Behavior("call"), is_streamed=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """A measured server; `group` is its process group, None for the backend itself.

    `ready_seconds` is the time from its start to its first response. `backend_url` is the address
    of its backend.
    """

    target: Target
    group: int | None = None
    ready_seconds: float = 0.0
    backend_url: str = ""

    def usage(self) -> Usage | None:
        return None if self.group is None else usage(self.group)


@contextmanager
def mock_backend(folder: Path) -> Iterator[str]:
    """Run the mock backend on the core of the load generator; yields its URL."""
    port = free_port()
    command = (sys.executable, "-m", "benchmarks", "mock", "--port", str(port))
    launch = Launch(command, folder=REPOSITORY)
    with launched(launch, port, folder / "mock.log", core=0) as subject:
        yield subject.target.url


@contextmanager
def running(name: str, situation: Situation) -> Iterator[Subject]:
    """Run a candidate on a separate core; raises NotAvailable."""
    log = situation.folder / f"{situation.port}.log"
    with launched(launch_of(name, situation), situation.port, log, core=1) as subject:
        yield replace(subject, backend_url=situation.backend_url)


@contextmanager
def launched(launch: Launch, port: int, log: Path, *, core: int) -> Iterator[Subject]:
    """Run a server on this core, and wait until it answers; raises NotAvailable."""
    folder = launch.folder or log.parent
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            with pinned(core):
                process = stack.enter_context(
                    started(launch.command, folder=folder, environment=launch.environment, log=log)
                )
        except OSError as error:
            raise NotAvailable(str(error)) from error
        target = Target(f"http://127.0.0.1:{port}", launch.headers)
        problem = asyncio.run(_problem_at_start(target, process))
        if problem:
            raise NotAvailable(f"{problem}; {_last_line(log)}")
        yield Subject(target, process.pid, time.monotonic() - begun)


async def _problem_at_start(target: Target, process: subprocess.Popen[bytes]) -> str:
    """Send requests until one succeeds; returns the last problem, "" after a success."""
    deadline = time.monotonic() + _START_SECONDS
    problem = "it does not listen"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return f"it ended with code {process.returncode}"
        try:
            problem = _FIRST.problem(await first_answer(target))
        except (OSError, BrokenOff, TimeoutError):
            pass
        else:
            if not problem:
                return ""
        await asyncio.sleep(_POLL_SECONDS)
    return problem


async def first_answer(target: Target) -> Answer:
    """Request one short call on a new connection."""
    async with asyncio.timeout(_START_SECONDS):
        connection = await target.connect()
        try:
            return await connection.send(target.request(_FIRST.body))
        finally:
            connection.close()


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it printed nothing"
