"""The dashboard's feed: the whole state first, and then what changes, a few times a second.

Each watcher polls the board for changes. So a request costs the same with or without watchers, and
a slow watcher gets the whole state again.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from proxy.api.feed_events import Batch, Cards, InitialState, ModelCard, Pending, Sums, ToolCards
from proxy.errors import BackendFailed, InvalidRequest
from proxy.observability.board import Board
from proxy.observability.history import BUCKETS, STEP, CountsBySpan
from proxy.observability.peer_workers import SharedCounts
from proxy.observability.rows import OVER, PendingCall, ToolServerCard
from proxy.observability.sentences import cut
from proxy.processes.fleet import Condition
from proxy.processes.managed import Managed
from proxy.serving.services import Service, Services

if TYPE_CHECKING:  # nothing of it is imported where no tool server is configured
    from proxy.serving.tool_hosting import ToolHosting

MOST_WATCHERS = 16
PAUSE = 0.25  # seconds between two batches
_TOTALS_SECONDS = 1.0
_LOOK_SECONDS = 5.0  # between two looks at the models
_PATIENCE = 2.0  # seconds for a backend's answer
_FIRST_ROWS = 200
_MOST_CHANGED = 50  # rows of one batch; if more have changed the whole state is sent again,
_STATE_SECONDS = 1.0  # at most this often (seconds): nobody reads faster, and each row costs time
_LATEST = 3  # buckets that may have changed since they were sent last
_OUTSIDE = frozenset((OVER, "receiving", "loading", "queued"))


@dataclass(frozen=True, slots=True)
class About:
    """What does not change: whose page it is, and what it may do.

    It belongs to the worker with this `number`. With `keeps_exchanges` bodies can be seen.
    """

    version: str
    workers: int = 1
    number: int = 1
    read_only: bool = False
    keeps_exchanges: bool = False


class _Look(msgspec.Struct, frozen=True):
    """What a look at a model found."""

    state: str = "unknown"
    name: str = ""
    slots: int | None = None
    window: int | None = None


class Watching:
    """What pages are told of a board and of the models behind it; `pause` is in seconds."""

    def __init__(
        self,
        board: Board,
        services: Services,
        about: About,
        *,
        tools: "ToolHosting | None" = None,
        shared: SharedCounts | None = None,
        pause: float = PAUSE,
    ) -> None:
        self.board = board
        self.about = about
        self.tools = tools
        self._services = services
        self._shared = shared
        self._pause = pause
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._seen: dict[str, _Look] = {}

    @property
    def is_full(self) -> bool:
        """Whether nobody else may watch."""
        return self._watchers >= MOST_WATCHERS

    async def look(self) -> None:
        """Look at every model once."""
        await asyncio.gather(*map(self._look_at, self._services))

    def state(self) -> InitialState:
        """Return everything that a page needs at its start."""
        board, about = self.board, self.about
        return InitialState(
            version=about.version,
            instance=board.instance,
            workers=about.workers,
            worker=about.number,
            read_only=about.read_only,
            keeps_exchanges=about.keeps_exchanges,
            started=board.started,
            now=board.clock(),
            number=board.number,
            step=STEP,
            models=self.cards(),
            totals=self.totals(),
            points=board.points(BUCKETS),
            requests=board.latest(_FIRST_ROWS),
            tool_servers=self.tool_cards(),
            confirmations=self.pending(),
        )

    async def feed(self) -> AsyncGenerator[bytes, None]:
        """Stream events until whoever watches has gone."""
        with self._count_watcher():
            state = self.state()
            watcher = Watcher(self, state)
            yield _event("state", state)
            while True:
                await asyncio.sleep(self._pause)
                if events := watcher.news():
                    yield events

    @contextmanager
    def _count_watcher(self) -> Generator[None, None, None]:
        """Look at the models from time to time while anybody watches."""
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look_at(self, service: Service) -> None:
        before = self._seen.get(service.title, _Look())
        try:
            async with asyncio.timeout(_PATIENCE):
                state = await service.condition()
                found = msgspec.structs.replace(before, state=state.value)
                if state is Condition.LOADED:
                    known = await service.look_up("")
                    name = service.name or known.identity or known.model
                    found = _Look(state.value, name, service.parallel or known.slots, known.window)
        except (TimeoutError, BackendFailed, InvalidRequest):
            found = msgspec.structs.replace(before, state=Condition.FAILED.value)
        self._seen[service.title] = found

    def totals(self) -> CountsBySpan:
        """Return the totals of all workers' requests."""
        return self.board.totals(self._shared.others() if self._shared is not None else ())

    def cards(self) -> tuple[ModelCard, ...]:
        """Return a card for each model."""
        return tuple(map(self._card, self._services))

    def tool_cards(self) -> tuple[ToolServerCard, ...]:
        """Return a card for each tool server."""
        return self.tools.cards(self.board.tool_calls) if self.tools is not None else ()

    def pending(self) -> tuple[PendingCall, ...]:
        """Return the calls that wait for a person."""
        return self.tools.confirmations.pending if self.tools is not None else ()

    @property
    def asked(self) -> int:
        """The number of the last change of what waits for a person."""
        return self.tools.confirmations.number if self.tools is not None else 0

    def _card(self, service: Service) -> ModelCard:
        look, backend = self._seen.get(service.title, _Look()), service.backend
        line = service.admission.line
        managed = backend if isinstance(backend, Managed) else None
        return ModelCard(
            name=look.name or service.name or backend.name,
            title=service.title,
            backend=backend.name,
            state=look.state,
            problem=_problem(service, managed),
            restarts=managed.restarts if managed is not None else 0,
            busy=line.served,
            waiting=line.waiting,
            slots=look.slots,
            window=look.window,
            share=self._share(service.title, (look.slots or 1) * (look.window or 0)),
        )

    def _share(self, service: str, room: int) -> float | None:
        """Estimate which share of all the slots' room the prompts of running requests take."""
        if not room:
            return None
        running = (row for row in self.board.living() if row.phase not in _OUTSIDE)
        sent = sum(
            row.context.sent
            for row in running
            if row.context is not None and row.service == service
        )
        return round(min(1.0, sent / room), 4)


