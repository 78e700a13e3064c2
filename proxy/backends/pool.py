"""Several servers of one model as one backend: a conversation stays with the server that caches it.

A hash of the conversation chooses the member (decision 0014). If this member fails before its first
content, the request is sent to the next member, once, and the client does not notice. If the member
fails later, only the caller can send the request again, after `PinnedMember.leave_failed`.

    rank(key)           [b, c, a]      the same order in every worker and replica
    order_members       [c, a, b]      b has no free slot, so it comes after c and a
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
    """One server of a pool; `slots` is the number of parallel requests, None if unknown."""

    backend: client.Backend
    breaker: Breaker = field(default_factory=Breaker)
    slots: int | None = None
    running: int = 0

    @property
    def has_free_slot(self) -> bool:
        """True if a further request would start at once."""
        return self.slots is None or self.running < self.slots


def order_members(
    members: Sequence[Member], key: str, now: float, pinned: Member | None = None
) -> list[Member]:
    """List the members for a conversation, the best first.

    The `pinned` member comes first, because it has the prompt cached. Members without free slots
    come after members with free slots. Members with an open breaker come last. They are not
    omitted, because one member has to be tried even if all breakers are open.
    """
    by_name = {member.backend.name: member for member in members}
    order = [by_name[name] for name in rank(key, list(by_name))]

    def reluctance(member: Member) -> int:
        if not member.breaker.allows(now):
            return 3
        if member is pinned:
            return 0
        return 1 if member.has_free_slot else 2

    return sorted(order, key=reluctance)


logger = logging.getLogger(__name__)

# The statuses of a busy (`_BUSY`) or broken server (`_BROKEN`): another member may answer instead.
_BUSY = 429
_BEGINNING = 512  # bytes at the beginning of a prompt, which identify it
_BROKEN = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class PoolTimeouts:
    """Times in seconds.

    `check` is the mean interval of health checks. While the members load their model, a request is
    sent again every `poll` seconds for up to `load_wait` seconds.
    """

    check: float = 5.0
    load_wait: float = 0.0
    poll: float = 0.5


class Pool:
    """Members that serve the same model under different addresses.

    `process_count` is the number of processes, in all replicas, that share the members. Each
    process uses an equal share of the slots.
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
        """Return a view of the pool for one turn; all attempts of the turn go to one member."""
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

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: client.Headers
    ) -> client.PromptTokens:
        member = self.order(_key(upstream_request, headers))[0]
        return await member.backend.prompt_tokens(upstream_request, headers)

    async def models(self) -> tuple[client.BackendModel, ...]:
        """List the models of the first member that answers; all members serve the same models."""
        failure: errors.BackendFailed | None = None
        for member in self.order(""):
            try:
                return await member.backend.models()
            except errors.BackendFailed as error:
                failure = error
        assert failure is not None  # noqa: S101 - a pool has members
        raise failure

    async def describe(self, model: str) -> client.Description:
        """Describe the common properties, with the sum of the slots; never raises."""
        described = await asyncio.gather(
            *(member.backend.describe(model) for member in self._members)
        )
        for member, description in zip(self._members, described, strict=True):
            if description.slots is not None:
                member.slots = max(1, description.slots // self._process_count)
        known = [description for description in described if not description.is_provisional]
        if not known:
            return described[0]
        slots = [description.slots for description in known if description.slots is not None]
        windows = [description.window for description in known if description.window is not None]
        return replace(
            known[0],
            # unknown if any member does not report its slots
            slots=sum(slots) if len(slots) == len(known) else None,
            window=min(windows, default=None),  # a conversation may move to any member
            lacks=tuple(sorted({name for description in known for name in description.lacks})),
        )

    async def health(self) -> client.Health:
        return client.best_health((await self.healths()).values())

    async def healths(self) -> dict[str, client.Health]:
        """Return each member's state by its name; never raises."""
        states = await asyncio.gather(*(member.backend.health() for member in self._members))
        names = [member.backend.name for member in self._members]
        return dict(zip(names, states, strict=True))

    def order(self, key: str, pinned: Member | None = None) -> list[Member]:
        return order_members(self._members, key, self.clock(), pinned)

    @asynccontextmanager
    async def watch_members(self) -> AsyncGenerator["Pool", None]:
        """Check the members' health in the background while the block runs."""
        tasks = [asyncio.create_task(self._watch(member)) for member in self._members]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, member: Member) -> None:
        while True:
            # a random interval, so that replicas do not check at the same moment
            await asyncio.sleep(self._timeouts.check * random.uniform(0.5, 1.5))  # noqa: S311
            await self.check(member)

    async def check(self, member: Member) -> None:
        """Check a member's health, unless its breaker is open."""
        previous_state = member.breaker.state(self.clock())
        if previous_state == "open":
            return
        if await member.backend.health() is client.Health.READY:
            if previous_state == "half-open":
                member.breaker.record_success()
                logger.info("%s: circuit breaker closed, the server is ready", member.backend.name)
        else:
            _note_failure(member, self.clock())


