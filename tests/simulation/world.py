"""One seed: Temper, its engines and its clients in the simulated network, and what must hold."""

import asyncio
import contextlib
import functools
import gc
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import msgspec
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from uvicorn.server import ServerState

from benchmarks.faults.clients import Clients, Patience
from benchmarks.faults.demands import Demand, Kind, Seen, problem_of
from benchmarks.faults.material import CHAT, GONE, NAMES, Manner, Plan
from benchmarks.faults.mixture import draw
from proxy.api.connections import ConnectionLimits, limit_connections
from proxy.api.hosted import OpenedApp, open_app
from proxy.settings import Settings
from tests.simulation.clock import CLOCK
from tests.simulation.dialects import is_convertible
from tests.simulation.engines import Engines
from tests.simulation.exchanges import (
    PATIENCE_SECONDS,
    QUEUE_IS_FULL,
    TEMPER,
    URL,
    Exchange,
    continued,
    exchange,
    in_dialect,
    of_another_owner,
)
from tests.simulation.invariants import Watch, loads_of
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.scenario import ENGINES, Event, Scenario, Sending

_ENGINE_PORT = 8080
_NOWHERE = "http://10.0.2.1:8080"
_KEYS = Path(__file__).with_name("keys.txt")
_PATIENCE = Patience(answer=PATIENCE_SECONDS, stall=2.0)
_DEADLINE = 10.0  # of a response, in seconds
_LONGEST_RUN = 600.0  # seconds; most take a tenth of it
_SETTLE_SECONDS = 30.0
_LONGEST_OUTLIVING = 1.0  # seconds that a generation may outlive its client
_LATE = 16.0  # seconds after the end of a fault in which its consequences are permitted
_UNAVAILABLE = frozenset({502, 503, 504})

_LOGGER = logging.getLogger("proxy")  # not the root, whose handlers a reload replaces
_POOL = logging.getLogger("proxy.backends.pool")

# a stored response belongs to its owner
_NOT_FOUND = Demand(failures=frozenset({400}), attempts=0)

_KINDS = {
    Kind.ANSWER: "answers",
    Kind.ERROR: "errors",
    Kind.ERROR_EVENT: "error events",
    Kind.LEFT: "disconnects",
}
_EVENTS = {"crash": "crashes", "stall": "stalls", "slow": "slow to accept", "reload": "reloads"}
OCCURRENCES = (
    *_KINDS.values(),
    *_EVENTS.values(),
    *("retried", "failovers", "queue waits", "queue full", "half-closed", "continued"),
    *("keys of another owner",),
)


@dataclass(slots=True)
class Verdict:
    """What went wrong, and how often each of `OCCURRENCES` did; `trace` has all events."""

    problems: list[str] = field(default_factory=list)
    trace: list[tuple[float, str, str, int]] = field(default_factory=list)
    requests: int = 0
    occurrences: Counter[str] = field(default_factory=Counter)


def simulate(scenario: Scenario) -> Verdict:
    """Run a scenario to its end."""
    CLOCK.restart(scenario.seed)
    random.seed(scenario.seed)  # the pool and the supervisor draw from the global generator
    network = Network(random.Random(f"network/{scenario.seed}"))
    loop = SimulatedLoop(network)
    asyncio.set_event_loop(loop)
    verdict = Verdict(requests=len(scenario.sendings))
    loop.set_exception_handler(
        lambda _loop, context: verdict.problems.append(f"in the event loop: {context}")
    )
    gc.collect()
    gc.freeze()  # the next collection looks only at objects of this run
    gc.disable()  # a collection would run finalizers at times that depend on memory
    log = _ErrorLog(verdict)
    _LOGGER.addHandler(log)
    _POOL.setLevel(logging.WARNING)
    _POOL.addFilter(log.count)
    try:
        loop.run_until_complete(_run(scenario, network, verdict))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except Exception as error:  # noqa: BLE001 - any error of the run is a finding
        verdict.problems.append(f"the run ended with {error!r}")
    finally:
        _LOGGER.removeHandler(log)
        _POOL.removeFilter(log.count)
        gc.enable()
        asyncio.set_event_loop(None)
        loop.close()
        network.close()
        verdict.trace = network.trace
    return verdict


