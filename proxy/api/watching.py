"""The dashboard's feed: first the whole state, then the changes, a few times per second.

The feed of each page polls the board, so requests do not have to notify pages. A page that reads
too slowly gets the whole state again.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import msgspec

from proxy import bounds
from proxy.api import feed_events
from proxy.errors import BackendFailed, InvalidRequest
from proxy.observability.board import Board
from proxy.observability.history import BUCKETS, STEP, CountsBySpan, totals_of
from proxy.observability.peer_workers import SharedCounts
from proxy.observability.rows import OVER, PendingCall, ToolServerCard
from proxy.observability.sentences import cut
from proxy.processes.managed import ManagedBackend
from proxy.profiles.tuned import describe_tuned
from proxy.serving.services import Service, Services

if TYPE_CHECKING:  # at runtime, `proxy.mcp` is imported only if a tool server is configured
    from proxy.mcp.hosting import ToolHosting

MOST_WATCHERS = bounds.FEEDS
PAUSE = 0.25  # seconds between two batches
_TOTALS_SECONDS = 1.0
_LOOK_SECONDS = 5.0  # seconds between two look-ups of the models
_LOOKUP_SECONDS = 2.0  # seconds to wait for a backend's answer
_FIRST_ROWS = 200  # rows in the whole state; the page loads older rows itself, at quiet times
_MOST_CHANGED = 50  # rows in one batch; after more changes, the whole state is sent again
_STATE_SECONDS = 1.0  # at least this time passes between two whole states
# the number of latest buckets of the history that are sent again, because their counts may change
_LATEST = 3
_PHASES_WITHOUT_SLOT = frozenset((OVER, "receiving", "loading", "queued"))


class _Look(msgspec.Struct, frozen=True):
    """The state of a model when it was last looked up."""

    state: str = "unknown"
    name: str = ""
    slots: int | None = None
    window: int | None = None
    tuned: str = ""
    lacks: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Watching:
    """Feeds pages with the state of the board, the models and the tool servers.

    A feed checks for changes every `pause` seconds.
    """

    board: Board
    services: Services
    about: feed_events.About
    _: KW_ONLY
    tools: "ToolHosting | None" = None
    shared: SharedCounts | None = None
    pause: float = PAUSE
    _watchers: int = 0
    _looking: asyncio.Task[None] | None = None
    _looks: dict[str, _Look] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return self._watchers >= MOST_WATCHERS

    async def look(self) -> None:
        """Look up the state of every model."""
        await asyncio.gather(*map(self._look_at, self.services))

    def state(self) -> feed_events.InitialState:
        board = self.board
        return feed_events.InitialState(
            **msgspec.structs.asdict(self.about),
            instance=board.instance,
            started=board.started,
            now=board.clock(),
            number=board.number,
            step=STEP,
            models=self.cards(),
            totals=self.totals(),
            points=board.history.points(board.clock(), BUCKETS),
            requests=board.latest(_FIRST_ROWS),
            tool_servers=self.tool_cards(),
            confirmations=self.pending(),
        )

    async def feed(self) -> AsyncGenerator[bytes, None]:
        """Stream events until the page disconnects."""
        state = self.state()
        watcher = Watcher(self, state)
        yield _event("state", state)
        while True:
            await asyncio.sleep(self.pause)
            if events := watcher.pending_events():
                yield events

    @contextmanager
    def count_watcher(self) -> Generator[None, None, None]:
        """Count a page while the block runs; models are looked up while there are pages."""
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _poll(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look_at(self, service: Service) -> None:
        before = self._looks.get(service.title, _Look())
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                state = await service.condition()
                look = msgspec.structs.replace(before, state=state)
                if state == "loaded":  # a look-up would load any other model
                    known = await service.look_up("")
                    name = service.name or known.identity or known.model
                    if not name and (name := await service.models.first_listed()):
                        known = await service.look_up(name)  # for an engine with several models
                    slots, tuned = service.parallel or known.slots, describe_tuned(known.tuned)
                    look = _Look(state, name, slots, known.window, tuned, known.lacks)
        except (TimeoutError, BackendFailed, InvalidRequest):
            look = msgspec.structs.replace(before, state="failed")
        self._looks[service.title] = look

    def totals(self) -> CountsBySpan:
        others = self.shared.others() if self.shared is not None else ()
        return totals_of((self.board.history.counts(), *others), self.board.clock())

    def cards(self) -> tuple[feed_events.ModelCard, ...]:
        return tuple(map(self._card, self.services))

    def tool_cards(self) -> tuple[ToolServerCard, ...]:
        return self.tools.cards(self.board.tool_calls) if self.tools is not None else ()

    def pending(self) -> tuple[PendingCall, ...]:
        return self.tools.confirmations.pending if self.tools is not None else ()

    @property
    def confirmation_changes(self) -> int:
        """The sequence number of the latest change to the pending confirmations."""
        return self.tools.confirmations.number if self.tools is not None else 0

    def _card(self, service: Service) -> feed_events.ModelCard:
        look, backend = self._looks.get(service.title, _Look()), service.backend
        queue = service.admission.queue
        managed = backend if isinstance(backend, ManagedBackend) else None
        problem = managed.problem if managed is not None else ""
        if service.fleet is not None:
            problem = service.fleet.problem(service.name)
        return feed_events.ModelCard(
            name=look.name or service.name or backend.name,
            title=service.title,
            backend=backend.name,
            state=look.state,
            presets=tuple(service.presets),
            problem=cut(problem),
            restarts=managed.restarts if managed is not None else 0,
            busy=queue.served,
            waiting=queue.waiting,
            slots=look.slots,
            window=look.window,
            share=self._share(service.title, (look.slots or 1) * (look.window or 0)),
            tuned=look.tuned,
            lacks=look.lacks,
            queue=tuple(self.board.name_of(ticket.number) for ticket in queue.upcoming()),
        )

    def _share(self, service: str, capacity: int) -> float | None:
        """Estimate how much of the slots' context running prompts occupy, as a fraction."""
        if not capacity:
            return None
        rows = self.board.running_rows()
        running = (row for row in rows if row.phase not in _PHASES_WITHOUT_SLOT)
        contexts = (row.context for row in running if row.service == service)
        sent = sum(context.sent for context in contexts if context is not None)
        return round(min(1.0, sent / capacity), 4)


