"""The scenarios: their requests and their figures.

Times are in ms unless the name of a figure says otherwise. Every function measures one candidate
once.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TypeAlias

import uvloop

from benchmarks.healthy import measuring
from benchmarks.load.candidates import DIRECT, TEMPER, Prose, kind_of
from benchmarks.load.figures import Figures, percentile
from benchmarks.load.generator import Batch, Effort, send
from benchmarks.load.languages import CHAT, DIALECTS
from benchmarks.load.processes import Usage
from benchmarks.load.replies import Behavior
from benchmarks.load.subjects import Subject
from benchmarks.load.workloads import Workload, large

_MS = 1000
CLIENTS = (1, 4, 16, 64)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of each scenario; figures of QUICK are not published.

    Measurements begin `rest_seconds` after the servers have started, because Temper's warm-up
    follows its start.
    """

    seconds: float = 3.0
    streams: int = 3
    burst_tokens: int = 10_000
    slow_streams: int = 256
    slow_tokens: int = 200
    argument_tokens: int = 10_000
    healthy_replies: int = 200
    rest_seconds: float = 1.5


FULL = Size()
QUICK = Size(0.5, 2, 2_000, 256, 50, 2_000, 10)


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures and the problems of a candidate in a round."""

    figures: Figures
    problems: tuple[str, ...] = ()


Measure: TypeAlias = Callable[[Subject, Size], Coroutine[None, None, Measured]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A function that measures a candidate, and the conditions of the measurement.

    If the scenario `is_cold`, the server is started for each measurement. A scenario that
    `is_single` has only one round, because it repeats its requests itself. The scenario is measured
    for all candidates except `excluded`, or only for the candidates in `only`.
    """

    title: str
    measure: Measure
    prose: Prose = "respond"
    is_cold: bool = False
    is_single: bool = False
    excluded: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def run(self, subject: Subject, size: Size) -> Measured:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self.measure(subject, size))

    def concerns(self, candidate: str) -> bool:
        """Return whether the scenario is measured for a candidate."""
        kind = kind_of(candidate)
        return kind not in self.excluded and (not self.only or kind in self.only)


async def call(subject: Subject, size: Size) -> Measured:
    """Request responses with a call, not streamed: one at a time, then 16 concurrently."""
    workload = Workload(Behavior("call"), is_streamed=False)
    await send(subject.target, workload, Effort(requests=20, at_once=4))
    start_usage = subject.usage()
    alone = await send(subject.target, workload, Effort(seconds=size.seconds))
    middle_usage = subject.usage()
    concurrent = await send(subject.target, workload, Effort(seconds=size.seconds, at_once=16))
    per_second = len(concurrent.answers) / concurrent.seconds
    figures = {**_totals(alone), "requests_per_second": per_second}
    figures |= _cpu("cpu_us_per_request_alone", start_usage, middle_usage, len(alone.answers))
    figures |= _cpu("cpu_us_per_request", middle_usage, subject.usage(), len(concurrent.answers))
    return _measured(figures, alone, concurrent)


async def clients(subject: Subject, size: Size) -> Measured:
    """Request calls from 1, 4, 16 and 64 concurrent clients, as ai-gateway-bench does."""
    workload = Workload(Behavior("call"), is_streamed=False)
    await send(subject.target, workload, Effort(requests=20, at_once=4))
    batches = {
        count: await send(subject.target, workload, Effort(seconds=size.seconds, at_once=count))
        for count in CLIENTS
    }
    figures = {f"p99_{count}": _totals(batch)["p99"] for count, batch in batches.items()}
    return _measured(figures, *batches.values())


async def stream_with_tools(subject: Subject, size: Size) -> Measured:
    """Stream prose of 200 tokens, 5 ms each, while tools are offered."""
    return await _stream(subject, size, tools=3)


async def stream_without_tools(subject: Subject, size: Size) -> Measured:
    """Stream prose of 200 tokens, 5 ms each, without tools."""
    return await _stream(subject, size, tools=0)


