"""Run one scenario: start Temper, engines and clients, and check every response and the end."""

import asyncio
import contextlib
import gc
import itertools
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.faults.clients import Clients, TimeLimits
from benchmarks.faults.demands import Demand, Kind, Received, RightAnswer, problem_of
from benchmarks.faults.material import CHAT, GONE, NAMES, Manner, Plan
from benchmarks.faults.mixture import draw
from proxy.api.workers import LONGEST_DELAY
from proxy.settings import Settings
from tests.simulation import slots, store, threads
from tests.simulation.children import Children
from tests.simulation.clock import CLOCK
from tests.simulation.dialects import is_convertible
from tests.simulation.disk import Disk
from tests.simulation.engines import Engines
from tests.simulation.exchanges import (
    QUEUE_IS_FULL,
    TEMPER,
    TIMEOUT_SECONDS,
    URL,
    Exchange,
    continued,
    exchange,
    for_model,
    in_dialect,
    is_replayed,
    of_another_owner,
    open_client,
)
from tests.simulation.invariants import Watch, claims_of, loads_of
from tests.simulation.loop import SimulatedLoop
from tests.simulation.losses import Losses
from tests.simulation.network import Network
from tests.simulation.scenario import ENGINES, DiskTrouble, Event, Scenario, Sending, TemperEvent
from tests.simulation.slots import Caches
from tests.simulation.store import Store
from tests.simulation.temper import GRACE, Temper
from tests.simulation.workers import UNUSABLE_SECONDS

_ENGINE_PORT = 8080
_RUNS = itertools.count()
_RUNS_BETWEEN_COLLECTIONS = 100
_NOWHERE = "http://10.0.2.1:8080"
_KEYS = Path(__file__).with_name("keys.txt")
_MODEL_FILE = Path(__file__).with_name("model.gguf")  # an empty file
_SECRET = "the-workers-share-it"
_TIME_LIMITS = TimeLimits(answer=TIMEOUT_SECONDS, stall=2.0)
# A second response after the end of the first. If it arrives after the next request was sent, no
# HTTP/1.1 client can tell it from the response to that request (seed 3640).
_SURPLUS = "good: surplus bytes after the end"
_WINDOW = 1_048_576  # tokens, as the simulated servers report
_DEADLINE = 10.0  # `backend.deadline_seconds`
_LONGEST_RUN = 600.0  # virtual seconds; most runs take a tenth of it
_SETTLE_SECONDS = 30.0
_LONGEST_OUTLIVING = 1.0  # seconds that a generation may run after its client disconnected
_LOAD_WAIT = 5
_LOAD_SECONDS = 6  # more than a good start of a managed server takes
_LATE = 16.0  # seconds after the end of a fault in which requests may still fail
_LATE_OF_SERVERS = 40.0  # the same for managed servers: the delay of their restarts grows
_UNAVAILABLE = frozenset({502, 503, 504})

_LOGGER = logging.getLogger("proxy")  # not the root logger: a reload replaces its handlers
_POOL = logging.getLogger("proxy.backends.pool")
_SUPERVISOR = logging.getLogger("proxy.processes.supervisor")
_WORKERS = logging.getLogger("proxy.api.workers")

# the permitted outcomes of a request for the stored response of another owner
_NOT_FOUND = Demand(failures=frozenset({400}), attempts=0)
_NOT_FOUND_OR_NO_STORE = Demand(failures=frozenset({400, 503}), attempts=0)

