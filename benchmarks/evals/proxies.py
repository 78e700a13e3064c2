"""Other proxies as arms; they use the same model, and are started as their documentation says."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from benchmarks.load import peers
from benchmarks.load.candidates import LAUNCHES, Situation
from benchmarks.load.processes import free_port, started
from temper_evals.arms import Arm, Opening
from temper_evals.loop import ModelTarget

_START_SECONDS = 120.0
_POLL_SECONDS = 0.1
# forge recommends an answer tool for small models, so it is measured with and without one
_PEERS = {"forge": ("forge", "accept"), "forge-respond": ("forge", "respond")}
_PEERS |= {"litellm": ("litellm", "accept")}
NAMES = tuple(_PEERS)


def peer_arms(folder: Path, names: Sequence[str] = NAMES) -> dict[str, Arm]:
    """Return the arms of the installed proxies."""
    arms: dict[str, Arm] = {}
    for name in names:
        package, prose = _PEERS[name]
        with contextlib.suppress(peers.NotAvailable):
            peers.version(folder, package)
            arms[name] = Arm(name, _opening(package, prose == "respond", folder))
    return arms


def versions(folder: Path) -> dict[str, str]:
    """Return the versions of the installed proxies."""
    versions_found: dict[str, str] = {}
    for package in dict.fromkeys(package for package, _ in _PEERS.values()):
        with contextlib.suppress(peers.NotAvailable):
            versions_found[package] = peers.version(folder, package)
    return versions_found


def _opening(package: str, has_answer_tool: bool, folder: Path) -> Opening:  # noqa: FBT001
    @asynccontextmanager
    async def opened(backend: ModelTarget) -> AsyncGenerator[ModelTarget, None]:
        with tempfile.TemporaryDirectory(prefix="temper-peer-") as temporary:
            files, port = Path(temporary), free_port()
            prose = "respond" if has_answer_tool else "accept"
            situation = Situation(backend.url, port, prose, files, folder)  # type: ignore[arg-type]
            launch = LAUNCHES[package](situation)
            environment = launch.environment
            with started(launch.command, folder=files, environment=environment, log=files / "log"):
                url = f"http://127.0.0.1:{port}"
                await _ready(url, files / "log")
                yield ModelTarget(url, backend.model, {**backend.headers, **launch.headers})

    return opened


async def _ready(url: str, log: Path) -> None:
    """Wait until the proxy answers any request; raises NotAvailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
        while loop.time() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                await client.get(f"{url}/v1/models")
                return
            await asyncio.sleep(_POLL_SECONDS)
    raise peers.NotAvailable(f"it does not answer; see {log}")