class PinnedMember:
    """The pool for one turn; all attempts of the turn go to the member that cached its prompt."""

    def __init__(self, pool: Pool, timeouts: PoolTimeouts) -> None:
        self._pool = pool
        self._timeouts = timeouts
        self._current: Member | None = None
        # the member that sent content last, so it has the prompt cached
        self._answered: Member | None = None
        # the member that failed in the last request, after the first content of the reply
        self._failed: Member | None = None
        self._abandoned: Member | None = None  # excluded by `leave_failed`

    @property
    def name(self) -> str:
        return self._pool.name if self._current is None else self._current.backend.name

    def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: client.Headers,
        sink: EventSink | None = None,
    ) -> client.ReplyEvents:
        return self._stream(
            _key(upstream_request, headers),
            lambda backend: backend.stream(upstream_request, headers, sink),
            lambda batch: not all(isinstance(event, PromptProgress) for event in batch),
            may_fail=upstream_request.may_fail,
        )

    def leave_failed(self) -> bool:
        """Exclude the member that failed after the first content of its reply; once per turn.

        Returns False, and excludes no member, if the last request did not fail in this way, if that
        request has already reached two members, or if every other member has an open breaker.
        """
        now, failed = self._pool.clock(), self._failed
        others = (member for member in self._pool.order("") if member is not failed)
        if failed is None or not any(member.breaker.allows(now) for member in others):
            return False
        self._abandoned, self._answered = failed, None
        return True

    def relay(self, request: client.PassthroughRequest, headers: client.Headers) -> client.Pieces:
        # requests whose prompts begin alike go to the same member; requests without a prompt are
        # spread over all members
        beginning = request.fields.get("prompt", b"")[:_BEGINNING].decode("utf-8", "replace")
        key = beginning or headers.get("x-request-id", "")
        return self._stream(key, lambda backend: backend.relay(request, headers), bool)

    async def _stream(
        self,
        key: str,
        send: client.Send[client.Part],
        has_content: Callable[[client.Part], bool],
        *,
        may_fail: bool = False,
    ) -> AsyncGenerator[client.Part, None]:
        """Send to the best member; if it fails before its first content, send to the next member.

        At most two members receive the request; a member that cannot be reached does not count. If
        the last member is loading its model, the request is sent again until `load_wait` is over.
        With `may_fail`, only one member receives the request.
        """
        clock = self._pool.clock
        deadline = clock() + self._timeouts.load_wait
        # at most two, because a request that crashes servers must not reach all of them
        is_first = not may_fail and self._abandoned is None
        most_members, members, received = (2 if is_first else 1), list[Member](), 0
        while True:
            members = members or self._order(key)
            self._current = member = members.pop(0)
            has_begun = False
            try:
                with _track_request(member, clock, counts_failure=not may_fail):
                    async with aclosing(send(member.backend)) as parts:
                        async for part in parts:
                            if not has_begun and has_content(part):
                                has_begun = True
                                self._answered = member
                                member.breaker.record_success()
                            yield part
                return
            except errors.BackendFailed as error:
                received += not _is_unreached(error)
                if received == most_members:
                    members.clear()
                may_wait = not may_fail and clock() < deadline
                if has_begun or not _should_resend(error, members, may_wait=may_wait):
                    self._failed = member if has_begun and received < most_members else None
                    raise
            if not members:
                received = 0
                await asyncio.sleep(self._timeouts.poll)

    def _order(self, key: str) -> list[Member]:
        members = self._pool.order(key, self._answered)
        return [member for member in members if member is not self._abandoned] or members


@contextmanager
def _track_request(
    member: Member, clock: Callable[[], float], *, counts_failure: bool
) -> Generator[None, None, None]:
    member.running += 1
    member.breaker.begin(clock())
    try:
        yield
    except errors.InvalidRequest:  # the request is invalid, so the server works
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
    except BaseException:  # canceled, or a bug in Temper: the server may be healthy
        member.breaker.record_abandoned()
        raise
    else:
        member.breaker.record_success()
    finally:
        member.running -= 1


def _note_failure(member: Member, now: float) -> None:
    """Count a failure of a member; log it if the failure opens the breaker."""
    previous_state = member.breaker.state(now)
    member.breaker.record_failure(now)
    if previous_state == "closed" and not member.breaker.allows(now):
        logger.warning("%s: circuit breaker open, sending no requests for now", member.backend.name)


def _is_unreached(error: errors.BackendFailed) -> bool:
    return isinstance(error, errors.BackendUnavailable) and error.is_unreached


def _should_resend(error: errors.BackendFailed, others: list[Member], *, may_wait: bool) -> bool:
    """Return whether to send a request again: to another server, or while the model is loading.

    A request that timed out is never sent again, because that would double the wait.
    """
    is_loading = isinstance(error, errors.BackendUnavailable) and error.loading
    if isinstance(error, errors.BackendRefused):
        is_elsewhere = error.status in _BROKEN or error.status == _BUSY
    else:
        is_elsewhere = isinstance(error, errors.BackendUnavailable | errors.BackendReplyInvalid)
    if others and is_elsewhere:
        logger.warning("%s Sending the request to the next server.", error)
        return True
    return not others and is_loading and may_wait


def _key(upstream_request: UpstreamRequest, headers: client.Headers) -> str:
    return headers.get(PREFIX_HEADER) or conversation_key(upstream_request.request, {})
