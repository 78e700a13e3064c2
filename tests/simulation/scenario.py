"""The requests, the events and the settings of one simulated run, drawn from its seed.

A scenario stays valid if requests or events are removed from it. `world.shrink` uses this to find
the smallest scenario that still fails.
"""

import random
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tests.simulation.dialects import Dialect

ENGINES = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
_SECONDS = 12.0  # every event begins in these first (virtual) seconds of a run
# All requests are sent within one of these numbers of seconds; a short time fills the queue.
_SPANS = (1.0, 4.0, _SECONDS, _SECONDS)
# Probabilities that a seed has a feature:
_MANAGED = 0.5  # Temper starts the llama-servers itself
_WITH_CACHES = 0.5  # Temper saves their prompt caches (only if it starts the servers)
_WITH_WORKERS = 0.4  # Temper has several worker processes (only without `_MANAGED`)
_WITH_STORE = 0.7  # the workers share a Valkey server (only with several workers)
_WITH_FILES = 0.5  # Temper stores responses and recordings in files (any seed)
_STRETCH = 3.0  # factor for the times of requests if prompt caches are saved
_MANY = 256  # `server.max_waiting` that no scenario reaches

MODELS = ("alder", "birch", "cedar")  # Temper starts a llama-server for each of these

DiskTrouble: TypeAlias = Literal[
    "disk fails", "disk full", "disk read-only", "disk not flushed", "disk slow"
]
StoreTrouble: TypeAlias = Literal["store reset", "store stall", "store full", "store restart"]
TemperEvent: TypeAlias = (
    Literal["reload", "failing reload", "kill", "power cut", "kill worker"] | DiskTrouble
)
EventKind: TypeAlias = (
    Literal["crash", "stall", "slow", "kill server", "stall server", "caches vanish"]
    | TemperEvent
    | StoreTrouble
)
Manner: TypeAlias = Literal["usual", "half-closes", "continues", "repeats"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event `time` seconds after the start; a fault lasts for `seconds`.

    `host` is what fails: the address of an engine, the name of the model whose llama-server Temper
    has started, or the number of a worker.
    """

    kind: EventKind
    time: float
    host: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sending:
    """A request that a client sends `time` seconds after the start of the run.

    `number` selects the request from `benchmarks.faults.mixture.draw`. `model` is a model whose
    server Temper starts, or empty. The manners of a client, for requests that allow them:

    - `half-closes`: it closes the sending side of its connection before it reads the response.
    - `continues`: `pause` seconds after the response it sends a second request with
      `previous_response_id`.
    - `repeats`: after `pause` seconds it sends the same request with the same idempotency key.
    """

    number: int
    time: float
    dialect: Dialect = "chat"
    manner: Manner = "usual"
    model: str = ""
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Managed:
    """The models for which Temper starts llama-servers.

    At most `most_loaded` servers run at once. A server is stopped after `ttl` idle seconds; 0
    means never. With several workers there is one model, and all workers use its server
    (`is_shared`).
    """

    models: tuple[str, ...] = ()
    most_loaded: int = 1
    ttl: int = 0
    saves_caches: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """The requests, the events, and the settings of Temper in one run."""

    seed: int
    sendings: tuple[Sending, ...]
    events: tuple[Event, ...]
    engines: int
    slots: int
    most_waiting: int = _MANY
    has_keys: bool = False
    managed: "Managed" = Managed()
    has_files: bool = False
    workers: int = 1
    has_store: bool = False

    @property
    def can_be_full(self) -> bool:
        """True if the queue can be full, so that a request may receive 429."""
        return self.most_waiting < _MANY


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed; the same seed always gives the same scenario."""
    chance = random.Random(f"scenario/{seed}")
    engines = chance.choice((1, 1, 2, 3))
    count = chance.choice((8, 16, 32))
    first = 1000 + 1000 * seed  # `draw` uses the numbers below 1000 for one request of each fault
    span = chance.choice(_SPANS)
    sendings = [
        Sending(
            first + index,
            chance.random() * span,
            chance.choice(("chat", "chat", "messages", "responses", "ollama")),
            chance.choice(("usual", "usual", "half-closes", "continues")),
        )
        for index in range(count)
    ]
    events = [
        Event(
            chance.choice(("crash", "stall", "slow", "reload")),
            chance.random() * _SECONDS,
            chance.choice(ENGINES[:engines]),
            chance.random() * 6,
        )
        for _ in range(chance.choice((0, 1, 2, 5)))
    ]
    scenario = Scenario(
        seed,
        tuple(sendings),
        tuple(events),
        engines,
        slots=chance.choice((1, 2, 4, 16)),
        most_waiting=chance.choice((1, 2, _MANY, _MANY, _MANY)),
        has_keys=chance.random() < 0.3,
    )
    if chance.random() < _MANAGED:
        scenario = _with_models(scenario, chance)
    elif chance.random() < _WITH_WORKERS:
        scenario = _with_workers(scenario, chance)
        if chance.random() < _WITH_STORE:
            scenario = _with_store(scenario, chance)
    return _with_files(scenario, chance) if chance.random() < _WITH_FILES else scenario


def _with_workers(scenario: Scenario, chance: random.Random) -> Scenario:
    """Add two or three workers, and events that kill or replace them.

    In half of these scenarios Temper also starts one llama-server, which all workers use.
    """
    workers = chance.choice((2, 3))
    kinds: tuple[EventKind, ...] = ("reload", "failing reload")
    model = chance.choice(("", MODELS[0]))
    if model:
        kinds = (*kinds, "kill server", "stall server")
        managed = Managed((model,), is_shared=True)
        sendings = tuple(replace(sending, model=model) for sending in scenario.sendings)
        scenario = replace(scenario, managed=managed, sendings=sendings)
    events = [
        Event("kill worker", chance.random() * _SECONDS, f"{chance.randint(1, workers)}")
        for _ in range(chance.choice((0, 1, 3, 9)))
    ]
    events += [
        Event(kind, chance.random() * _SECONDS, model, chance.random() * 6)
        for kind in chance.choices(kinds, k=chance.choice((0, 1, 3)))
    ]
    return replace(scenario, events=(*scenario.events, *events), workers=workers, has_keys=False)


def _with_store(scenario: Scenario, chance: random.Random) -> Scenario:
    """Add a Valkey server with faults, in which the workers share responses."""
    kinds: tuple[StoreTrouble, ...] = ("store reset", "store stall", "store full", "store restart")
    events = [
        Event(chance.choice(kinds), chance.random() * _SECONDS, seconds=chance.random() * 6)
        for _ in range(chance.choice((0, 2, 4, 6)))
    ]
    sendings = [
        replace(
            sending,
            manner=chance.choice((sending.manner, "repeats")),
            pause=chance.choice((0.0, chance.random(), chance.random() * _SECONDS)),
        )
        for sending in scenario.sendings
    ]
    sent = tuple(sendings)
    return replace(scenario, sendings=sent, events=(*scenario.events, *events), has_store=True)


def _with_files(scenario: Scenario, chance: random.Random) -> Scenario:
    """Let Temper store responses and a recording on a disk; add restarts and disk faults."""
    kinds: tuple[EventKind, ...] = ("kill", "kill", "power cut", "disk slow")
    if scenario.workers == 1:  # Temper exits if its workers cannot start
        kinds = (*kinds, "disk fails", "disk full", "disk read-only", "disk not flushed")
    events = [
        Event(chance.choice(kinds), chance.random() * _SECONDS, seconds=chance.random() * 6)
        for _ in range(chance.choice((1, 2, 3)))
    ]
    sendings = tuple(
        replace(sending, pause=sending.pause or chance.random() * _SECONDS)
        for sending in scenario.sendings
    )
    return replace(scenario, sendings=sendings, events=(*scenario.events, *events), has_files=True)


def _with_models(scenario: Scenario, chance: random.Random) -> Scenario:
    """Let Temper start llama-servers for one to three models; most requests go to these models."""
    models = MODELS[: chance.choice((1, 2, 2, 3))]
    sendings = [
        replace(sending, model=chance.choice((*models, *models, "")))
        for sending in scenario.sendings
    ]
    saves_caches = chance.random() < _WITH_CACHES
    kinds: tuple[EventKind, ...] = ("kill server", "kill server", "stall server")
    if saves_caches:
        kinds = (*kinds, "caches vanish")
    events = [
        Event(
            chance.choice(kinds),
            chance.random() * _SECONDS,
            chance.choice(models),
            chance.random() * 6,
        )
        for _ in range(chance.choice((0, 1, 2, 5)))
    ]
    most_loaded, ttl = chance.choice((1, 1, 2)), chance.choice((0, 1, 5))
    if saves_caches:  # stop and start the servers often
        most_loaded, ttl = 1, 1
        sendings = [replace(sending, time=sending.time * _STRETCH) for sending in sendings]
    managed = Managed(models, most_loaded, ttl, saves_caches)
    sent = tuple(sendings)
    return replace(scenario, sendings=sent, events=(*scenario.events, *events), managed=managed)