class Watcher:
    """One page that follows the feed: remembers the values that were sent, and encodes changes."""

    def __init__(self, watching: Watching, state: feed_events.InitialState) -> None:
        self._watching = watching
        self._remember(state)

    def _remember(self, state: feed_events.InitialState) -> None:
        now = self._watching.board.clock()
        self._number = state.number
        self._known: dict[str, object] = {
            "models": state.models,
            "tool_servers": state.tool_servers,
            "totals": (state.number, state.totals),
            "confirmations": self._watching.confirmation_changes,
        }
        self._due = now + _TOTALS_SECONDS
        self._state_due = now + _STATE_SECONDS

    def pending_events(self) -> bytes:
        """Return the events since the last call, b"" if nothing has changed."""
        changes = self._watching.board.changes(self._number, _MOST_CHANGED)
        if changes.is_lost:
            return self._resync()
        self._number = changes.number
        events = (
            [_event("requests", feed_events.Batch(changes.number, changes.rows))]
            if changes.rows
            else []
        )
        return b"".join((*events, *self._confirmations(), *self._totals()))

    def _is_new(self, name: str, value: object) -> bool:
        """Store a value; return whether it differs from the last value that was sent."""
        before, self._known[name] = self._known[name], value
        return before != value

    def _resync(self) -> bytes:
        """Return the whole state, unless it was sent less than a second ago.

        Without this limit, each page of a busy server would get its large state four times per
        second.
        """
        if self._watching.board.clock() < self._state_due:
            return b"".join(self._confirmations())
        state = self._watching.state()
        self._remember(state)
        return _event("state", state)

    def _confirmations(self) -> Generator[bytes, None, None]:
        """Yield the pending confirmations immediately after a change."""
        watching = self._watching
        if self._is_new("confirmations", watching.confirmation_changes):
            yield _event(
                "confirmations", feed_events.Pending(watching.board.number, watching.pending())
            )

    def _totals(self) -> Generator[bytes, None, None]:
        """Yield the models, tool servers and totals that have changed, at most once a second."""
        watching, board = self._watching, self._watching.board
        now = board.clock()
        if now < self._due:
            return
        self._due = now + _TOTALS_SECONDS
        if self._is_new("models", cards := watching.cards()):
            yield _event("models", feed_events.Cards(board.number, cards))
        if self._is_new("tool_servers", servers := watching.tool_cards()):
            yield _event("tool_servers", feed_events.ToolCards(board.number, servers))
        if self._is_new("totals", (board.number, totals := watching.totals())):
            points = board.history.points(now, _LATEST)
            yield _event("totals", feed_events.Sums(board.number, now, totals, points))


def _event(name: str, value: msgspec.Struct) -> bytes:
    """Write an event; compact JSON contains no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
