"""Counts the instructions of a start, of calls and of streamed tokens under callgrind.

Callgrind writes its counters at a mark (see `marked_proxy`). Each count is the difference between
two marks at which the proxy is idle. Two counts of the same code differ by far less than a percent,
because `PYTHONHASHSEED` is constant, the backend sends a token only after the client has received
the token before it (see `pace`), and only the proxy's process is counted.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.instructions.marked_proxy import MARK
from benchmarks.instructions.pace import Pace, PacedBackend, PacedClient
from benchmarks.load.candidates import Situation, temper_arguments
from benchmarks.load.client import BrokenOff, Target
from benchmarks.load.peers import NotAvailable
from benchmarks.load.processes import free_port, started
from benchmarks.load.replies import Behavior
from benchmarks.load.workloads import Workload

CALLS = 200
TOKENS = 200
FIGURES = {
    "start": "a start, up to the first answer",
    "calls": f"{CALLS} calls, not streamed",
    "tokens": f"a stream of {TOKENS} tokens",
}

_DUMPS = "callgrind.out"
_CALLGRIND = (
    *("valgrind", "--tool=callgrind", f"--dump-before={MARK}"),
    *(f"--callgrind-out-file={_DUMPS}", "--log-file=valgrind.log"),
)
_CALL = Workload(Behavior("call"), is_streamed=False)
_STREAM = Workload(Behavior("prose", TOKENS, 1))
_SHORT_STREAM = Workload(Behavior("prose", 20, 1))
_WARM_UP_CALLS, _WARM_UP_STREAMS = 20, 2

_START_SECONDS = 600.0  # callgrind slows the start down fifty times, more on a busy machine
_POLL_SECONDS = 0.5
_DUMP_SECONDS = 120.0
# Temper warms up half a second after its start, and this work belongs to the start.
_QUIET_SECONDS = {"start": 2.0, "calls": 0.5, "tokens": 0.5}
# Attempts at a step. If the proxy requests the list of models during each attempt, the machine is
# too slow.
_TRIES = 5
_LOOK_SECONDS = 0.02
_TOTALS = re.compile(rb"^totals: (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Proxy:
    """The measured proxy: an interpreter, and a checkout of Temper."""

    python: Path
    checkout: Path


def count(proxy: Proxy, folder: Path, print_line: Callable[[str], None]) -> dict[str, int]:
    """Count the instructions of each of `FIGURES`; raises NotAvailable.

    The files of callgrind remain in `folder`.
    """
    if shutil.which("valgrind") is None:
        raise NotAvailable("valgrind is not on PATH")
    if not sys.platform.startswith("linux"):
        raise NotAvailable("it needs Linux")
    return asyncio.run(_count(proxy, folder, print_line))


async def _count(proxy: Proxy, folder: Path, print_line: Callable[[str], None]) -> dict[str, int]:
    pace = Pace()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PacedBackend(pace), "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    backend_url = f"http://127.0.0.1:{port}"
    async with server:
        # The first start, without callgrind, compiles all modules to bytecode, so that this work is
        # not counted.
        async with _started(proxy, backend_url, folder, pace) as uncounted:
            await uncounted.start()
        async with _started(proxy, backend_url, folder, pace, wrapper=_CALLGRIND) as counted:
            return await _count_steps(counted, print_line)


async def _count_steps(counted: "_Counted", print_line: Callable[[str], None]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, work in _STEPS.items():
        figure = await counted.count(name, work)
        if name in FIGURES:
            print_line(f"{FIGURES[name]}: {figure:,} instructions")
            counts[name] = figure
    return counts


@contextlib.asynccontextmanager
async def _started(
    proxy: Proxy, backend_url: str, folder: Path, pace: Pace, *, wrapper: Sequence[str] = ()
) -> AsyncGenerator["_Counted", None]:
    situation = Situation(backend_url, free_port(), "respond", folder, folder, proxy.checkout)
    _, *arguments = temper_arguments(situation)
    script = Path(__file__).with_name("marked_proxy.py")
    command = (*wrapper, str(proxy.python), str(script), *arguments)
    environment = {
        **{name: "" for name in os.environ if name.startswith("PYTHON")},
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(proxy.checkout),
        "HOME": str(folder),
        # Under callgrind on a busy machine, a connection on loopback took longer than 5 s.
        "TEMPER_BACKEND__CONNECT_SECONDS": "60",
    }
    log = folder / "proxy.log"
    target = Target(f"http://127.0.0.1:{situation.port}")
    with started(command, folder=folder, environment=environment, log=log) as process:
        yield _Counted(target, pace, process, folder / _DUMPS)


def total_in(dump: bytes) -> int | None:
    """Return the instructions of a dump; None while callgrind still writes it."""
    match = _TOTALS.search(dump)
    return int(match[1]) if match else None


def is_running(threads: Path) -> bool:
    """Return whether a thread of a process (`/proc/PID/task`) is not asleep."""
    try:
        stats = [(thread / "stat").read_text("utf-8", "replace") for thread in threads.iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return True  # a thread ended between the two reads
    return any(stat.rpartition(")")[2].split()[0] != "S" for stat in stats)


class _Counted:
    """A proxy that runs under callgrind."""

    def __init__(
        self, target: Target, pace: Pace, process: subprocess.Popen[bytes], dumps: Path
    ) -> None:
        self._target = target
        self._pace = pace
        self._process = process
        self._dumps = dumps
        self._marks = 0

    async def start(self) -> None:
        """Wait for the first answer; raises NotAvailable."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                await self._send(_CALL, 1)
            except OSError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return
        raise NotAvailable(f"the proxy did not start: see {self._dumps.parent}")

    async def warm_up_calls(self) -> None:
        """Send a few calls, so that caches are filled before the count."""
        await self._send(_CALL, _WARM_UP_CALLS)

    async def call(self) -> None:
        await self._send(_CALL, CALLS)

    async def warm_up_streams(self) -> None:
        await self._send(_SHORT_STREAM, _WARM_UP_STREAMS)

    async def stream(self) -> None:
        await self._send(_STREAM, 1)

    async def _send(self, workload: Workload, times: int) -> None:
        connection = await self._target.connect_as(lambda: PacedClient(self._pace))
        request = self._target.request(workload.body)
        try:
            for _ in range(times):
                answer = await connection.send(request)
                if problem := workload.problem(answer):
                    raise NotAvailable(problem)
        except BrokenOff as error:
            raise NotAvailable(str(error)) from error
        finally:
            connection.close()

    async def count(self, name: str, work: Callable[["_Counted"], Awaitable[None]]) -> int:
        """Return the instructions of a step; raises NotAvailable.

        Once a minute, the proxy requests the backend's list of models. A step with such a request
        is repeated, because its time depends on the speed of the machine.
        """
        for _ in range(_TRIES):
            before = self._pace.other_requests
            await work(self)
            figure = await self._mark(name)
            if self._pace.other_requests == before or name == "start":
                return figure
        raise NotAvailable("the machine is too slow: the proxy asks for models all the time")

    async def _mark(self, name: str) -> int:
        """Return the instructions since the last mark; raises NotAvailable."""
        await self._rest(_QUIET_SECONDS.get(name, 0.5))
        os.kill(self._process.pid, signal.SIGUSR1)
        self._marks += 1
        dump = self._dumps.with_name(f"{self._dumps.name}.{2 * self._marks - 1}")
        deadline = time.monotonic() + _DUMP_SECONDS
        while time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            total = total_in(dump.read_bytes()) if dump.exists() else None
            if total is not None:
                await self._rest(_QUIET_SECONDS["calls"])
                return total
        raise NotAvailable(f"callgrind did not write {dump}")

    async def _rest(self, seconds: float) -> None:
        """Wait until no thread of the proxy has run for `seconds`; raises NotAvailable."""
        since = time.monotonic()
        while time.monotonic() - since < seconds:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._process.poll() is not None:
                raise NotAvailable("the proxy ended while it was counted")
            if is_running(Path(f"/proc/{self._process.pid}/task")):
                since = time.monotonic()


_STEPS = {
    "start": _Counted.start,
    "warm-up of calls": _Counted.warm_up_calls,
    "calls": _Counted.call,
    "warm-up of streams": _Counted.warm_up_streams,
    "tokens": _Counted.stream,
}