def _problem(service: Service, managed: Managed | None) -> str:
    if service.fleet is not None:
        return cut(service.fleet.problem(service.name))
    return cut(managed.problem) if managed is not None else ""


class Watcher:
    """What one page was sent last."""

    def __init__(self, watching: Watching, state: InitialState) -> None:
        self._watching = watching
        self._number, self._asked = state.number, watching.asked
        self._take(state)

    def news(self) -> bytes:
        """Return the events since the last call, b"" where there are none."""
        changes = self._watching.board.changes(self._number, _MOST_CHANGED)
        if changes.is_lost:
            return self._resync()
        self._number = changes.number
        events = [_event("requests", Batch(changes.number, changes.rows))] if changes.rows else []
        return b"".join((*events, *self._questions(), *self._sums()))

    def _questions(self) -> Generator[bytes, None, None]:
        """Return what waits for a person, if that has changed: people should not wait for it."""
        if self._asked != self._watching.asked:
            self._asked = self._watching.asked
            pending = Pending(self._watching.board.number, self._watching.pending())
            yield _event("confirmations", pending)

    def _resync(self) -> bytes:
        """Return the whole state, if the last one is not too recent."""
        if self._watching.board.clock() < self._state_due:
            return b"".join(self._questions())
        state = self._watching.state()
        self._take(state)
        return _event("state", state)

    def _take(self, state: InitialState) -> None:
        """Note that the page knows a state."""
        now = self._watching.board.clock()
        self._number = state.number
        self._summed = state.number, state.totals
        self._cards, self._tool_cards = state.models, state.tool_servers
        self._asked = self._watching.asked
        self._due = now + _TOTALS_SECONDS
        self._state_due = now + _STATE_SECONDS

    def _sums(self) -> Generator[bytes, None, None]:
        """Return what is told once a second, if it has changed."""
        now = self._watching.board.clock()
        if now < self._due:
            return
        self._due = now + _TOTALS_SECONDS
        board, cards, totals = self._watching.board, self._watching.cards(), self._watching.totals()
        if cards != self._cards:
            self._cards = cards
            yield _event("models", Cards(board.number, cards))
        tool_cards = self._watching.tool_cards()
        if tool_cards != self._tool_cards:
            self._tool_cards = tool_cards
            yield _event("tool_servers", ToolCards(board.number, tool_cards))
        if (board.number, totals) != self._summed:
            self._summed = board.number, totals
            sums = Sums(board.number, board.clock(), totals, board.points(_LATEST))
            yield _event("totals", sums)


def _event(name: str, value: msgspec.Struct) -> bytes:
    """Write an event; JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