async def _stream(subject: Subject, size: Size, tools: int) -> Measured:
    workload = Workload(Behavior("prose", 200, 5), tools=tools)
    await send(subject.target, Workload(Behavior("prose", 3, 5), tools=tools), Effort(2))
    batch = await send(subject.target, workload, Effort(size.streams))
    figures = {
        "first_byte": _MS * percentile((answer.first_byte for answer in batch.answers), 50),
        "first_content": _MS * percentile((answer.first_content for answer in batch.answers), 50),
        "total": _MS * percentile((answer.total for answer in batch.answers), 50),
        "gap_p99": _MS * percentile((gap for answer in batch.answers for gap in answer.gaps), 99),
    }
    return _measured(figures, batch)


async def streams(subject: Subject, size: Size) -> Measured:
    """Stream to eight clients, and measure the CPU time per token."""
    del size
    workload = Workload(Behavior("prose", 200, 5))
    await send(subject.target, Workload(Behavior("prose", 3, 5)), Effort(8, at_once=8))
    before = subject.usage()
    batch = await send(subject.target, workload, Effort(8, at_once=8, ramp=0.05))
    tokens = workload.behavior.tokens * len(batch.answers)
    return _measured(_cpu("cpu_us_per_token", before, subject.usage(), tokens), batch)


async def burst(subject: Subject, size: Size) -> Measured:
    """Stream without a delay between tokens."""
    workload = Workload(Behavior("prose", size.burst_tokens))
    await send(subject.target, Workload(Behavior("prose", 200)), Effort(2))
    batch = await send(subject.target, workload, Effort(size.streams))
    seconds = percentile((answer.total for answer in batch.answers), 50)
    return _measured({"tokens_per_second": size.burst_tokens / seconds}, batch)


async def slow(subject: Subject, size: Size) -> Measured:
    """Stream slowly to many concurrent clients, which all begin within a second."""
    return await _serve_many(subject, size, ramp=1.0)


async def rush(subject: Subject, size: Size) -> Measured:
    """Stream to the same clients as `slow`, which all begin within half a second."""
    return await _serve_many(subject, size, ramp=0.5)


async def _serve_many(subject: Subject, size: Size, ramp: float) -> Measured:
    workload = Workload(Behavior("prose", size.slow_tokens, 20))
    many = size.slow_streams
    await send(subject.target, Workload(Behavior("prose", 3, 20)), Effort(8, at_once=8))
    before = subject.usage()
    batch = await send(subject.target, workload, Effort(many, at_once=many, ramp=ramp))
    delays = [delay for answer in batch.answers for delay in answer.delays]
    first = [answer.first_content for answer in batch.answers]
    figures = {
        "delay_p50": _MS * percentile(delays, 50),
        "delay_p99": _MS * percentile(delays, 99),
        "first_content": _MS * percentile(first, 50),
        "first_content_p99": _MS * percentile(first, 99),
    }
    used = subject.usage()
    tokens = size.slow_tokens * len(batch.answers)
    figures |= _cpu("cpu_us_per_token", before, used, tokens)
    return _measured(figures | ({} if used is None else {"peak_mb": used.peak_mb}), batch)


async def languages(subject: Subject, size: Size) -> Measured:
    """Send the same requests in every dialect; measure the CPU time, also relative to chat."""
    many = size.slow_streams
    requests = {
        "call": (Behavior("call"), Effort(seconds=size.seconds, at_once=16)),
        "prose": (Behavior("prose", 200, 5), Effort(8, at_once=8, ramp=0.05)),
        "slow": (Behavior("prose", size.slow_tokens, 20), Effort(many, at_once=many, ramp=1.0)),
    }
    figures, batches = Figures(), list[Batch]()
    for kind, (behavior, effort) in requests.items():
        for name, language in {"chat": CHAT, **DIALECTS}.items():
            workload = Workload(behavior, is_streamed=kind != "call", language=language)
            spent, batch = await _cpu_time(subject, workload, effort)
            batches.append(batch)
            figures[f"{name}_{kind}_us"] = spent
            if language is not CHAT:
                figures[f"{name}_{kind}_of_chat"] = spent / figures[f"chat_{kind}_us"]
    return _measured(figures, *batches)