_KINDS = {
    Kind.ANSWER: "answers",
    Kind.ERROR: "errors",
    Kind.ERROR_EVENT: "error events",
    Kind.LEFT: "disconnects",
}
_EVENTS = {
    "crash": "crashes",
    "stall": "stalls",
    "slow": "slow to accept",
    "reload": "reloads",
    "kill": "kills of Temper",
    "power cut": "power cuts",
    "kill worker": "killed workers",
    "failing reload": "failing reloads",
    "disk fails": "failing disks",
    "disk full": "full disks",
    "disk read-only": "read-only disks",
    "disk not flushed": "disks without flush",
    "disk slow": "slow disks",
    "caches vanish": "removals of caches",
}
_CHILDREN = ("starts", "failed starts", "hung starts", "stops", "killed servers", "stalled servers")
OCCURRENCES = (
    *_KINDS.values(),
    *_EVENTS.values(),
    *_CHILDREN,
    *(
        "replaced workers",
        "rejected reloads",
        "restarts given up",
        "failed disk operations",
        "torn files",
        "recorded",
        "read again",
        "continued later",
    ),
    *("retried", "failovers", "queue waits", "queue full", "half-closed", "continued"),
    *("keys of another owner",),
    *slots.OCCURRENCES,
)
if store.HAS_CLIENT:
    OCCURRENCES += (*store.OCCURRENCES.values(), "commands of the store", "repeated", "replayed")


@dataclass(slots=True)
class Verdict:
    """The problems of a run, the count of each of `OCCURRENCES`, and the network events."""

    problems: list[str] = field(default_factory=list)
    trace: list[tuple[float, str, str, int]] = field(default_factory=list)
    requests: int = 0
    occurrences: Counter[str] = field(default_factory=Counter)
    is_skipped: bool = False


def simulate(scenario: Scenario) -> Verdict:
    """Run a scenario; skip it if it needs a library that is not installed."""
    if scenario.has_store and not store.HAS_CLIENT:
        return Verdict(is_skipped=True)
    CLOCK.restart(scenario.seed)
    random.seed(scenario.seed)  # the pool and the supervisor draw from the global generator
    descriptors = _count_descriptors()
    network = Network(random.Random(f"network/{scenario.seed}"))
    loop = SimulatedLoop(network)
    asyncio.set_event_loop(loop)
    verdict = Verdict(requests=len(scenario.sendings))
    loop.set_exception_handler(
        lambda _loop, context: verdict.problems.append(f"in the event loop: {context}")
    )
    _collect_garbage()
    gc.disable()  # a collection would run finalizers at times that depend on memory
    try:
        with _watched_log(verdict):
            loop.run_until_complete(_run(scenario, loop, verdict))
            loop.run_until_complete(loop.shutdown_asyncgens())
    except Exception as error:  # noqa: BLE001 - any error of the run is a finding
        verdict.problems.append(f"the run ended with {error!r}")
    finally:
        gc.enable()
        asyncio.set_event_loop(None)
        loop.close()
        network.close()
        verdict.trace = network.trace
    if _count_descriptors() > descriptors:
        verdict.problems.append(f"open descriptors: {_count_descriptors()}, before {descriptors}")
    return verdict


def _collect_garbage() -> None:
    """Collect the garbage of the previous run; only every hundredth call visits all objects."""
    if next(_RUNS) % _RUNS_BETWEEN_COLLECTIONS == 0:
        gc.unfreeze()  # caches of FastAPI keep some applications of earlier runs
    gc.collect()
    gc.freeze()


def _count_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len([*folder.iterdir()]) if folder.exists() else 0


@contextlib.contextmanager
def _watched_log(verdict: Verdict) -> Iterator[None]:
    log = _ErrorLog(verdict)
    _LOGGER.addHandler(log)
    for logger in (_POOL, _SUPERVISOR, _WORKERS):
        logger.setLevel(logging.WARNING)
        logger.addFilter(log.count)
    try:
        yield
    finally:
        _LOGGER.removeHandler(log)
        for logger in (_POOL, _SUPERVISOR, _WORKERS):
            logger.removeFilter(log.count)


