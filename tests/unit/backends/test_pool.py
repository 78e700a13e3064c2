import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.breaker import BreakerState
from proxy.backends.client import BackendModel, ChatBackend, Description, Health, ReplyEvents
from proxy.backends.pool import Member, Pool, PoolTimeouts, order_members
from proxy.conversation.replies import (
    EventSink,
    PromptProgress,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import (
    BackendRefused,
    BackendReplyInvalid,
    BackendTimedOut,
    BackendUnavailable,
    ContextOverflow,
    InvalidRequest,
    TemperError,
)
from tests.fakes.backend import ScriptedBackend
from tests.fakes.passages import PASSAGE, relayed_by
from tests.fakes.upstream_requests import upstream_request
from tests.timeouts import TIMEOUT_SECONDS

KEY = "00000000000000aa"


def members(count: int = 3) -> list[Member]:
    """Return members in the order in which a pool tries them for the conversation `KEY`."""
    members_ = [Member(ScriptedBackend(name=f"http://{number}")) for number in range(count)]
    return order_members(members_, KEY, 0)


HI: list[ReplyEvent | TemperError] = [ReplyStarted("1"), TextDelta("Hi."), ReplyFinished("stop")]
HEADERS = {PREFIX_HEADER: "00000000000000aa"}
DOWN = BackendUnavailable("b", "cannot be reached")
UNREACHED = BackendUnavailable("b", "cannot be reached", is_unreached=True)
LOADING = BackendUnavailable("b", "is still loading", loading=True)


class FakeServers:
    """A pool of scripted members, in the order in which the pool tries them for `HEADERS`."""

    def __init__(self, *scripts: list[list[ReplyEvent | TemperError]], **pace: float) -> None:
        members = [ScriptedBackend(name=f"http://{number}") for number in range(len(scripts))]
        self.pool = Pool(members, PoolTimeouts(**pace))
        self.members: list[ScriptedBackend] = []
        for member, script in zip(self.order(), scripts, strict=True):
            backend = member.backend
            assert isinstance(backend, ScriptedBackend)
            backend.scripts = script
            self.members.append(backend)

    def order(self) -> list[Member]:
        return self.pool.order(HEADERS[PREFIX_HEADER])

    @property
    def request_counts(self) -> list[int]:
        return [len(member.upstream_requests) for member in self.members]


async def replied(backend: ChatBackend, request: UpstreamRequest | None = None) -> list[ReplyEvent]:
    async with aclosing(backend.stream(request or upstream_request(), HEADERS)) as reply:
        return [event async for batch in reply for event in batch]


async def test_equal_requests_without_the_prefix_header_are_sent_to_the_same_member() -> None:
    servers = FakeServers([HI] * 4, [HI] * 4)
    for _ in range(4):
        async with aclosing(servers.pool.stream(upstream_request(), {})) as reply:
            assert [event async for batch in reply for event in batch] == HI
    assert sorted(servers.request_counts) == [0, 4]


@pytest.mark.parametrize("error", [DOWN, LOADING])
async def test_a_request_marked_as_may_fail_is_sent_once_and_opens_no_breaker(
    error: TemperError,
) -> None:
    servers = FakeServers([HI, [error], [error]], [HI], load_wait=5.0)
    pin, spare = servers.pool.pin(), replace(upstream_request(), may_fail=True)
    await replied(pin)
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await replied(pin, spare)
    assert servers.request_counts == [3, 0]
    assert all(member.breaker.state(0) == "closed" for member in servers.order())
    assert all(member.running == 0 for member in servers.order())


class EndlessBackend(ScriptedBackend):
    """A member whose reply never ends."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        self.upstream_requests.append(upstream_request)
        try:
            yield (TextDelta("..."),)
            await asyncio.Event().wait()
        finally:
            self.closed += 1


async def test_a_full_member_is_skipped_until_it_has_a_free_slot() -> None:
    members = [
        EndlessBackend(name=f"http://{n}", description=Description(("m",), slots=1)) for n in (1, 2)
    ]
    pool = Pool(members)
    await pool.describe("m")
    running_reply = pool.stream(upstream_request(), HEADERS)
    await anext(running_reply)
    other = pool.stream(upstream_request(), HEADERS)
    await anext(other)
    assert [len(member.upstream_requests) for member in members] == [1, 1]
    first = pool.order(HEADERS[PREFIX_HEADER])[0]
    await running_reply.aclose()
    await other.aclose()
    assert [member.running for member in pool.order("")] == [0, 0]
    assert pool.order(HEADERS[PREFIX_HEADER])[0] is first
    assert sum(member.closed for member in members) == 2


def described(*descriptions: Description, process_count: int = 1) -> Description:
    members = [
        ScriptedBackend(name=f"http://{n}", description=description)
        for n, description in enumerate(descriptions)
    ]
    return asyncio.run(Pool(members, process_count=process_count).describe("m"))


def test_the_description_of_a_pool_has_the_sum_of_slots_and_the_smallest_window() -> None:
    big = Description(("m",), "qwen3", "template", slots=4, window=8192)
    small = Description(("m",), "qwen3", "template", slots=2, window=4096)
    away = Description(("m",), is_provisional=True)
    assert described(big, small) == Description(("m",), "qwen3", "template", slots=6, window=4096)
    assert described(away, small) == small
    assert described(away, away) == away
    assert described(big, Description(("m",))) == Description(
        ("m",), "qwen3", "template", window=8192
    )


def test_a_pool_lacks_a_feature_if_one_of_its_members_lacks_it() -> None:
    first, other = (Description(("m",), engine="vLLM", lacks=(word,)) for word in ("b", "a"))
    assert described(first, other) == Description(("m",), engine="vLLM", lacks=("a", "b"))


async def test_a_pool_returns_counts_and_models_of_one_member_but_the_best_health_of_all() -> None:
    servers = FakeServers([], [])
    for member in servers.members:
        member.counts = [7]
    pool = servers.pool
    assert await pool.count(upstream_request(), HEADERS) == 7
    assert await pool.count_texts(["a b"], HEADERS) == (2,)
    assert [model.id for model in await pool.models()] == ["one"]
    assert await pool.health() is Health.READY
    servers.members[0].state = Health.UNREACHABLE
    servers.members[1].state = Health.LOADING
    assert await pool.health() is Health.LOADING
    assert set(pool.name.split(", ")) == {"http://0", "http://1"}
    assert pool.pin().name == pool.name


async def test_the_model_list_comes_from_the_first_member_that_answers() -> None:
    class UnreachableBackend(ScriptedBackend):
        async def models(self) -> tuple[BackendModel, ...]:
            raise DOWN

    pool = Pool([UnreachableBackend(name="http://1"), ScriptedBackend(name="http://2")])
    assert [model.id for model in await pool.models()] == ["one"]
    with pytest.raises(BackendUnavailable):
        await Pool([UnreachableBackend(name="http://1")]).models()


def test_failed_health_checks_open_the_breaker_and_a_later_success_closes_it() -> None:
    now = 0.0
    backend = ScriptedBackend(state=Health.UNREACHABLE)
    pool = Pool([backend], clock=lambda: now)
    member = pool.order("")[0]

    async def state_after_check() -> BreakerState:
        await pool.check(member)
        return member.breaker.state(now)

    assert asyncio.run(state_after_check()) == "closed"
    assert asyncio.run(state_after_check()) == "open"
    backend.state = Health.READY
    assert asyncio.run(state_after_check()) == "open"
    now = 2.0
    assert asyncio.run(state_after_check()) == "closed"
    assert asyncio.run(state_after_check()) == "closed"


async def test_watch_members_checks_the_health_of_the_members() -> None:
    class WatchedBackend(ScriptedBackend):
        async def health(self) -> Health:
            was_checked.set()
            return Health.READY

    was_checked = asyncio.Event()
    pool = Pool([WatchedBackend(name="http://1")], PoolTimeouts(check=0.001))
    async with pool.watch_members(), asyncio.timeout(TIMEOUT_SECONDS):
        await was_checked.wait()


def test_a_forwarded_request_fails_over_only_before_its_first_byte() -> None:
    pool = Pool([ScriptedBackend(name=f"http://{number}") for number in range(2)])
    first, second = (member.backend for member in pool.order(""))
    assert isinstance(first, ScriptedBackend)
    assert isinstance(second, ScriptedBackend)
    first.pieces, second.pieces = [DOWN], [b"a", b"b"]
    assert asyncio.run(relayed_by(pool)) == b"ab"
    first.pieces = [b"a", DOWN]
    with pytest.raises(BackendUnavailable):
        asyncio.run(relayed_by(pool))
    assert (len(first.passages), len(second.passages)) == (2, 1)


async def test_prompts_with_the_same_beginning_are_sent_to_one_member() -> None:
    members = [ScriptedBackend(name=f"http://{number}", pieces=[b"."]) for number in range(4)]
    pool = Pool(members)

    async def ask(fields: dict[str, bytes], request: str) -> None:
        passage = replace(PASSAGE, fields=fields)
        async with aclosing(pool.relay(passage, {"x-request-id": request})) as pieces:
            assert [piece async for piece in pieces] == [b"."]

    beginning = b'"' + b"x" * 600
    for number in range(30):
        await ask({"prompt": beginning + b"%d" % number}, f"req_{number}")
    together = [len(member.passages) for member in members]
    for number in range(60):
        await ask({"input": b'"a"'}, f"req_{number}")
    spread = [len(member.passages) for member in members]
    assert sorted(together) == [0, 0, 0, 30]
    assert all(after > before for before, after in zip(together, spread, strict=True))


# `running` has a character for each member: how many of its two slots are in use, or "-" if its
# slots are unknown. `failures` has the number of failures that each member's breaker counted.
@pytest.mark.parametrize(
    ("running", "failures", "pinned", "now", "order"),
    [
        ("---", {}, None, 0, [0, 1, 2]),
        ("21-", {}, None, 0, [1, 2, 0]),
        ("222", {}, None, 0, [0, 1, 2]),
        ("---", {0: 2}, None, 1.0, [1, 2, 0]),
        ("---", {0: 2}, None, 2.0, [0, 1, 2]),
        ("--2", {}, 2, 0, [2, 0, 1]),
        ("--2", {2: 2}, 2, 1, [0, 1, 2]),
    ],
    ids=["hash", "full", "all full", "open breaker", "half-open", "pinned", "pinned and open"],
)
def test_order_members_sorts_by_breaker_then_pin_then_free_slots_then_hash(
    running: str, failures: dict[int, int], pinned: int | None, now: float, order: list[int]
) -> None:
    pool_members = members()
    for member, count in zip(pool_members, running, strict=True):
        if count != "-":
            member.slots, member.running = 2, int(count)
    for number, times in failures.items():
        for _ in range(times):
            pool_members[number].breaker.record_failure(0)
    pin = None if pinned is None else pool_members[pinned]
    assert [
        pool_members.index(item) for item in order_members(pool_members[::-1], KEY, now, pin)
    ] == order


NO = BackendRefused("b", 500, "no")
Scripts = list[list[list[ReplyEvent | TemperError]]]


@pytest.mark.parametrize(
    ("scripts", "times", "requests", "is_pinned"),
    [
        ([[HI] * 5, [], []], 5, [5, 0, 0], False),
        ([[[DOWN]], [HI], []], 1, [1, 1, 0], False),
        ([[[DOWN], HI], [HI, HI]], 2, [1, 2], True),
        ([[[DOWN], [DOWN], HI], [HI] * 3], 3, [2, 3], False),
        ([[[LOADING], HI], [[LOADING]]], 1, [2, 1], False),
        ([[[UNREACHED]], [[UNREACHED]], [HI]], 1, [1, 1, 1], False),
        ([[[DOWN]], [[UNREACHED]], [HI]], 1, [1, 1, 1], False),
    ],
    ids=[
        *("stays", "fails over", "a turn stays", "the breaker opens", "waits while all load"),
        *("two are not reached", "one fails, another is not reached"),
    ],
)
def test_a_request_is_sent_to_the_first_member_in_order_that_answers(
    scripts: Scripts, times: int, requests: list[int], *, is_pinned: bool
) -> None:
    servers = FakeServers(*scripts, load_wait=5.0, poll=0.001)
    turn = servers.pool.pin()
    for _ in range(times):
        assert asyncio.run(replied(turn if is_pinned else servers.pool)) == HI
    assert servers.request_counts == requests


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        LOADING,
        BackendReplyInvalid("b", "sent no valid reply"),
        *(BackendRefused("b", status, "busy") for status in (429, 502, 503)),
    ],
)
@pytest.mark.parametrize("progress", [[], [PromptProgress(1, 2, 0)]])
def test_a_member_that_fails_before_its_first_text_is_replaced(
    error: TemperError, progress: list[ReplyEvent]
) -> None:
    servers = FakeServers([[*progress, error]], [HI], [])
    turn = servers.pool.pin()
    assert asyncio.run(replied(turn)) == [*progress, *HI]
    assert (servers.request_counts, turn.name) == ([1, 1, 0], servers.members[1].name)


@pytest.mark.parametrize(
    ("scripts", "times", "requests", "is_healthy"),
    [
        ([[[BackendRefused("b", 400, "no")]], [HI]], 1, [1, 0], True),
        ([[[NO]] * 3, [HI]], 3, [3, 0], True),
        ([[[ContextOverflow("long", 5, 4)]] * 3, [HI]], 3, [3, 0], True),
        ([[[InvalidRequest("no")]], [HI]], 1, [1, 0], True),
        ([[[BackendTimedOut("b", "was silent")]], [HI]], 1, [1, 0], True),
        ([[[ReplyStarted("1"), DOWN]], [HI]], 1, [1, 0], True),
        ([[[DOWN]], [[DOWN]], [HI]], 1, [1, 1, 0], True),
        ([[[UNREACHED]], [[DOWN]], [[DOWN]], [HI]], 1, [1, 1, 1, 0], True),
        ([[[UNREACHED]]] * 3, 1, [1, 1, 1], True),
        ([[[LOADING]], [[LOADING]]], 1, [1, 1], True),
    ],
    ids=[
        *("refused", "failed", "too long", "invalid", "timed out", "after the first text"),
        *("two members at most", "two that are reached", "none is reached", "loads for too long"),
    ],
)
def test_an_error_is_raised_if_it_does_not_fail_over_or_occurs_at_two_members(
    scripts: Scripts, times: int, requests: list[int], *, is_healthy: bool
) -> None:
    servers = FakeServers(*scripts)
    for _ in range(times):
        with pytest.raises(TemperError):
            asyncio.run(replied(servers.pool))
    assert servers.request_counts == requests
    states = [member.breaker.state(0) for member in servers.order()]
    assert (states == ["closed"] * len(states)) is is_healthy
