"""Several servers of one model as one backend: conversations stay where their prompt is cached.

A hash of the conversation chooses the member. If it fails before the first byte, the question goes
to the next member, once, unseen by the client. The pool does not know a question's content.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from proxy import errors
from proxy.backends import client
from proxy.backends.affinity import PREFIX_HEADER, conversation_key, rank
from proxy.backends.breaker import Breaker
from proxy.conversation.replies import EventSink, PromptProgress
from proxy.conversation.requests import UpstreamRequest


@dataclass(eq=False, slots=True)
class Member:
    """One server of a pool; `slots` is how many requests it runs at once, None if unknown."""

    backend: client.Backend
    breaker: Breaker = field(default_factory=Breaker)
    slots: int | None = None
    running: int = 0

    @property
    def has_room(self) -> bool:
        """Whether it would work on a request at once."""
        return self.slots is None or self.running < self.slots


def order_members(
    members: Sequence[Member], key: str, now: float, pinned: Member | None = None
) -> list[Member]:
    """List the members to ask for a conversation, the best first.

    The member that is `pinned` keeps the turn, for its cache. A full one hands over to the next.
    Members with an open breaker come last: if all are open, one still has to be asked.
    """
    by_name = {member.backend.name: member for member in members}
    order = [by_name[name] for name in rank(key, list(by_name))]

    def reluctance(member: Member) -> int:
        if not member.breaker.allows(now):
            return 3
        if member is pinned:
            return 0
        return 1 if member.has_room else 2

    return sorted(order, key=reluctance)


logger = logging.getLogger(__name__)

_BUSY = 429
_BEGINNING = 512  # bytes of a prompt
_BROKEN = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class PoolTimeouts:
    """How often members are looked at, and how long requests wait while all load, in seconds."""

    check: float = 5.0
    load_wait: float = 0.0
    poll: float = 0.5


class Pool:
    """Members that serve the same model under different addresses.

    `process_count` processes, of all replicas, share the members, so each uses its part of the
    slots.
    """

    def __init__(
        self,
        members: Sequence[client.Backend],
        timeouts: PoolTimeouts | None = None,
        *,
        process_count: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = [Member(backend) for backend in members]
        self._timeouts = timeouts or PoolTimeouts()
        self._process_count = process_count
        self.clock = clock

    @property
    def name(self) -> str:
        return ", ".join(member.backend.name for member in self._members)

    def pin(self) -> "PinnedMember":
        """Make a place for one turn: all its questions go to one member."""
        return PinnedMember(self, self._timeouts)

    def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: client.Headers,
        sink: EventSink | None = None,
    ) -> client.ReplyEvents:
        return self.pin().stream(upstream_request, headers, sink)

    def relay(self, request: client.PassthroughRequest, headers: client.Headers) -> client.Pieces:
        return self.pin().relay(request, headers)

    async def count(self, upstream_request: UpstreamRequest, headers: client.Headers) -> int | None:
        member = self.order(_key(upstream_request, headers))[0]
        return await member.backend.count(upstream_request, headers)

    async def count_texts(
        self, texts: Iterable[str], headers: client.Headers
    ) -> tuple[int, ...] | None:
        member = self.order(headers.get(PREFIX_HEADER, ""))[0]
        return await member.backend.count_texts(texts, headers)

    async def models(self) -> tuple[client.BackendModel, ...]:
        """List the models that all members are for, as the first that answers does."""
        failure: errors.BackendFailed | None = None
        for member in self.order(""):
            try:
                return await member.backend.models()
            except errors.BackendFailed as error:
                failure = error
        assert failure is not None  # noqa: S101 - a pool has members
        raise failure

    async def describe(self, model: str) -> client.Description:
        """Describe what the members have in common, with all their slots; never raises."""
        described = await asyncio.gather(
            *(member.backend.describe(model) for member in self._members)
        )
        for member, one in zip(self._members, described, strict=True):
            if one.slots is not None:
                member.slots = max(1, one.slots // self._process_count)
        known = [one for one in described if not one.is_provisional]
        if not known:
            return described[0]
        slots = [one.slots for one in known if one.slots is not None]
        windows = [one.window for one in known if one.window is not None]
        return replace(
            known[0],
            slots=sum(slots) if len(slots) == len(known) else None,
            window=min(windows, default=None),
            lacks=tuple(sorted({word for one in known for word in one.lacks})),
        )

    async def health(self) -> client.Health:
        return client.best_health((await self.healths()).values())

    async def healths(self) -> dict[str, client.Health]:
        """Return each member's state by its name; never raises."""
        states = await asyncio.gather(*(member.backend.health() for member in self._members))
        return {one.backend.name: state for one, state in zip(self._members, states, strict=True)}

    def order(self, key: str, pinned: Member | None = None) -> list[Member]:
        return order_members(self._members, key, self.clock(), pinned)

    @asynccontextmanager
    async def watch_members(self) -> AsyncGenerator["Pool", None]:
        """Look after the members' health while the block runs."""
        tasks = [asyncio.create_task(self._watch(member)) for member in self._members]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, member: Member) -> None:
        while True:
            # replicas must not ask all at the same moment
            await asyncio.sleep(self._timeouts.check * random.uniform(0.5, 1.5))  # noqa: S311
            await self.check(member)

    async def check(self, member: Member) -> None:
        """Ask a member for its health, unless its breaker is open."""
        before = member.breaker.state(self.clock())
        if before == "open":
            return
        if await member.backend.health() is client.Health.READY:
            if before == "half-open":
                member.breaker.record_success()
                logger.info("%s is back", member.backend.name)
        else:
            _note_failure(member, self.clock())


