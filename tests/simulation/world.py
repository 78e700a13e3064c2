"""One seed: Temper, its engines and its clients in the simulated network, and what must hold.

A `Scenario` is drawn from the seed: the requests with their times, and the events of the world. A
subset of either is a valid scenario, which is how a failure is shrunk.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import httpx
import msgspec
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from uvicorn.server import ServerState

from benchmarks.faults.backend import FaultyBackend
from benchmarks.faults.clients import Clients, Patience
from benchmarks.faults.demands import Demand, Seen, problem_of
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.material import CHAT, GONE, NAMES, Manner, Plan
from benchmarks.faults.mixture import draw
from proxy.api.connections import ConnectionLimits, limit_connections
from proxy.api.hosted import OpenedApp, open_app
from proxy.serving.services import Services
from proxy.settings import Settings
from tests.simulation.clock import CLOCK
from tests.simulation.dialects import Dialect, convert, is_convertible, read
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network

TEMPER = ("127.0.0.1", 8367)
URL = f"http://{TEMPER[0]}:{TEMPER[1]}"
_ENGINES = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
_ENGINE_PORT = 8080
_NOWHERE = "http://10.0.2.1:8080"
_SECONDS = 12.0  # in which all requests begin
_PATIENCE = Patience(answer=60.0, stall=2.0)  # far above Temper's own deadlines
_SETTLE_SECONDS = 30.0
_LONGEST_OUTLIVING = 1.0  # seconds that a generation may outlive its client
_LATE = 16.0  # seconds after the end of a fault in which its consequences are permitted
_UNAVAILABLE = frozenset({502, 503, 504})

_LOGGER = logging.getLogger("proxy")  # not the root, whose handlers a reload replaces

Kind: TypeAlias = Literal["crash", "stall", "reload"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the world at `time`; `host` and `seconds` are those of a fault."""

    kind: Kind
    time: float
    host: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sending:
    """The request `number` of the seed, sent at `time` in a dialect."""

    number: int
    time: float
    dialect: Dialect = "chat"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens in one run."""

    seed: int
    sendings: tuple[Sending, ...]
    events: tuple[Event, ...]
    engines: int
    slots: int


@dataclass(slots=True)
class Verdict:
    """What went wrong, "" for each that did not; `trace` is a digest of all events."""

    problems: list[str] = field(default_factory=list)
    trace: list[tuple[float, str, str, int]] = field(default_factory=list)
    requests: int = 0


def scenario_of(seed: int) -> Scenario:
    """Draw a scenario."""
    chance = random.Random(f"scenario/{seed}")
    engines = chance.choice((1, 1, 2, 3))
    count = chance.choice((8, 16, 32))
    first = 1000 + 1000 * seed  # past the numbers that `draw` reserves for one of each fault
    sendings = [
        Sending(
            first + index,
            chance.random() * _SECONDS,
            chance.choice(("chat", "chat", "messages", "responses", "ollama")),
        )
        for index in range(count)
    ]
    events = [
        Event(
            chance.choice(("crash", "stall", "reload")),
            chance.random() * _SECONDS,
            chance.choice(_ENGINES[:engines]),
            chance.random() * 6,
        )
        for _ in range(chance.choice((0, 1, 2, 5)))
    ]
    return Scenario(seed, tuple(sendings), tuple(events), engines, chance.choice((1, 2, 4, 16)))


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
    gc.disable()  # a collection would run finalizers at times that depend on memory
    log = _ErrorLog(verdict)
    _LOGGER.addHandler(log)
    try:
        loop.run_until_complete(_World(scenario, network, verdict).run())
        loop.run_until_complete(loop.shutdown_asyncgens())
    except Exception as error:  # noqa: BLE001 - any error of the run is a finding
        verdict.problems.append(f"the run ended with {error!r}")
    finally:
        _LOGGER.removeHandler(log)
        gc.enable()
        asyncio.set_event_loop(None)
        loop.close()
        network.close()
        verdict.trace = network.trace
    return verdict


class _ErrorLog(logging.Handler):
    """Collects internal errors from the log."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(logging.ERROR)
        self._verdict = verdict

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += f": {logging.Formatter().formatException(record.exc_info)[-1500:]}"
        self._verdict.problems.append(f"in the log: {text}")