class _ErrorLog(logging.Handler):
    """Collects internal errors from the log, and counts requests that went to another engine."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(logging.ERROR)
        self._verdict = verdict

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += f": {logging.Formatter().formatException(record.exc_info)[-1500:]}"
        self._verdict.problems.append(f"in the log: {text}")

    def count(self, record: logging.LogRecord) -> bool:
        self._verdict.occurrences["failovers"] += "next server" in record.msg
        return record.levelno >= logging.ERROR


def _settings(scenario: Scenario, *, is_reloaded: bool = False) -> Settings:
    steady, *aliases = NAMES
    urls = [f"http://{host}:{_ENGINE_PORT}" for host in ENGINES[: scenario.engines]]
    models: dict[str, dict[str, object]] = {
        steady: {"urls": urls, "aliases": aliases, "parallel_requests": scenario.slots},
        GONE: {"url": _NOWHERE},
    }
    if is_reloaded:
        models["another"] = {"url": _NOWHERE}
    return Settings.model_validate(
        {
            "server": {
                "body_seconds": 3,
                "stall_seconds": 2,
                "keep_alive_seconds": 1,
                "max_waiting": scenario.most_waiting,
                "api_keys_file": _KEYS if scenario.has_keys else None,
            },
            "metrics": {"open": True},
            "backend": {
                "first_byte_seconds": 3,
                "idle_seconds": 3,
                "deadline_seconds": _DEADLINE,
                "load_wait_seconds": 5,
            },
            "models": models,
            "logging": {"level": "error"},
        }
    )


async def _run(scenario: Scenario, network: Network, verdict: Verdict) -> None:
    """Open Temper and its engines, run the scenario, and close everything again."""
    engines = Engines(scenario.seed)
    for host in ENGINES[: scenario.engines]:
        await engines.start(host, _ENGINE_PORT)
    reloads = 0

    def reload() -> Settings:
        nonlocal reloads
        reloads += 1
        return _settings(scenario, is_reloaded=reloads % 2 == 1)

    faults = [
        (event.time, event.time + event.seconds)
        for event in scenario.events
        if event.kind in ("crash", "stall")
    ]
    async with (
        open_app(_settings(scenario), reload=reload) as app,
        _serving(app, network) as state,
    ):
        watch = Watch(app, engines, scenario.slots)
        await _World(scenario, network, verdict, engines, app, watch, faults).run(state)
    for endpoint in [*network.endpoints]:
        endpoint.crash()
    await asyncio.sleep(1)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        verdict.problems.append(f"tasks that did not end: {left}")
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@contextlib.asynccontextmanager
async def _serving(app: OpenedApp, network: Network) -> AsyncGenerator[ServerState]:
    """Accept clients as `proxy.api.server.serving` does, without its sockets and signals."""
    limits = ConnectionLimits(10.0, 2048, 2.0, 3.0)
    config = uvicorn.Config(
        app, http=limit_connections(limits), ws="none", log_config=None, access_log=False
    )
    config.load()
    state = ServerState()
    protocol = functools.partial(limit_connections(limits), config, state, {})
    network.listen(protocol, TEMPER)
    yield state


@dataclass(slots=True)
class _World:
    """A run in progress; `faults` are the times in which an engine was down or silent."""

    scenario: Scenario
    network: Network
    verdict: Verdict
    engines: Engines
    app: OpenedApp
    watch: Watch
    faults: list[tuple[float, float]]
    chats: int = 0
    perhaps: int = 0  # repeated requests that may have arrived after the failure of the first

    async def run(self, state: ServerState) -> None:
        clients = Clients(URL, _PATIENCE)
        watching = asyncio.create_task(self.watch.run())
        try:
            async with asyncio.timeout(_LONGEST_RUN), asyncio.TaskGroup() as group:
                for event in self.scenario.events:
                    group.create_task(self._happen(event))
                for sending in self.scenario.sendings:
                    group.create_task(self._send(clients, sending))
            await self._check_rest(state)
        finally:
            watching.cancel()
            await clients.close()
            self.verdict.problems[:0] = self.watch.problems
        self.verdict.occurrences["queue waits"] += len(self.watch.waited)

    async def _happen(self, event: Event) -> None:
        await asyncio.sleep(event.time)
        self.verdict.occurrences[_EVENTS[event.kind]] += 1
        match event.kind:
            case "crash":
                self.network.crash(event.host)
                await asyncio.sleep(event.seconds)
                self.network.restart(event.host)
            case "stall":
                self.network.stall(event.host)
                await asyncio.sleep(event.seconds)
                self.network.resume(event.host)
            case "slow":
                self.network.slow.add(event.host)
                await asyncio.sleep(event.seconds)
                self.network.slow.discard(event.host)
            case "reload":
                self.app.renew()

    async def _send(self, clients: Clients, sending: Sending) -> None:
        await asyncio.sleep(sending.time)
        _, plan = draw(self.scenario.seed, sending.number)
        exchanges = await self._exchange(clients, sending, plan)
        due = sum(self._judge(sending, exchange) for exchange in exchanges)
        made = len(self.engines.ledger.made(sending.number))
        if made > due:
            self._note(sending, f"{made} generations, at most {due} were due")
        self.verdict.occurrences["retried"] += made > 1 and len(plan.plays) > 1
        await asyncio.sleep(_LONGEST_OUTLIVING + 0.2)
        begun, over = exchanges[0].begun, max(exchange.over for exchange in exchanges)
        ends = [made.ended or CLOCK.now for made in self.engines.ledger.made(sending.number)]
        outlived = max(ends, default=over) - over
        # a stalled engine notices the end of a connection only after the stall
        noticed = over + _LONGEST_OUTLIVING
        if outlived > _LONGEST_OUTLIVING and not self._is_faulty(begun, noticed):
            self._note(sending, f"a generation outlived its client by {outlived:.2f} s")

    async def _exchange(self, clients: Clients, sending: Sending, plan: Plan) -> list[Exchange]:
        """Send a request, and those that belong to it; return them with their responses."""
        self.chats += plan.request.is_chat
        if _can_continue(plan) and sending.manner == "continues":
            return await self._converse(sending, in_dialect(plan, "responses", store=True))
        half_closes = sending.manner == "half-closes"
        if _is_convertible(plan) and (half_closes or sending.dialect != "chat"):
            self.verdict.occurrences["half-closed"] += half_closes
            plan = in_dialect(plan, sending.dialect)
            return [await exchange(plan, sending.dialect, half_closes=half_closes)]
        if plan.manner is Manner.SENDS_TWICE and not self.scenario.can_be_full:
            both = await asyncio.gather(
                self._send_chat(clients, sending, plan),
                self._send_same_key(sending, of_another_owner(plan)),
            )
            return [*both]
        if plan.manner is Manner.SENDS_TWICE:  # the first may be refused before the second arrives
            plan = replace(plan, manner=Manner.STAYS)
        return [await self._send_chat(clients, sending, plan)]

    async def _send_chat(self, clients: Clients, sending: Sending, plan: Plan) -> Exchange:
        """Send a request as in the soak, with its manners."""
        begun = CLOCK.now
        sent = await clients.send(sending.number, plan)
        if sent.seen.is_disconnected:
            self.watch.gone[f"soak-{sending.number}"] = sent.over
        self.perhaps += plan.manner is Manner.SENDS_TWICE and sent.seen.error is not None
        return Exchange(plan, begun, sent.over, sent.seen)

    async def _send_same_key(self, sending: Sending, plan: Plan) -> Exchange:
        """Send a request of another owner with an idempotency key that is in use."""
        self.chats += 1
        self.verdict.occurrences["keys of another owner"] += 1
        sent = await exchange(plan, "chat")
        if sent.response is not None and "idempotent-replayed" in sent.response.headers:
            self._note(sending, "it got the response of another owner")
        return sent

    async def _converse(self, sending: Sending, plan: Plan) -> list[Exchange]:
        """Continue a response after a reload, with the key of another owner and with its own."""
        prompts = self.engines.prompts[sending.number]
        first = await exchange(plan, "responses")
        if not first.is_answered or first.response is None:
            return [first]
        self.app.renew()
        self.verdict.occurrences["continued"] += 1
        before = prompts[-1]
        text = f"And then? [[request {sending.number}]]"
        again = continued(plan, first.response, text)
        self.chats += 2
        self.verdict.occurrences["keys of another owner"] += 1
        refused = replace(of_another_owner(again), demand=_NOT_FOUND)
        stranger = await exchange(refused, "responses")
        count = len(prompts)
        second = await exchange(again, "responses")
        for prompt in prompts[count:]:
            added = [message["content"] for message in prompt[len(before) :]]
            if prompt[: len(before)] != before or added != [first.seen.text, text]:
                self._note(sending, f"{before} was continued with {prompt}")
        return [first, stranger, second]

    def _judge(self, sending: Sending, exchange: Exchange) -> int:
        """Check the outcome of a request; return the number of generations that were due."""
        plan, seen = exchange.plan, exchange.seen
        if seen.kind in _KINDS:
            self.verdict.occurrences[_KINDS[seen.kind]] += 1
        self.verdict.occurrences["queue full"] += QUEUE_IS_FULL in f"{seen.error}"
        demand = self._permitted(sending, exchange)
        problem = problem_of(demand, seen)
        is_leaving = plan.manner not in (Manner.STAYS, Manner.READS_SLOWLY, Manner.SENDS_TWICE)
        if is_leaving and (
            self._is_faulty(exchange.begun, exchange.over) or QUEUE_IS_FULL in f"{seen.error}"
        ):
            problem = seen.problem  # an error may arrive before the client leaves
        if problem and not self._is_cut_late(plan, demand, seen):
            self._note(sending, problem)
        return demand.attempts

    def _note(self, sending: Sending, problem: str) -> None:
        fault, _ = draw(self.scenario.seed, sending.number)
        self.verdict.problems.append(
            f"request {sending.number} ({sending.dialect}, {sending.manner}), "
            f"{fault.name}: {problem}"
        )

    def _is_faulty(self, begun: float, over: float) -> bool:
        return any(begin <= over and begun <= end + _LATE for begin, end in self.faults)

    def _permitted(self, sending: Sending, exchange: Exchange) -> Demand:
        """Add the outcomes that the faults of engines and the queue permit."""
        demand, engines = exchange.plan.demand, self.scenario.engines
        fault, _ = draw(self.scenario.seed, sending.number)
        if fault.name.startswith("backend: disconnects"):
            # a reset may overtake all data: on a reused connection the request is sent again
            demand = replace(demand, attempts=demand.attempts + 1)
        if self.scenario.can_be_full:
            demand = replace(demand, failures=demand.failures | {429})
        if engines > 1:  # before its first byte, a failed generation is sent to the next engine
            demand = replace(demand, attempts=demand.attempts * engines)
            # engines that fail are not used for a while, which ends as if they were down
            demand = _or_unavailable(demand)
        if self._is_faulty(exchange.begun, exchange.over):
            demand = _or_unavailable(replace(demand, attempts=demand.attempts + 2))
        if exchange.over - exchange.begun >= _DEADLINE:  # most of it in the queue
            demand = _or_cut_off(demand, exchange.seen)
        return demand

    def _is_cut_late(self, plan: Plan, demand: Demand, seen: Seen) -> bool:
        """Return whether a slow response that had begun with spaces ended with its connection.

        The status of a response that is not streamed is sent before its end if it takes long, so
        a later error can only close the connection (docs/guides/troubleshooting.md).
        """
        is_broken = seen.problem.startswith("the connection broke")
        return is_broken and bool(demand.failures) and b'"stream":false' in plan.request.body

    async def _check_rest(self, state: ServerState) -> None:
        """Wait until all is idle; nothing may be left open or counted twice."""
        await asyncio.sleep(_SETTLE_SECONDS)
        async with httpx.AsyncClient(base_url=URL, trust_env=False, verify=False) as client:
            metrics = (await client.get("/metrics")).text
        sums = dict[str, float]()
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        await asyncio.sleep(5)  # longer than the connection above is kept
        services = [*self.app.services]
        queues = [service.admission.queue for service in services]
        counted = sums.get("temper_requests_total", 0.0)
        at_rest = {
            "tickets": sum(queue.served + queue.waiting for queue in queues),
            "waiting requests": sums["temper_requests_waiting"],
            "running requests": sums["temper_requests_running"],
            "share of the KV cache": round(sums["temper_kv_cache_usage_ratio"], 9),
            "load of the engines": sum(sum(loads_of(service)) for service in services),
            "generations": self.engines.ledger.playing,
            "connections of clients": len(state.connections),
            "requests that were not counted": max(0.0, self.chats - counted),
            "requests that were counted twice": max(0.0, counted - self.chats - self.perhaps),
        }
        self.verdict.problems += [
            f"at rest: {name}: {value:g}" for name, value in at_rest.items() if value
        ]


def _or_cut_off(demand: Demand, seen: Seen) -> Demand:
    """Permit a timeout, or a beginning of the answer that ends as if by its length."""
    beginnings = [
        replace(answer, text=seen.text, thoughts=seen.thoughts, calls=(), reason="length")
        for answer in demand.answers
        if answer.text.startswith(seen.text) and answer.thoughts.startswith(seen.thoughts)
    ]
    return _or_unavailable(replace(demand, answers=(*demand.answers, *beginnings)))


def _or_unavailable(demand: Demand) -> Demand:
    """Permit an error that says that no engine answers, after a beginning of the answer."""
    answer = demand.answers[0] if demand.answers else None
    return replace(
        demand,
        failures=demand.failures | _UNAVAILABLE,
        has_apology=True,  # the engine failed in a retry
        shown=demand.shown or (answer.text if answer is not None else ""),
        thoughts=demand.thoughts or (answer.thoughts if answer is not None else ""),
    )


def _is_convertible(plan: Plan) -> bool:
    """Return whether a request makes sense in another dialect."""
    request, demand = plan.request, plan.demand
    return (
        plan.manner in (Manner.STAYS, Manner.READS_SLOWLY)
        and request.is_chat
        and request.path == CHAT
        and not demand.is_endless
        and demand.attempts > 0
        and is_convertible(request.body)
        and not any(name.startswith("x-temper") for name in request.headers)
    )


def _can_continue(plan: Plan) -> bool:
    """Return whether a request has one right answer, a text."""
    demand = plan.demand
    texts = [answer for answer in demand.answers if answer.reason == "stop" and answer.text]
    is_only = len(texts) == 1 and texts == [*demand.answers] and not demand.withheld
    return is_only and demand.attempts == 1 and not demand.failures and _is_convertible(plan)


def shrink(scenario: Scenario) -> Scenario:
    """Remove requests and events as long as the scenario still fails."""
    for name in ("events", "sendings"):
        step = max(1, len(getattr(scenario, name)) // 2)
        while step:
            kept = getattr(scenario, name)
            for start in range(0, len(kept), step):
                smaller = replace(scenario, **{name: kept[:start] + kept[start + step :]})
                if len(getattr(smaller, name)) < len(kept) and simulate(smaller).problems:
                    scenario = smaller
                    break
            else:
                step //= 2
    return scenario


def digest(verdict: Verdict) -> bytes:
    return msgspec.json.encode(verdict.trace)