class PinnedMember:
    """One turn's place at a pool: what it asks again goes to the member that has its prompt."""

    def __init__(self, pool: Pool, timeouts: PoolTimeouts) -> None:
        self._pool = pool
        self._timeouts = timeouts
        self._asked: Member | None = None
        self._answered: Member | None = None

    @property
    def name(self) -> str:
        return self._pool.name if self._asked is None else self._asked.backend.name

    def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: client.Headers,
        sink: EventSink | None = None,
    ) -> client.ReplyEvents:
        return self._ask_until_loaded(
            _key(upstream_request, headers),
            lambda backend: backend.stream(upstream_request, headers, sink),
            lambda batch: not all(isinstance(event, PromptProgress) for event in batch),
            may_fail=upstream_request.may_fail,
        )

    def relay(self, request: client.PassthroughRequest, headers: client.Headers) -> client.Pieces:
        # prompts are told apart by how they begin; what has none is spread
        beginning = request.fields.get("prompt", b"")[:_BEGINNING].decode("utf-8", "replace")
        key = beginning or headers.get("x-request-id", "")
        return self._ask_until_loaded(key, lambda backend: backend.relay(request, headers), bool)

    async def _ask_until_loaded(
        self,
        key: str,
        put: client.Put[client.Part],
        says_something: Callable[[client.Part], bool],
        *,
        may_fail: bool = False,
    ) -> AsyncGenerator[client.Part, None]:
        """Ask two members, and again while all load their model; one, once, if it `may_fail`."""
        clock = self._pool.clock
        deadline = clock() + self._timeouts.load_wait
        while True:
            asking = self._with_failover(key, put, says_something, may_fail=may_fail)
            try:
                async with aclosing(asking) as parts:
                    async for part in parts:
                        yield part
            except errors.BackendUnavailable as error:
                if may_fail or not error.loading or clock() >= deadline:
                    raise
                await asyncio.sleep(self._timeouts.poll)
            else:
                return

    async def _with_failover(
        self,
        key: str,
        put: client.Put[client.Part],
        says_something: Callable[[client.Part], bool],
        *,
        may_fail: bool,
    ) -> AsyncGenerator[client.Part, None]:
        """Ask the best member, and the next one if that fails before it says anything."""
        order = self._pool.order(key, self._answered)[: 1 if may_fail else None]
        for is_last, member in zip((len(order) == 1, True), order, strict=False):
            self._asked = member
            has_begun = False
            try:
                with _track_request(member, self._pool.clock, counts_failure=not may_fail):
                    async with aclosing(put(member.backend)) as parts:
                        async for part in parts:
                            if not has_begun and says_something(part):
                                has_begun = True
                                self._answered = member
                                member.breaker.record_success()
                            yield part
            except errors.BackendFailed as error:
                if has_begun or is_last or not _may_be_asked_elsewhere(error):
                    raise
                logger.warning("%s Asking the next server.", error)
            else:
                return


def pin(backend: client.Backend) -> client.ChatBackend:
    """Return the backend for one turn."""
    return backend.pin() if isinstance(backend, Pool) else backend


@contextmanager
def _track_request(
    member: Member, clock: Callable[[], float], *, counts_failure: bool
) -> Generator[None, None, None]:
    member.running += 1
    member.breaker.begin(clock())
    try:
        yield
    except errors.InvalidRequest:
        member.breaker.record_success()
        raise
    except errors.BackendFailed as error:
        if isinstance(error, errors.BackendRefused) and error.status not in _BROKEN:
            member.breaker.record_success()
        elif not counts_failure:
            member.breaker.record_abandoned()
        else:
            _note_failure(member, clock())
        raise
    except BaseException:
        member.breaker.record_abandoned()
        raise
    else:
        member.breaker.record_success()
    finally:
        member.running -= 1


def _note_failure(member: Member, now: float) -> None:
    """Count a failure of a member; log it if the member is not asked from now on."""
    before = member.breaker.state(now)
    member.breaker.record_failure(now)
    if before == "closed" and not member.breaker.allows(now):
        logger.warning("%s is not asked for a while", member.backend.name)


def _may_be_asked_elsewhere(error: errors.BackendFailed) -> bool:
    """Return whether to try another server; a timeout is not tried twice."""
    if isinstance(error, errors.BackendRefused):
        return error.status in _BROKEN or error.status == _BUSY
    return isinstance(error, errors.BackendUnavailable | errors.BackendSpokeNonsense)


def _key(upstream_request: UpstreamRequest, headers: client.Headers) -> str:
    return headers.get(PREFIX_HEADER) or conversation_key(upstream_request.request, {})
