"""The arms: a real model on a llama-server, alone, with Temper, or with forge in front of it."""

import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.evals import proxies
from benchmarks.load import peers
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from temper_evals.loop import ModelTarget
from temper_evals.temper_server import temper_in_front

ARMS = ("direct", "temper", "forge")
WINDOW = 8192
REQUEST_SECONDS = 1800.0  # limit for a request; processors of small machines are slow
_SLOTS, _THREADS = 1, 2
_COUNTER = re.compile(r"^llamacpp:(\w+) (\S+)$", re.MULTILINE)
_COUNTED = {
    "prompt_tokens_total": "read",
    "prompt_tokens_cached_total": "cached",
    "tokens_predicted_total": "generated",
}


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of a llama-server: prompts it read anew or took from its cache, and generated ones."""

    read: int = 0
    cached: int = 0
    generated: int = 0

    def __sub__(self, before: "TokenCounts") -> "TokenCounts":
        return TokenCounts(
            self.read - before.read,
            self.cached - before.cached,
            self.generated - before.generated,
        )


@dataclass(frozen=True, slots=True)
class OpenArm:
    """A running arm: its address, and the file with its recorded exchanges, if there is one."""

    target: ModelTarget
    api_key: str
    engine_url: str
    recording: Path | None = None

    async def tokens(self) -> TokenCounts:
        """Return the counts of the engine since its start."""
        headers = {"authorization": f"Bearer {self.api_key}"}
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            response = await client.get(f"{self.engine_url}/metrics", headers=headers)
        return read_counts(response.text)


def read_counts(metrics: str) -> TokenCounts:
    """Read the counters of a llama-server; a counter that an old build lacks is 0."""
    counts = {
        _COUNTED[name]: round(float(value))
        for name, value in _COUNTER.findall(metrics)
        if name in _COUNTED
    }
    return TokenCounts(**counts)


def launch_plan(model: Path) -> LaunchPlan:
    """Plan the embedded server as every measurement of real models uses it."""
    threads = ("-t", str(_THREADS))
    return LaunchPlan(
        embedded_program(), model, WINDOW, slots=_SLOTS, alias=model.stem, extra=threads
    )


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder of installed proxies, and further settings for Temper."""

    peers: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    def missing(self, arm: str) -> str:
        """Return why an arm cannot run here; "" if it can."""
        if arm != "forge" or proxies.peer_arms(self.peers, ("forge",)):
            return ""
        try:
            peers.python_of(self.peers, "forge")
        except peers.NotAvailable as problem:
            return str(problem)
        return "forge cannot be started"

    @asynccontextmanager
    async def open(self, arm: str, model: Path) -> AsyncGenerator[OpenArm, None]:
        """Start a new llama-server, so that no arm finds another's prompts in the cache."""
        async with start_llama_server(launch_plan(model)) as server:
            headers = {"authorization": f"Bearer {server.api_key}"}
            engine = ModelTarget(server.base_url, model.stem, headers)
            with tempfile.TemporaryDirectory(prefix="temper-real-") as folder:
                recording = Path(folder) / "recording.jsonl"
                settings = {
                    "TEMPER_BACKEND__API_KEY": server.api_key,
                    "TEMPER_RECORDING__PATH": str(recording),
                    "TEMPER_RECORDING__MAX_BYTES": str(2**30),
                    # no stricter than the client's limit, the only one of the direct arm
                    "TEMPER_BACKEND__IDLE_SECONDS": str(REQUEST_SECONDS),
                    # a keep-alive would send the headers early, without the number of generations
                    "TEMPER_SERVER__KEEP_ALIVE_SECONDS": str(REQUEST_SECONDS),
                    **self.settings,
                }
                async with self._opening(arm, engine, settings) as target:
                    kept = recording if arm == "temper" else None
                    yield OpenArm(target, server.api_key, server.base_url, kept)

    def _opening(
        self, arm: str, engine: ModelTarget, settings: Mapping[str, str]
    ) -> AbstractAsyncContextManager[ModelTarget]:
        match arm:
            case "temper":
                return temper_in_front(engine, settings)
            case "forge":
                return proxies.peer_arms(self.peers, (arm,))[arm].opening(engine)
            case _:
                return contextlib.nullcontext(engine)


def recorded_generations(recording: Path) -> Iterator[list[list[JsonValue]]]:
    """Yield the generations of a recording in their order, each as its pieces."""
    for line in recording.read_bytes().splitlines():
        exchange = json.parse(line)
        generations = exchange.get("generations") if isinstance(exchange, dict) else None
        for pieces in generations if isinstance(generations, list) else ():
            if isinstance(pieces, list):
                yield [piece for piece in pieces if isinstance(piece, list) and piece]