async def _cpu_time(subject: Subject, workload: Workload, effort: Effort) -> tuple[float, Batch]:
    """Return the CPU time in microseconds per call, or per token of a stream."""
    short = replace(workload, behavior=replace(workload.behavior, tokens=3))
    await send(subject.target, short, Effort(8, at_once=8))
    before = subject.usage()
    batch = await send(subject.target, workload, effort)
    tokens = workload.behavior.tokens if workload.is_streamed else 1
    spent = _cpu("us", before, subject.usage(), tokens * len(batch.answers))
    return spent.get("us", nan), batch


async def large_request(subject: Subject, size: Size) -> Measured:
    """Send a request of 625 kB repeatedly."""
    workload = large(Behavior("call"))
    await send(subject.target, workload, Effort(5))
    batch = await send(subject.target, workload, Effort(500, size.seconds))
    return _measured(_totals(batch), batch)


async def start(subject: Subject, size: Size) -> Measured:
    """Measure the duration of the start, and the memory of the idle server."""
    del size
    used = subject.usage()
    figures = {"ready_seconds": subject.ready_seconds}
    return Measured(figures | ({} if used is None else {"idle_mb": used.memory_mb}))


async def arguments(subject: Subject, size: Size) -> Measured:
    """Stream a call with a long argument, then a call with an argument of twice the length."""
    short, long = (
        Workload(Behavior("arguments", tokens))
        for tokens in (size.argument_tokens, 2 * size.argument_tokens)
    )
    await send(subject.target, Workload(Behavior("arguments", 200)), Effort(2))
    batches = [
        await send(subject.target, workload, Effort(size.streams)) for workload in (short, long)
    ]
    once, twice = (percentile((answer.total for answer in batch.answers), 50) for batch in batches)
    return _measured({"total": _MS * once, "growth": twice / once}, *batches)


async def healthy(subject: Subject, size: Size) -> Measured:
    """Request healthy replies directly and through Temper in turn, and compare them."""
    figures, problems = await measuring.measure(
        subject.target, subject.backend_url, size.healthy_replies
    )
    return Measured(figures, problems)


def _cpu(figure: str, before: Usage | None, after: Usage | None, number: int) -> Figures:
    """Return the CPU time in microseconds per unit."""
    if before is None or after is None:
        return {}
    return {figure: (after.cpu_seconds - before.cpu_seconds) * 1e6 / max(1, number)}


def _totals(batch: Batch) -> Figures:
    totals = [answer.total for answer in batch.answers]
    return {"p50": _MS * percentile(totals, 50), "p99": _MS * percentile(totals, 99)}


def _measured(figures: Figures, *batches: Batch) -> Measured:
    problems = [problem for batch in batches for problem in batch.problems]
    known = {name: value for name, value in figures.items() if not isnan(value)}
    if not all(batch.answers for batch in batches):
        known = {}  # how long a failed request took is not a figure
    return Measured({**known, "errors": len(problems)}, tuple(problems[:3]))


SCENARIOS: dict[str, Scenario] = {
    "call": Scenario("whole answer with one call, 10 messages, 3 tools", call),
    "clients": Scenario("the same from 1, 4, 16 and 64 clients at once", clients),
    "prose-accept": Scenario(
        "stream with tools, prose accepted, 200 tokens at 5 ms", stream_with_tools, "accept"
    ),
    "prose-respond": Scenario(
        "stream with tools, prose in a tool, 200 tokens at 5 ms", stream_with_tools
    ),
    "plain": Scenario("stream without tools, 200 tokens at 5 ms", stream_without_tools),
    "streams": Scenario("8 streams with tools at 5 ms", streams, excluded=(DIRECT,)),
    "burst": Scenario("one stream with tools, no delay", burst),
    "slow": Scenario("256 streams with tools at 20 ms", slow),
    "rush": Scenario("the same, begun within half a second", rush),
    "languages": Scenario(
        "calls and streams in the languages of Anthropic, Responses and Ollama",
        languages,
        "accept",
        only=(TEMPER,),
    ),
    "large": Scenario("whole answer to 625 kB, 200 messages, 40 tools", large_request),
    "start": Scenario(
        "from the start to the first answer", start, is_cold=True, excluded=(DIRECT,)
    ),
    "arguments": Scenario("call with a streamed argument of 10,000 tokens", arguments),
    "healthy": Scenario(
        "replies that need no help, beside the same without Temper",
        healthy,
        "default",
        is_single=True,
        only=(TEMPER,),
    ),
}
