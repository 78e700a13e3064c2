"""What several Tempers cost and bring: turns before one engine, and a store that they share.

The first part floods a real llama-server of two slots, whose model is written by hand and never
ends by itself, and has another client ask at each replica in turn. The second asks two Tempers
alternately for the same short calls, one of which has a store that such requests do not need. The
third has that store stand still, and asks with keys.

A round of that model is shorter than a process waits for its turn on a machine with other work:
what the engine has answered comes late and in lumps, and whoever counts answers counts those. So
the llama-server has one thread at the lowest priority. It is the slowest part then, as engines are.
"""

import asyncio
import contextlib
import json
import re
import socket
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.load.candidates import REPOSITORY
from benchmarks.load.generator import Effort, send
from benchmarks.load.replies import Behaviour
from benchmarks.load.subjects import mock_backend, serve_temper
from benchmarks.load.workloads import Workload
from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from proxy.processes.process import RunningServer
from temper_evals.demo.scripted_model import build_scripted_model
from temper_evals.report.markdown import markdown_table

SLOTS, FLOOD, NEWCOMERS = 2, 12, 4
_MOST_ROUNDS = 20  # that a newcomer is waited for: the engine's own queue may starve it
REPLICAS = (0, 1, 2, 4)  # no Temper first
_TOKENS, _WINDOW = 400, 2048
_LAST = ("nice", "-n", "19")
_FREEZE_SECONDS, _KEYED = 6, 400
_LONG_MS = 50.0  # of a call that takes a few
_SCRIPTS = {"default": ("and so on", " and on\0")}
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Turns:
    """How a newcomer fared: its waits in rounds, and how many have waited in the engine at most.

    A round is as many answers as the engine has slots; the newcomer's own is in the last one.
    """

    replicas: int
    is_shared: bool
    waits: tuple[float, ...]
    longest_queue: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests a second without and with a store, round by round."""

    rounds: tuple[tuple[float, float], ...]

    @property
    def ratio(self) -> float:
        """What is left of the throughput with a store."""
        return statistics.median(shared / plain for plain, shared in self.rounds)


@dataclass(frozen=True, slots=True)
class Outage:
    """Milliseconds of requests one after the other: before, and with keys while the store hangs."""

    plain: tuple[float, ...]
    keyed: tuple[float, ...]
    failed: int


def measure_turns() -> list[Turns]:
    """Flood one llama-server through none, one and several Tempers."""
    return asyncio.run(_all_turns())


def measure_throughput(store: str, rounds: int, seconds: float) -> Throughput:
    """Ask a Temper without and one with a store in turns."""
    workload = Workload(Behaviour("call"), is_streamed=False)
    effort = Effort(seconds=seconds, at_once=16)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        backend = stack.enter_context(mock_backend(folder))
        one = stack.enter_context(serve_temper(backend, folder / "plain.log"))
        shared = {"TEMPER_STATE__URL": store}
        other = stack.enter_context(serve_temper(backend, folder / "shared.log", shared))
        found: list[tuple[float, float]] = []
        for number in range(rounds + 1):
            order = (one, other) if number % 2 else (other, one)
            rates: dict[str, float] = {}
            for subject in order:
                batch = asyncio.run(send(subject.target, workload, effort))
                rates[subject.target.url] = len(batch.answers) / batch.seconds
            if number:  # the first round warms up
                found.append((rates[one.target.url], rates[other.target.url]))
    return Throughput(tuple(found))


def measure_outage(store: str) -> Outage:
    """Ask with a key each, while the store, which is paused for everybody, answers nothing."""
    workload, one = Workload(Behaviour("call"), is_streamed=False), Effort(requests=1)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        backend = stack.enter_context(mock_backend(folder))
        shared = {"TEMPER_STATE__URL": store}
        temper = stack.enter_context(serve_temper(backend, folder / "shared.log", shared))
        before = asyncio.run(send(temper.target, workload, Effort(requests=_KEYED)))
        _freeze(store)
        batches = [
            asyncio.run(
                send(replace(temper.target, headers={"Idempotency-Key": key}), workload, one)
            )
            for key in map(str, range(_KEYED))
        ]
    return Outage(
        tuple(1000 * answer.total for answer in before.answers),
        tuple(1000 * answer.total for batch in batches for answer in batch.answers),
        sum(len(batch.problems) for batch in batches),
    )


def markdown(
    turns: Sequence[Turns], throughput: Throughput | None, outage: Outage | None = None
) -> str:
    """Return the figures as they stand in the guide."""
    flooded = f"{SLOTS} slots, flooded by {FLOOD} at once"
    waited = ("rounds until a newcomer's answer", "at most")
    queued = ("longest queue in the engine", "at most")
    lines = [markdown_table((flooded, *waited, *queued), map(_row, turns))]
    if throughput is not None:
        rates = [statistics.median(side) for side in zip(*throughput.rounds, strict=True)]
        lines.append(
            f"Ordinary requests with `state.url` set: {throughput.ratio:.3f} of the throughput"
            f" without ({rates[1]:,.0f} and {rates[0]:,.0f} requests/s; median of the ratios of"
            f" {len(throughput.rounds)} rounds in turns, {_spread(throughput)}).\n"
        )
    if outage is not None:
        lines.append(f"{_told_outage(outage)}\n")
    return "\n".join(lines)


def _told_outage(outage: Outage) -> str:
    sides = (
        f"the longest {max(side):.0f} ms, {sum(wait > _LONG_MS for wait in side)} over"
        f" {_LONG_MS:.0f} ms, the median {statistics.median(side):.1f} ms"
        for side in (outage.keyed, outage.plain)
    )
    return (
        f"{len(outage.keyed)} requests with a key each, one after the other, in which the store"
        f" hangs for {_FREEZE_SECONDS} s: {'; as many without keys before that: '.join(sides)}."
        f" {outage.failed} failed."
    )


def _row(turns: Turns) -> tuple[object, ...]:
    waits = ", ".join(_told(wait) for wait in turns.waits)
    if not turns.replicas:
        return "no Temper", waits, "-", turns.longest_queue, "-"
    name = f"{turns.replicas} Temper{'s' * (turns.replicas > 1)}"
    shared = f", `backend.replicas = {turns.replicas}`" if turns.is_shared else ""
    let_in = max(1, SLOTS // turns.replicas) if turns.is_shared else SLOTS
    most = max(0, turns.replicas * let_in - SLOTS)
    rounds = 2 * turns.replicas if not turns.is_shared else 3
    return f"{name}{shared}", waits, rounds, turns.longest_queue, most


def _told(wait: float) -> str:
    return f"{wait:.1f}" if wait < _MOST_ROUNDS else f"over {_MOST_ROUNDS}"


def _spread(throughput: Throughput) -> str:
    ratios = sorted(shared / plain for plain, shared in throughput.rounds)
    return f"{ratios[0]:.2f} to {ratios[-1]:.2f}"


def _freeze(store: str) -> None:
    """Have the server answer nobody for a while."""
    parts = urlsplit(store)
    with socket.create_connection((parts.hostname or "", parts.port or 6379)) as connection:
        connection.sendall(b"CLIENT PAUSE %d\r\n" % (1000 * _FREEZE_SECONDS))
        connection.recv(64)


async def _all_turns() -> list[Turns]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "endless.gguf"
        build_scripted_model(model, _SCRIPTS, context_tokens=_WINDOW)
        program, alone = (*_LAST, *embedded_program()), ("-t", "1")
        plan = LaunchPlan(program, model, _WINDOW, slots=SLOTS, alias="endless", extra=alone)
        async with start_llama_server(plan) as server:
            found = [await _turns(server, number, is_shared=False) for number in REPLICAS]
            found.append(await _turns(server, REPLICAS[2], is_shared=True))
    return found


async def _turns(server: RunningServer, replicas: int, *, is_shared: bool) -> Turns:
    """Have one client flood the server, and another one ask at each replica in turn."""
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(_replica(server, replicas if is_shared else 1))
            for _ in range(replicas)
        ] or [server.base_url]
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=_PATIENCE))
        key = server.api_key if not replicas else ""
        ask = _Asking(client, key)
        await asyncio.gather(*(ask(url, "a") for url in urls))  # everybody is warm
        watching = asyncio.create_task(_longest_queue(client, server))
        flood = [asyncio.create_task(ask.on_and_on(urls[one % len(urls)])) for one in range(FLOOD)]
        await ask.until_answered(FLOOD)
        waits = [await ask.rounds(urls[one % len(urls)]) for one in range(NEWCOMERS)]
        for one in flood:
            one.cancel()
        watching.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        longest = await watching
    return Turns(replicas, is_shared, tuple(waits), longest)


@dataclass(slots=True)
class _Asking:
    """Asks for generations, and counts those that were answered."""

    client: httpx.AsyncClient
    key: str
    answered: int = 0

    async def __call__(self, url: str, who: str) -> None:
        message = {"role": "user", "content": f"Go on, {who}."}
        body = {"model": "endless", "messages": [message], "max_tokens": _TOKENS}
        headers = {"authorization": f"Bearer {self.key or who}"}
        answer = await self.client.post(f"{url}/v1/chat/completions", json=body, headers=headers)
        answer.raise_for_status()
        self.answered += 1

    async def on_and_on(self, url: str) -> None:
        """Ask again and again, as the client that floods."""
        while True:
            await self(url, "a")

    async def until_answered(self, number: int) -> None:
        """Wait for so many answers from now on."""
        goal = self.answered + number
        while self.answered < goal:  # noqa: ASYNC110 - several count
            await asyncio.sleep(0.01)

    async def rounds(self, url: str) -> float:
        """Ask as a newcomer; tells how many rounds of the engine that took."""
        before = self.answered
        newcomer = asyncio.create_task(self(url, "b"))
        most = asyncio.create_task(self.until_answered(_MOST_ROUNDS * SLOTS))
        await asyncio.wait((newcomer, most), return_when=asyncio.FIRST_COMPLETED)
        for one in (newcomer, most):
            one.cancel()
        await asyncio.wait((newcomer, most))
        return (self.answered - before) / SLOTS


async def _longest_queue(client: httpx.AsyncClient, server: RunningServer) -> int:
    """Return how many requests have waited in the engine at most, until this is cancelled."""
    longest, headers = 0, {"authorization": f"Bearer {server.api_key}"}
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            told = await client.get(f"{server.base_url}/metrics", headers=headers)
            found = re.search(r"^llamacpp:requests_deferred (\d+)", told.text, re.MULTILINE)
            longest = max(longest, int(found[1]) if found else 0)
            await asyncio.sleep(0.02)
    return longest


@asynccontextmanager
async def _replica(server: RunningServer, replicas: int) -> AsyncGenerator[str]:
    flags = ("--backend-url", server.base_url, "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "serve", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=REPOSITORY,
        env={
            "PATH": "",
            "PYTHONPATH": str(REPOSITORY),
            "TEMPER_BACKEND__API_KEY": server.api_key,
            "TEMPER_BACKEND__REPLICAS": str(replicas),
        },
    )
    assert process.stdout is not None  # noqa: S101 - a pipe
    try:
        yield json.loads(await process.stdout.readline())["url"]
    finally:
        process.terminate()
        await process.wait()
