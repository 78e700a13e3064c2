"""The arms: a real model on a llama-server, without a proxy, with Temper, or with forge.

`temper` uses the defaults. `temper-tuned` uses the settings that `temper tune` finds for the model;
the model is tuned when the arm is opened for the first time. `temper-always` makes a close-out
check at the end of each turn. forge is started as its documentation recommends, with and without
its answer tool.
"""

import asyncio
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.evals import proxies
from benchmarks.load import peers
from benchmarks.real.records import TokenCounts
from benchmarks.real.relay import Relay, counting_relay
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from temper_evals.cards.environment import embedded_engine
from temper_evals.loop import ModelTarget
from temper_evals.temper_server import temper_in_front

# `temper-again` is a control, identical to `temper`
ARMS = (
    *("direct", "temper", "temper-again", "temper-tuned", "temper-always"),
    *("forge", "forge-respond"),
)
WINDOW = 8192
REQUEST_SECONDS = 1800.0  # limit for a request; without a GPU, a generation can take minutes
_SLOTS, _THREADS = 1, 2
_COUNTER = re.compile(r"^llamacpp:(\w+) (\S+)$", re.MULTILINE)
_COUNTED = {
    "prompt_tokens_total": "read",
    "prompt_tokens_cached_total": "cached",
    "tokens_predicted_total": "generated",
}


@dataclass(frozen=True, slots=True)
class OpenArm:
    """A running arm: its address, and the file with its recorded exchanges, if there is one.

    `relay` counts the generations of the engine.
    """

    target: ModelTarget
    api_key: str
    engine_url: str
    relay: Relay
    recording: Path | None = None
    engine_build: str = ""

    def _exchanges(self) -> list[bytes]:
        if self.recording is None or not self.recording.exists():
            return []
        return self.recording.read_bytes().splitlines()

    def count_recorded(self) -> int:
        """Return the number of recorded exchanges."""
        return len(self._exchanges())

    def recorded_generations(self, since: int = 0) -> list[list[list[JsonValue]]]:
        """Return the parts of each generation, such as `["text", "Hello"]`.

        The first `since` exchanges are skipped.
        """
        all_generations: list[list[list[JsonValue]]] = []
        for line in self._exchanges()[since:]:
            exchange = json.parse(line)
            generations = exchange.get("generations") if isinstance(exchange, dict) else None
            for pieces in generations if isinstance(generations, list) else ():
                listed = pieces if isinstance(pieces, list) else []
                all_generations += [[part for part in listed if isinstance(part, list) and part]]
        return all_generations

    async def tokens(self) -> TokenCounts:
        """Return the token counts of the engine since its start."""
        headers = {"authorization": f"Bearer {self.api_key}"}
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            response = await client.get(f"{self.engine_url}/metrics", headers=headers)
        return read_counts(response.text)


def read_counts(metrics: str) -> TokenCounts:
    """Read the counters of a llama-server; a counter that a build does not have is 0."""
    counts = {
        _COUNTED[name]: round(float(value))
        for name, value in _COUNTER.findall(metrics)
        if name in _COUNTED
    }
    return TokenCounts(**counts)


def launch_plan(model: Path) -> LaunchPlan:
    """Return the launch plan of the embedded server for measurements of real models."""
    threads = ("-t", str(_THREADS))
    return LaunchPlan(
        embedded_program(), model, WINDOW, slots=_SLOTS, alias=model.stem, extra=threads
    )


@dataclass(frozen=True, slots=True)
class ArmStarter:
    """The folder of installed proxies, the folder of tuned settings, and settings of Temper."""

    peers: Path
    tuned: Path = Path()
    settings: Mapping[str, str] = field(default_factory=dict)

    def missing(self, arm: str) -> str:
        """Return the reason why an arm cannot run here; "" if it can."""
        if not arm.startswith("forge") or proxies.peer_arms(self.peers, (arm,)):
            return ""
        try:
            peers.python_of(self.peers, "forge")
        except peers.NotAvailable as problem:
            return str(problem)
        return "forge cannot be started"

    @asynccontextmanager
    async def open(self, arm: str, model: Path) -> AsyncGenerator[OpenArm, None]:
        """Start an arm with a new llama-server, so that no prompts of other arms are cached."""
        async with start_llama_server(launch_plan(model)) as server:
            headers = {"authorization": f"Bearer {server.api_key}"}
            package = embedded_engine()
            build = f"{package.name} {package.build}"
            with tempfile.TemporaryDirectory(prefix="temper-real-") as folder:
                recording = Path(folder) / "recording.jsonl"
                settings = {
                    "TEMPER_BACKEND__API_KEY": server.api_key,
                    "TEMPER_RECORDING__PATH": str(recording),
                    "TEMPER_RECORDING__MAX_BYTES": str(2**30),
                    # not below the client's limit, which is the only limit of the direct arm
                    "TEMPER_BACKEND__IDLE_SECONDS": str(REQUEST_SECONDS),
                    # a keep-alive would send the headers before the number of generations is known
                    "TEMPER_SERVER__KEEP_ALIVE_SECONDS": str(REQUEST_SECONDS),
                    **self.settings,
                }
                if arm == "temper-tuned":
                    engine = ModelTarget(server.base_url, model.stem, headers)
                    await self._tune(engine, server.api_key, model)
                async with counting_relay(server.base_url) as relay:
                    engine = ModelTarget(relay.url, model.stem, headers)
                    async with self._opening(arm, engine, settings) as target:
                        path = recording if arm.startswith("temper") else None
                        yield OpenArm(target, server.api_key, server.base_url, relay, path, build)

    async def _tune(self, engine: ModelTarget, api_key: str, model: Path) -> None:
        """Run `temper tune` for a model, unless its result exists."""
        cache, done = self.tuned / model.stem, self.tuned / f"{model.stem}.log"
        if done.exists():
            return
        cache.mkdir(parents=True, exist_ok=True)
        command = (*("-m", "temper", "tune", "--backend-url", engine.url, "--minutes"), "8")
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "TEMPER_BACKEND__API_KEY": api_key,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            env=environment,
            cwd=cache,  # has no temper.toml
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        done.write_bytes(output)

    def _opening(
        self, arm: str, engine: ModelTarget, settings: Mapping[str, str]
    ) -> AbstractAsyncContextManager[ModelTarget]:
        match arm:
            case "direct":
                return contextlib.nullcontext(engine)
            case "temper-always":
                always = {"TEMPER_GUARDRAILS__CLOSE_OUT": "always"}
                return temper_in_front(engine, {**settings, **always})
            case "temper-tuned":
                cache = {"XDG_CACHE_HOME": str(self.tuned / Path(engine.model).name)}
                return temper_in_front(engine, {**settings, **cache}, takes_tuned=True)
            case "forge" | "forge-respond":
                return proxies.peer_arms(self.peers, (arm,))[arm].opening(engine)
            case _:
                return temper_in_front(engine, settings)
