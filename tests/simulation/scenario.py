"""What happens in one run, drawn from its seed.

A subset of the requests or of the events is a valid scenario, which is how a failure is shrunk.
"""

import random
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tests.simulation.dialects import Dialect

ENGINES = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
_SECONDS = 12.0  # in which events begin
_SPANS = (1.0, 4.0, _SECONDS, _SECONDS)  # in which all requests begin; short ones fill the queue
_MANAGED = 0.5  # share of the seeds in which Temper starts servers
_STRETCH = 3.0  # so many times longer is a seed with saved prompt caches
_WITH_CACHES = 0.5  # of these, the seeds in which their prompt caches are saved
_WITH_WORKERS = 0.4  # of the others, those with workers
_WITH_STORE = 0.7  # of those with workers, the seeds in which they share a store
_WITH_FILES = 0.5  # and in which it has files
_MANY = 256  # waiting requests: more than a scenario has

MODELS = ("alder", "birch", "cedar")  # models that Temper starts a llama-server for

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
    """An event of the world at `time`; `host` and `seconds` are those of a fault.

    For a server of Temper's own, `host` is the name of the model.
    """

    kind: EventKind
    time: float
    host: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sending:
    """The request `number` of the seed, sent at `time` in a dialect, to a managed `model` if any.

    A client that `half-closes` finishes sending before it reads; one that `continues` sends a
    second request `pause` seconds after the answer, with `previous_response_id`; one that `repeats`
    sends its request again after `pause` seconds, with the same idempotency key. All apply to
    suitable requests.
    """

    number: int
    time: float
    dialect: Dialect = "chat"
    manner: Manner = "usual"
    model: str = ""
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Managed:
    """The models that Temper loads itself: `most_loaded` at once, for `ttl` idle seconds (0: no
    limit). It saves their prompt caches if `saves_caches`. With several workers there is one
    model, whose server `is_shared` by them.
    """

    models: tuple[str, ...] = ()
    most_loaded: int = 1
    ttl: int = 0
    saves_caches: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run: its requests and events, and the settings of Temper."""

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
        return self.most_waiting < _MANY


def scenario_of(seed: int) -> Scenario:
    """Draw a scenario."""
    chance = random.Random(f"scenario/{seed}")
    engines = chance.choice((1, 1, 2, 3))
    count = chance.choice((8, 16, 32))
    first = 1000 + 1000 * seed  # past the numbers that `draw` reserves for one of each fault
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
    """Serve with several workers, which are killed and replaced, perhaps with their own server."""
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
    """Let the workers share responses and answers in a store that fails."""
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
    """Let Temper store responses and record exchanges, on a disk that may fail, and restart."""
    kinds: tuple[EventKind, ...] = ("kill", "kill", "power cut", "disk slow")
    if scenario.workers == 1:  # workers that cannot start end the server
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
    """Let Temper start the servers of one to three models, which get most of the requests."""
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