class _ErrorLog(logging.Handler):
    """Reports errors in the log as problems; counts failovers and abandoned restarts."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(logging.ERROR)
        self._verdict = verdict

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += f": {logging.Formatter().formatException(record.exc_info)[-1500:]}"
        self._verdict.problems.append(f"in the log: {text}")

    def count(self, record: logging.LogRecord) -> bool:
        is_lasting = "giving up" in record.msg
        is_rejected = record.msg.startswith("a new worker")
        self._verdict.occurrences["rejected reloads"] += is_rejected
        self._verdict.occurrences["failovers"] += "next server" in record.msg
        self._verdict.occurrences["restarts given up"] += is_lasting
        return record.levelno >= logging.ERROR and not (is_lasting or is_rejected)


def _settings(
    scenario: Scenario, disk: Disk, *, is_reloaded: bool = False, body_seconds: float = 3.0
) -> Settings:
    steady, *aliases = NAMES
    urls = [f"http://{host}:{_ENGINE_PORT}" for host in ENGINES[: scenario.engines]]
    models: dict[str, dict[str, object]] = {
        steady: {"urls": urls, "aliases": aliases, "parallel_requests": scenario.slots},
        GONE: {"url": _NOWHERE},
        **{name: _managed(scenario) for name in scenario.managed.models},
    }
    if is_reloaded:
        models["another"] = {"url": _NOWHERE}
    has_workers = scenario.workers > 1  # several workers allow only one model
    is_shared = scenario.managed.is_shared
    return Settings.model_validate(
        {
            "server": {
                "workers": scenario.workers,
                "body_seconds": body_seconds,
                "stall_seconds": 2,
                "keep_alive_seconds": 1,
                "grace_seconds": GRACE,
                "max_waiting": scenario.most_waiting,
                "api_keys_file": _KEYS if scenario.has_keys else None,
            },
            "metrics": {"open": True},
            "backend": {
                "urls": urls if has_workers and not is_shared else [],
                "parallel_requests": scenario.slots if has_workers else 0,
                "first_byte_seconds": 3,
                "idle_seconds": 3,
                "deadline_seconds": _DEADLINE,
                "load_wait_seconds": _LOAD_WAIT,
            },
            "models": {} if has_workers else models,
            "model": _only_model(scenario) if is_shared else {},
            "swapping": {"max_loaded": scenario.managed.most_loaded},
            "state": {"url": store.URL, "secret": _SECRET} if scenario.has_store else {},
            "prompt_cache": slots.settings(disk.caches if scenario.managed.saves_caches else None),
            "logging": {"level": "error"},
            "responses": {"path": disk.responses if scenario.has_files else None},
            "recording": {"path": disk.recording if scenario.has_files else None},
        }
    )


def _only_model(scenario: Scenario) -> dict[str, object]:
    """Return the settings of the server that several workers share."""
    (name,) = scenario.managed.models
    return {
        "path": _MODEL_FILE,
        "context_tokens": _WINDOW,
        "server": sys.executable,
        "alias": name,
        "slots": scenario.slots,
        "load_seconds": _LOAD_SECONDS,
    }


def _managed(scenario: Scenario) -> dict[str, object]:
    """Return the settings of a model for which Temper starts a llama-server."""
    return {
        "path": _MODEL_FILE,
        "context_tokens": _WINDOW,
        "server": sys.executable,  # any existing program: the simulated loop does not run it
        "parallel_requests": scenario.slots,
        "load_seconds": _LOAD_SECONDS,
        "ttl_seconds": scenario.managed.ttl,
    }


async def _run(scenario: Scenario, loop: SimulatedLoop, verdict: Verdict) -> None:
    """Start Temper and its engines, run the scenario, and stop all processes."""
    engines = Engines(scenario.seed)
    for host in ENGINES[: scenario.engines]:
        await engines.start(host, _ENGINE_PORT)
    problems = Counter[str]()
    shared = Store(loop.network)
    if scenario.has_store:
        loop.has_threads = True
        await shared.start()
    reads = itertools.count(1)

    def read() -> Settings:
        number = next(reads)
        body_seconds = UNUSABLE_SECONDS if temper.is_failing else 3.0 + number / 1000
        return _settings(scenario, disk, is_reloaded=number % 2 == 0, body_seconds=body_seconds)

    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder), random.Random(f"disk/{scenario.seed}"))
        caches = Caches(disk.caches, random.Random(f"caches/{scenario.seed}"), problems)
        chance = random.Random(f"children/{scenario.seed}")
        loop.children = Children(loop.network, engines, scenario.managed, chance, problems, caches)
        temper = Temper(loop, disk, read)
        watch = Watch(temper, engines, scenario.slots, problems=problems)
        losses = Losses(scenario, temper, shared)
        with temper.installed(), losses.watched_log(), threads.installed():
            await temper.start()
            await _World(scenario, loop, verdict, engines, temper, watch, losses, shared).run()
            await temper.stop()
            await _end_everything(loop, verdict)
        caches.check_size()
        verdict.occurrences["recorded"] += losses.check_recording()
    verdict.problems[:0] = [*problems, *losses.problems]
    verdict.occurrences += loop.children.occurrences + disk.occurrences + caches.occurrences
    verdict.occurrences["commands of the store"] += shared.commands.total()


async def _end_everything(loop: SimulatedLoop, verdict: Verdict) -> None:
    if children := [child.host for child in loop.children.living()]:
        verdict.problems.append(f"processes that did not end: {children}")
    for endpoint in [*loop.network.endpoints]:
        endpoint.crash()
    await asyncio.sleep(1)
    left = asyncio.all_tasks() - {asyncio.current_task()} - loop.tasks_of_killed()
    if left:
        verdict.problems.append(f"tasks that did not end: {left}")
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    problems = [*verdict.problems]
    logging.disable(logging.CRITICAL)  # the tasks of killed processes log errors when they end
    await loop.cancel_tasks_of_killed()
    logging.disable(logging.NOTSET)
    verdict.problems[:] = problems


@dataclass(slots=True)
class _World:
    """A run in progress.

    `faults` has the times (begin, end) in which an engine was down or sent nothing. `chats` counts
    the chat requests, and `possible_repeats` the repeated requests that Temper may have received as
    new requests.
    """

    scenario: Scenario
    loop: SimulatedLoop
    verdict: Verdict
    engines: Engines
    temper: Temper
    watch: Watch
    losses: Losses
    store: Store
    faults: list[tuple[float, float]] = field(init=False)
    chats: int = 0
    possible_repeats: int = 0

    def __post_init__(self) -> None:
        self.faults = [
            (event.time, event.time + event.seconds)
            for event in self.scenario.events
            if event.kind in ("crash", "stall")
        ]

    async def run(self) -> None:
        clients = Clients(URL, _TIME_LIMITS)
        watching = asyncio.create_task(self.watch.run())
        try:
            async with asyncio.timeout(_LONGEST_RUN), asyncio.TaskGroup() as group:
                for event in self.scenario.events:
                    group.create_task(self._play_event(event))
                for sending in self.scenario.sendings:
                    if self._is_served(sending):
                        group.create_task(self._send(clients, sending))
            await self._check_idle_state()
        finally:
            watching.cancel()
            await clients.close()
        self.verdict.occurrences["queue waits"] += len(self.watch.waited)
        self.verdict.occurrences["replaced workers"] += len(self.temper.spawning.retirements)

    def _is_served(self, sending: Sending) -> bool:
        """Return whether Temper serves the model: with workers there is one, under any of NAMES."""
        _, plan = draw(self.scenario.seed, sending.number)
        names = (f'"{name}"'.encode() for name in NAMES)
        return self.scenario.workers == 1 or any(name in plan.request.body for name in names)

    async def _play_event(self, event: Event) -> None:
        await asyncio.sleep(event.time)
        self.verdict.occurrences[{**_EVENTS, **store.OCCURRENCES}.get(event.kind, event.kind)] += 1
        network, children = self.loop.network, self.loop.children
        match event.kind:
            case "crash":
                network.crash(event.host)
                await asyncio.sleep(event.seconds)
                network.restart(event.host)
            case "stall":
                network.stall(event.host)
                await asyncio.sleep(event.seconds)
                network.resume(event.host)
            case "slow":
                network.slow.add(event.host)
                await asyncio.sleep(event.seconds)
                network.slow.discard(event.host)
            case "kill server":
                children.crash(event.host)
            case "stall server":
                await children.stall(event.host, event.seconds)
            case "caches vanish":
                children.caches.vanish()
            case "store reset" | "store stall" | "store full" | "store restart":
                await self.store.play_event(event, event.kind)
            case kind:
                await self._play_event_of_temper(kind, event)

    async def _play_event_of_temper(self, kind: TemperEvent, event: Event) -> None:
        match kind:
            case "reload":
                self.temper.send_sighup()
            case "failing reload":
                self.temper.send_sighup(fails=True)
            case "kill" | "power cut":
                await self.temper.crash(event.seconds, loses=kind == "power cut")
            case "kill worker":
                self.temper.kill_worker(int(event.host))
            case _:
                await self._disturb_disk(kind, event.seconds)

    async def _disturb_disk(self, kind: DiskTrouble, seconds: float) -> None:
        disk = self.temper.disk
        disk.state = kind
        await asyncio.sleep(seconds)
        disk.state = "good"

    async def _send(self, clients: Clients, sending: Sending) -> None:
        await asyncio.sleep(sending.time)
        fault, plan = draw(self.scenario.seed, sending.number)
        if fault.name == _SURPLUS:
            return
        plan = for_model(plan, sending.model)
        exchanges = await self._exchange(clients, sending, plan)
        for sent in exchanges:
            self.losses.note_answer(sending.number, sent)
        due = sum(self._judge(sending, exchange) for exchange in exchanges)
        made = len(self.engines.ledger.generations_of(sending.number))
        if made > due:
            self._note(sending, f"{made} generations, at most {due} were due")
        self.verdict.occurrences["retried"] += made > 1 and len(plan.plays) > 1
        await asyncio.sleep(_LONGEST_OUTLIVING + 0.2)
        begun, over = exchanges[0].begun, max(exchange.over for exchange in exchanges)
        ends = [
            made.ended or CLOCK.now for made in self.engines.ledger.generations_of(sending.number)
        ]
        outlived = max(ends, default=over) - over
        # a stalled engine notices the end of a connection only after the stall
        noticed = over + _LONGEST_OUTLIVING
        if outlived > _LONGEST_OUTLIVING and not self._is_faulty(sending, begun, noticed):
            self._note(sending, f"a generation outlived its client by {outlived:.2f} s")

    async def _exchange(self, clients: Clients, sending: Sending, plan: Plan) -> list[Exchange]:
        """Send a request and the requests that its manner adds; return all finished exchanges."""
        self.chats += plan.request.is_chat
        can_continue = _can_continue(plan) and self._has_store
        if can_continue and sending.manner == "continues":
            return await self._continue_response(sending, in_dialect(plan, "responses"))
        # only plans with one play: they are counted per request number, which repetitions share
        if sending.manner == "repeats" and len(plan.plays) == 1 and _is_convertible(plan):
            return await self._repeat(sending, in_dialect(plan, sending.dialect))
        half_closes = sending.manner == "half-closes"
        if _is_convertible(plan) and (half_closes or sending.dialect != "chat"):
            self.verdict.occurrences["half-closed"] += half_closes
            plan = in_dialect(plan, sending.dialect)
            return [await exchange(plan, sending.dialect, half_closes=half_closes)]
        # without a store, workers do not share idempotency keys; with a store, see `_repeat`
        has_one_process = self.scenario.workers == 1
        if plan.manner is Manner.SENDS_TWICE and not self.scenario.can_be_full and has_one_process:
            both = await asyncio.gather(
                self._send_chat(clients, sending, plan),
                self._send_same_key(sending, of_another_owner(plan)),
            )
            return [*both]
        if plan.manner is Manner.SENDS_TWICE:  # one request may be refused before the other arrives
            plan = replace(plan, manner=Manner.STAYS)
        return [await self._send_chat(clients, sending, plan)]

    @property
    def _has_store(self) -> bool:
        """True if later requests can read a stored response: one process, or a shared store."""
        scenario = self.scenario
        return scenario.workers == 1 or scenario.has_files or scenario.has_store

    async def _send_chat(self, clients: Clients, sending: Sending, plan: Plan) -> Exchange:
        """Send a request with the clients of `benchmarks.faults`, which know its manner."""
        begun = CLOCK.now
        sent = await clients.send(sending.number, plan)
        if sent.received.is_disconnected:
            self.watch.gone[f"soak-{sending.number}"] = sent.over
        self.possible_repeats += (
            plan.manner is Manner.SENDS_TWICE and sent.received.error is not None
        )
        return Exchange(plan, begun, sent.over, sent.received)

    async def _repeat(self, sending: Sending, plan: Plan) -> list[Exchange]:
        """Send a request with one idempotency key: twice as its owner, once as another owner."""
        number = sending.number
        plan = replace(plan, request=plan.request.with_header("idempotency-key", f"key-{number}"))

        async def send_again(plan: Plan) -> Exchange:
            await asyncio.sleep(sending.pause)
            return await exchange(plan, sending.dialect)

        first, again, stranger = await asyncio.gather(
            exchange(plan, sending.dialect),
            send_again(plan),
            send_again(of_another_owner(plan)),
        )
        self.chats += 3
        self.verdict.occurrences["repeated"] += 1
        self.verdict.occurrences["keys of another owner"] += 1
        if is_replayed(stranger):
            self._note(sending, "it got the response of another owner")
        begun, over = first.begun, max(first.over, again.over)
        is_unshared = self._is_unshared(begun, over)
        if is_replayed(first) or is_replayed(again):
            self.verdict.occurrences["replayed"] += 1
        elif first.is_answered and again.is_answered and not is_unshared:
            self._note(sending, "two answers for one idempotency key, and neither is a replay")
        if first.is_answered and is_replayed(again) and not is_unshared:
            again = replace(again, plan=_without_generation(again.plan))
        return [first, again, stranger]

    def _is_unshared(self, begun: float, over: float) -> bool:
        """Return whether the workers may have been unable to share responses in this time."""
        return self.store.has_trouble(begun, over) or self._is_killed(begun, over)

    async def _send_same_key(self, sending: Sending, plan: Plan) -> Exchange:
        """Send a request as another owner, with the idempotency key that the first owner uses."""
        self.chats += 1
        self.verdict.occurrences["keys of another owner"] += 1
        sent = await exchange(plan, "chat")
        if is_replayed(sent):
            self._note(sending, "it got the response of another owner")
        return sent

    async def _continue_response(self, sending: Sending, plan: Plan) -> list[Exchange]:
        """Continue a response after a reload, first as another owner, then as its owner."""
        prompts = self.engines.prompts[sending.number]
        first = await exchange(plan, "responses")
        if not first.is_answered or first.response is None:
            return [first]
        await asyncio.sleep(sending.pause)
        self.temper.send_sighup()
        self.verdict.occurrences["continued"] += 1
        before = prompts[-1]
        text = f"And then? [[request {sending.number}]]"
        again = continued(plan, first.response, text)
        self.chats += 2
        self.verdict.occurrences["keys of another owner"] += 1
        refused = replace(of_another_owner(again), demand=_NOT_FOUND)
        stranger = await exchange(refused, "responses")
        if self.store.has_trouble(stranger.begun, stranger.over):
            stranger = replace(stranger, plan=replace(refused, demand=_NOT_FOUND_OR_NO_STORE))
        count = len(prompts)
        second = await exchange(again, "responses")
        if self.losses.is_lost(first.begun, second.over):
            # 503: the response may exist, but this worker cannot reach the store
            failures = again.demand.failures | ({400, 503} if self.scenario.has_store else {400})
            demand = replace(again.demand, failures=failures)
            second = replace(second, plan=replace(again, demand=demand))
            is_missing = second.response is not None and second.response.status_code == 400
            if is_missing and self.scenario.has_files:
                self.losses.note_missing_response(sending.number, first.begun, second.over)
        elif self._is_killed(first.over, second.over):
            self.verdict.occurrences["continued later"] += second.is_answered
        for prompt in prompts[count:]:
            added = [message["content"] for message in prompt[len(before) :]]
            if prompt[: len(before)] != before or added != [first.seen.text, text]:
                self._note(sending, f"{before} was continued with {prompt}")
        return [first, stranger, second]

    def _judge(self, sending: Sending, exchange: Exchange) -> int:
        """Check the outcome of a request; return its largest permitted number of generations."""
        plan, seen = exchange.plan, exchange.seen
        if seen.kind in _KINDS:
            self.verdict.occurrences[_KINDS[seen.kind]] += 1
        self.verdict.occurrences["queue full"] += QUEUE_IS_FULL in f"{seen.error}"
        demand = self._permitted(sending, exchange)
        problem = problem_of(demand, seen)
        is_leaving = plan.manner not in (Manner.STAYS, Manner.READS_SLOWLY, Manner.SENDS_TWICE)
        if is_leaving and (
            self._is_faulty(sending, exchange.begun, exchange.over)
            or QUEUE_IS_FULL in f"{seen.error}"
        ):
            problem = seen.problem  # an error may arrive before the client leaves
        is_killed = self._is_killed(exchange.begun, exchange.over)
        is_cut = is_killed or self.temper.is_canceled(exchange.begun, exchange.over)
        is_broken = is_cut and seen.problem.startswith("the connection broke")
        if problem and not is_broken and not self._is_closed_by_a_late_error(plan, demand, seen):
            self._note(sending, problem)
        return demand.attempts + is_killed

    def _note(self, sending: Sending, problem: str) -> None:
        fault, _ = draw(self.scenario.seed, sending.number)
        self.verdict.problems.append(
            f"request {sending.number} ({sending.dialect}, {sending.manner}), "
            f"{fault.name}: {problem}"
        )

    def _is_faulty(self, sending: Sending, begun: float, over: float) -> bool:
        faults, margin = self.faults, _LATE
        if sending.model:
            faults, margin = self.loop.children.faults.get(sending.model, []), _LATE_OF_SERVERS
            if over - begun >= _LOAD_WAIT - 0.1:  # it may have waited for the model
                return True
        return any(begin <= over and begun <= end + margin for begin, end in faults)

    def _is_killed(self, begun: float, over: float) -> bool:
        """Return whether Temper was down at any time between `begun` and `over`."""
        return any(kill.overlaps(begun, over) for kill in self.temper.kills)

    def _permitted(self, sending: Sending, exchange: Exchange) -> Demand:
        """Return the permitted outcomes, including errors that faults or a full queue explain."""
        demand, engines = exchange.plan.demand, self.scenario.engines
        fault, _ = draw(self.scenario.seed, sending.number)
        if fault.name.startswith("backend: disconnects"):
            # a reset may arrive before any data; on a reused connection, Temper then sends the
            # request again
            demand = replace(demand, attempts=demand.attempts + 1)
        if self.scenario.can_be_full:
            demand = replace(demand, failures=demand.failures | {429})
        if sending.model and 502 in demand.failures:  # a managed server may be restarting
            demand = replace(demand, failures=demand.failures | {503})
        if (
            engines > 1 and not sending.model
        ):  # before its first byte, a failed generation is sent to the next engine
            # after its first byte, a response that is not streamed is generated once more
            demand = replace(demand, attempts=demand.attempts * engines + 1)
            # engines that failed are not used for some time, as if they were down
            demand = _or_unavailable(demand)
        if self._is_faulty(sending, exchange.begun, exchange.over):
            demand = _or_unavailable(replace(demand, attempts=demand.attempts + 2))
        if self.temper.is_canceled(exchange.begun, exchange.over):
            demand = _or_unavailable(demand)
        if exchange.over - exchange.begun >= _DEADLINE:  # it may have waited in the queue
            demand = _or_cut_off(demand, exchange.seen)
        return demand

    def _is_closed_by_a_late_error(self, plan: Plan, demand: Demand, seen: Received) -> bool:
        """Return whether an error closed the connection of a slow response.

        If a response that is not streamed takes long, Temper sends the status and spaces first. A
        later error can then only close the connection (docs/guides/troubleshooting.md).
        """
        is_broken = seen.problem.startswith("the connection broke")
        return is_broken and bool(demand.failures) and b'"stream":false' in plan.request.body

    async def _check_idle_state(self) -> None:
        """Wait until Temper is idle, and check that all counts of open objects are 0."""
        # a killed worker restarts after a delay
        delay = LONGEST_DELAY if self.scenario.workers > 1 else 0.0
        await asyncio.sleep(_SETTLE_SECONDS + delay)
        self.verdict.occurrences["read again"] += await self.losses.check_responses()
        sums = await _read_metrics()
        await asyncio.sleep(5)  # longer than the keep-alive of the connection above
        services = [service for app in self.temper.apps for service in app.services]
        queues = [service.admission.queue for service in services]
        counted = sums.get("temper_requests_total", 0.0)
        at_rest = {
            "tickets": sum(queue.served + queue.waiting for queue in queues),
            "waiting requests": sums.get("temper_requests_waiting", 0.0),
            "running requests": sums.get("temper_requests_running", 0.0),
            "share of the KV cache": round(sums.get("temper_kv_cache_usage_ratio", 0.0), 9),
            "load of the engines": sum(sum(loads_of(service)) for service in services),
            "generations": self.engines.ledger.playing,
            "connections of clients": self.loop.network.count_connections(TEMPER),
            "claims to models": sum(map(claims_of, services)),
            "idle models that are loaded": self._count_idle(),
            "claims to idempotency keys": self.store.held_claims(),
            **self.temper.spawning.at_rest(),
        }
        if not self.temper.kills and self.scenario.workers == 1:
            at_rest |= {
                "requests that were not counted": max(0.0, self.chats - counted),
                "requests that were counted twice": max(
                    0.0, counted - self.chats - self.possible_repeats
                ),
            }
        self.verdict.problems += [
            f"at rest: {name}: {value:g}" for name, value in at_rest.items() if value
        ]

    def _count_idle(self) -> int:
        """Return the number of servers that run although their idle time (`ttl`) is over."""
        return len([*self.loop.children.living()]) if self.scenario.managed.ttl else 0


async def _read_metrics() -> dict[str, float]:
    """Return the sum of each metric; with several workers, those of one worker."""
    async with open_client() as client:
        metrics = (await client.get("/metrics")).text
    sums = dict[str, float]()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def _or_cut_off(demand: Demand, seen: Received) -> Demand:
    """Permit a timeout, or the beginning of an answer with the finish reason `length`.

    The deadline may also cut off a first reply that Temper would have rejected at its end, or that
    the server never ends.
    """
    unfinished = RightAnswer(demand.shown, thoughts=demand.thoughts)
    beginnings = [
        replace(answer, text=seen.text, thoughts=seen.thoughts, calls=calls, reason="length")
        for answer in (*demand.answers, *demand.withheld, unfinished)
        for calls in ((), answer.calls)
        if answer.text.startswith(seen.text) and answer.thoughts.startswith(seen.thoughts)
    ]
    return _or_unavailable(replace(demand, answers=(*demand.answers, *beginnings)))


def _or_unavailable(demand: Demand) -> Demand:
    """Permit an error (502, 503 or 504), also after the beginning of the answer."""
    answer = demand.answers[0] if demand.answers else None
    return replace(
        demand,
        failures=demand.failures | _UNAVAILABLE,
        has_apology=True,  # the engine failed in a retry
        shown=demand.shown or (answer.text if answer is not None else ""),
        thoughts=demand.thoughts or (answer.thoughts if answer is not None else ""),
    )


def _without_generation(plan: Plan) -> Plan:
    return replace(plan, demand=replace(plan.demand, attempts=0))


def _is_convertible(plan: Plan) -> bool:
    """Return whether a request can be sent in another dialect."""
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
    """Return whether the only permitted outcome of a request is one text answer."""
    demand = plan.demand
    texts = [answer for answer in demand.answers if answer.reason == "stop" and answer.text]
    is_only = len(texts) == 1 and texts == [*demand.answers] and not demand.withheld
    return is_only and demand.attempts == 1 and not demand.failures and _is_convertible(plan)


def shrink(scenario: Scenario) -> Scenario:
    """Remove requests and events from a failing scenario while it still fails."""
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
