"""The processes of a soak test: Temper in front of a faulty backend."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.faults.backend import LEDGER
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.material import GONE, NAMES
from benchmarks.load.candidates import REPOSITORY
from benchmarks.load.processes import Usage, free_port, started, usage

_START_SECONDS = 60.0
_SETTLE_SECONDS = 10.0
_POLL_SECONDS = 0.05
_ERROR_MARKS = ("Traceback", "never retrieved", "never awaited", "Exception in", "Internal error")

# Without this, glibc keeps up to 64 MB after a large reply, which would hide a leak.
_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": "131072"}

# in seconds; short, so that every timeout of Temper occurs within the run
STALL_SECONDS = 2.0
DEADLINES = f"""\
[server]
body_seconds = 3
stall_seconds = {STALL_SECONDS:g}
keep_alive_seconds = 1

[backend]
first_byte_seconds = 3
idle_seconds = 3
deadline_seconds = 10
load_wait_seconds = 5
"""


class NotStarted(Exception):
    """A program did not answer within the time limit, or it ended."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The state of both servers after all clients have disconnected.

    Temper has `running` unfinished requests, and has counted `total` requests. The backend's
    `ledger` has its generations.
    """

    running: float
    total: float
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Stage:
    """The addresses of Temper and the backend; `group` is Temper's process group."""

    url: str
    backend_url: str
    group: int
    log: Path

    def usage(self) -> Usage | None:
        """Return the usage of Temper; None if /proc does not exist."""
        return usage(self.group)

    def log_errors(self) -> list[str]:
        """Return the lines of the log that report an internal error."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in _ERROR_MARKS)]

    async def aftermath(self) -> Aftermath:
        """Wait until both servers are idle, at most a few seconds, and return their state."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                current = await self._read_state(client)
                is_over = not current.running and not current.ledger.playing
                if is_over or time.monotonic() > deadline:
                    return current
                await asyncio.sleep(_POLL_SECONDS)

    async def _read_state(self, client: httpx.AsyncClient) -> Aftermath:
        metrics = (await client.get(f"{self.url}/metrics")).text
        sums = dict[str, float]()
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        ledger = (await client.get(f"{self.backend_url}{LEDGER}")).content
        return Aftermath(
            sums["temper_requests_waiting"] + sums["temper_requests_running"],
            sums.get("temper_requests_total", 0.0),
            msgspec.json.decode(ledger, type=Ledger),
        )


@contextmanager
def staged(folder: Path, seed: int) -> Iterator[Stage]:
    """Start Temper and the faulty backend; raises NotStarted."""
    url, backend_port = address_of(free_port()), free_port()
    settings, log = folder / "temper.toml", folder / "temper.log"
    settings.write_text(DEADLINES + _models(address_of(backend_port)), encoding="utf-8")
    mock = ("benchmarks", "mock", "--port", str(backend_port), "--faults", str(seed))
    port = url.rpartition(":")[2]
    temper = ("proxy", "serve", "--config", str(settings), "--port", port, "--json")
    with ExitStack() as stack:
        stack.enter_context(
            running(mock, folder / "mock.log", f"{address_of(backend_port)}/health")
        )
        process = stack.enter_context(running(temper, log, f"{url}/healthz"))
        yield Stage(url, address_of(backend_port), process.pid, log)


def address_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _models(backend_url: str) -> str:
    """Write the settings of a model with aliases, and of a model whose server is down."""
    steady, *aliases = NAMES
    names = ", ".join(f'"{alias}"' for alias in aliases)
    return (
        f'\n[models.{steady}]\nurl = "{backend_url}"\naliases = [{names}]\n'
        f'\n[models.{GONE}]\nurl = "{address_of(free_port())}"\n'
    )


@contextmanager
def running(
    module: tuple[str, ...], log: Path, health_url: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of this repository, and wait until `health_url` answers."""
    command = (sys.executable, "-m", *module)
    with started(command, folder=REPOSITORY, environment=_ENVIRONMENT, log=log) as process:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(health_url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(f"{' '.join(module)}: {log.read_text(encoding='utf-8')[-500:]}")
            time.sleep(_POLL_SECONDS)
        yield process


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.HTTPError:
        return False
