"""Checks of the state of Temper and its engines, four times per virtual second."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.faults.material import NAMES
from proxy.api.hosted import OpenedApp
from proxy.backends.pool import Pool
from proxy.serving.admission import WaitingQueue
from proxy.serving.services import Service
from tests.simulation.clock import CLOCK
from tests.simulation.engines import Engines
from tests.simulation.scenario import MODELS
from tests.simulation.temper import Temper

_INTERVAL = 0.25  # seconds between samples
_END = 0.1  # seconds after which an engine has noticed that Temper has read its reply
_LONGEST_WAIT = 1.0  # seconds that a ticket may stay in a queue after its client disconnected


@dataclass(slots=True)
class Watch:
    """Samples the state of Temper and of its engines.

    `gone` maps a request id to the time at which its client disconnected. `waited` has the numbers
    of the tickets that were in a queue at the time of a sample.
    """

    temper: Temper
    engines: Engines
    slots: int
    gone: dict[str, float] = field(default_factory=dict)
    waited: set[int] = field(default_factory=set)
    problems: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL - _END)
            playing = self.engines.open_generations()
            await asyncio.sleep(_END)
            for app in self.temper.apps:
                for service in app.services:
                    self._check_service(app, service)
            still = playing.keys() & self.engines.open_generations()
            names = Counter(_model_at(playing[generation]) for generation in still)
            for name, count in names.items():
                if count > self.slots * max(1, len(self.temper.apps)):
                    self.problems[f"{name}: {count} generations play for {self.slots} slots"] += 1

    def _check_service(self, app: OpenedApp, service: Service) -> None:
        queue = service.admission.queue
        if queue.served < 0:
            self.problems[f"{service.name}: {queue.served} running requests"] += 1
        if service.name in (NAMES[0], *MODELS) and queue.served > self.slots:
            problem = f"{service.name}: {queue.served} running requests for {self.slots} slots"
            self.problems[problem] += 1
        if any(load < 0 for load in loads_of(service)):
            self.problems[f"{service.name}: an engine with a load below 0"] += 1
        if queue.waiting:
            self._check_queue(app, queue)

    def _check_queue(self, app: OpenedApp, queue: WaitingQueue) -> None:
        board = app.board
        assert board is not None
        clients = {row.id: row.request_id for row in board.running_rows()}
        for ticket in queue.upcoming():
            self.waited.add(ticket.number)
            client = clients.get(board.name_of(ticket.number))
            if client is None:
                self.problems["a ticket waits although its request has ended"] += 1
            elif self.gone.get(client, CLOCK.now) + _LONGEST_WAIT < CLOCK.now:
                self.problems[f"{client} waits, but its client has disconnected"] += 1


def _model_at(host: str) -> str:
    """Return the name of the model that the engine at a host serves."""
    return next((name for name in MODELS if host.startswith(name)), NAMES[0])


def claims_of(service: Service) -> int:
    """Return the number of requests that use a managed model or wait until it is loaded."""
    fleet = service.fleet
    return len(fleet._leases) + fleet.swapping.waiting if fleet else 0  # noqa: SLF001 - at rest


def loads_of(service: Service) -> list[int]:
    """Return the number of running requests that the pool counts for each engine."""
    backend = service.backend
    return [member.running for member in backend.order("")] if isinstance(backend, Pool) else []