def _settings(scenario: Scenario, *, is_reloaded: bool = False) -> Settings:
    steady, *aliases = NAMES
    urls = [f"http://{host}:{_ENGINE_PORT}" for host in _ENGINES[: scenario.engines]]
    models: dict[str, dict[str, object]] = {
        steady: {"urls": urls, "aliases": aliases, "parallel_requests": scenario.slots},
        GONE: {"url": _NOWHERE},
    }
    if is_reloaded:
        models["another"] = {"url": _NOWHERE}
    return Settings.model_validate(
        {
            "server": {"body_seconds": 3, "stall_seconds": 2, "keep_alive_seconds": 1},
            "backend": {
                "first_byte_seconds": 3,
                "idle_seconds": 3,
                "deadline_seconds": 10,
                "load_wait_seconds": 5,
            },
            "models": models,
            "logging": {"level": "error"},
        }
    )


@dataclass(slots=True)
class _World:
    """A run in progress; `faults` are the times in which an engine was down or silent."""

    scenario: Scenario
    network: Network
    verdict: Verdict
    ledger: Ledger = field(default_factory=Ledger)
    faults: list[tuple[float, float]] = field(default_factory=list)
    chats: int = 0

    async def run(self) -> None:
        scenario = self.scenario
        self.faults += [
            (event.time, event.time + event.seconds)
            for event in scenario.events
            if event.kind != "reload"
        ]
        for host in _ENGINES[: scenario.engines]:
            backend = FaultyBackend(scenario.seed, self.ledger)
            await asyncio.start_server(backend.serve, host, _ENGINE_PORT)
        reloads = 0

        def reload() -> Settings:
            nonlocal reloads
            reloads += 1
            return _settings(scenario, is_reloaded=reloads % 2 == 1)

        async with open_app(_settings(scenario), reload=reload) as app, self._serving(app) as state:
            clients = Clients(URL, _PATIENCE)
            try:
                async with asyncio.TaskGroup() as group:
                    for event in scenario.events:
                        group.create_task(self._happen(event, app))
                    for sending in scenario.sendings:
                        group.create_task(self._send(clients, sending))
                await self._check_rest(state, app.services)
            finally:
                await clients.close()
        for endpoint in [*self.network.endpoints]:
            endpoint.crash()
        await asyncio.sleep(1)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            self.verdict.problems.append(f"tasks that did not end: {left}")
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _serving(self, app: OpenedApp) -> AsyncGenerator[ServerState]:
        """Accept clients as `proxy.api.server.serving` does, without its sockets and signals."""
        limits = ConnectionLimits(10.0, 2048, 2.0, 3.0)
        config = uvicorn.Config(
            app, http=limit_connections(limits), ws="none", log_config=None, access_log=False
        )
        config.load()
        state = ServerState()
        protocol = functools.partial(limit_connections(limits), config, state, {})
        self.network.listen(protocol, TEMPER)
        yield state

    async def _happen(self, event: Event, app: OpenedApp) -> None:
        await asyncio.sleep(event.time)
        match event.kind:
            case "crash":
                self.network.crash(event.host)
                await asyncio.sleep(event.seconds)
                self.network.restart(event.host)
            case "stall":
                self.network.stall(event.host)
                await asyncio.sleep(event.seconds)
                self.network.resume(event.host)
            case "reload":
                app.renew()

    async def _send(self, clients: Clients, sending: Sending) -> None:
        await asyncio.sleep(sending.time)
        _, plan = draw(self.scenario.seed, sending.number)
        dialect = sending.dialect if _is_convertible(plan) else "chat"
        begun = CLOCK.now
        if dialect == "chat":
            self.chats += plan.request.is_chat
            sent = await clients.send(sending.number, plan)
            seen, over = sent.seen, sent.over
        else:
            self.chats += 1
            seen, over = await _post(dialect, plan)
            # only chat completions report a retry that was withheld
            answers = (*plan.demand.answers, *plan.demand.withheld)
            plan = replace(plan, demand=replace(plan.demand, answers=answers))
        demand = self._permitted(sending, plan.demand, begun, over)
        problem = problem_of(demand, seen)
        is_leaving = plan.manner not in (Manner.STAYS, Manner.READS_SLOWLY, Manner.SENDS_TWICE)
        if is_leaving and self._is_faulty(begun, over):
            problem = seen.problem  # an error may arrive before the client leaves
        if problem and not self._is_cut_late(plan, demand, seen):
            self._note(sending, problem)
        made = len(self.ledger.made(sending.number))
        if made > demand.attempts:
            self._note(sending, f"{made} generations, at most {demand.attempts} were due")
        await asyncio.sleep(_LONGEST_OUTLIVING + 0.2)
        ends = [made.ended or CLOCK.now for made in self.ledger.made(sending.number)]
        outlived = max(ends, default=over) - over
        if outlived > _LONGEST_OUTLIVING and not self._is_faulty(begun, over):
            self._note(sending, f"a generation outlived its client by {outlived:.2f} s")

    def _note(self, sending: Sending, problem: str) -> None:
        fault, _ = draw(self.scenario.seed, sending.number)
        self.verdict.problems.append(
            f"request {sending.number} ({sending.dialect}), {fault.name}: {problem}"
        )

    def _is_faulty(self, begun: float, over: float) -> bool:
        return any(begin <= over and begun <= end + _LATE for begin, end in self.faults)

    def _permitted(self, sending: Sending, demand: Demand, begun: float, over: float) -> Demand:
        """Add the outcomes that the faults of engines and the queue permit."""
        engines = self.scenario.engines
        fault, _ = draw(self.scenario.seed, sending.number)
        if fault.name.startswith("backend: disconnects"):
            # a reset may overtake all data: on a reused connection the request is sent again
            demand = replace(demand, attempts=demand.attempts + 1)
        if engines > 1:  # before its first byte, a failed generation is sent to the next engine
            demand = replace(demand, attempts=demand.attempts * engines)
            # engines that fail are not used for a while, which ends as if they were down
            demand = _or_unavailable(demand)
        if self._is_faulty(begun, over):
            demand = _or_unavailable(replace(demand, attempts=demand.attempts + 2))
        return demand

    def _is_cut_late(self, plan: Plan, demand: Demand, seen: Seen) -> bool:
        """Return whether a slow response that had begun with spaces ended with its connection.

        The status of a response that is not streamed is sent before its end if it takes long, so
        a later error can only close the connection (docs/guides/troubleshooting.md).
        """
        is_broken = seen.problem.startswith("the connection broke")
        return is_broken and bool(demand.failures) and b'"stream":false' in plan.request.body

    async def _check_rest(self, state: ServerState, services: Services) -> None:
        """Wait until all is idle; nothing may be left open or counted twice."""
        await asyncio.sleep(_SETTLE_SECONDS)
        async with httpx.AsyncClient(base_url=URL, trust_env=False) as client:
            metrics = (await client.get("/metrics")).text
        sums = dict[str, float]()
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        await asyncio.sleep(5)  # longer than the connection above is kept
        queues = [service.admission.queue for service in services]
        at_rest = {
            "tickets": sum(queue.served + queue.waiting for queue in queues),
            "waiting requests": sums["temper_requests_waiting"],
            "running requests": sums["temper_requests_running"],
            "share of the KV cache": round(sums["temper_kv_cache_usage_ratio"], 9),
            "generations": self.ledger.playing,
            "connections of clients": len(state.connections),
            "requests that were not counted": self.chats - sums.get("temper_requests_total", 0.0),
        }
        self.verdict.problems += [
            f"at rest: {name}: {value:g}" for name, value in at_rest.items() if value
        ]


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


async def _post(dialect: Dialect, plan: Plan) -> tuple[Seen, float]:
    path, body = convert(dialect, plan.request.body)
    seen = Seen()
    try:
        async with (
            asyncio.timeout(_PATIENCE.answer),
            httpx.AsyncClient(base_url=URL, trust_env=False, timeout=_PATIENCE.answer) as client,
        ):
            response = await client.post(path, content=body, headers=plan.request.headers)
            seen = read(dialect, response)
    except TimeoutError:
        seen.problem = f"no end after {_PATIENCE.answer:g} s"
    except (httpx.HTTPError, OSError) as error:
        seen.problem = f"the connection broke: {error!r}"
    return seen, CLOCK.now


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
