import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.breaker import BreakerState
from proxy.backends.client import BackendModel, ChatBackend, Description, Health, ReplyEvents
from proxy.backends.pool import Member, Pool, PoolTimeouts, order_members, pin
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
    BackendSpokeNonsense,
    BackendTimedOut,
    BackendUnavailable,
    ContextOverflow,
    InvalidRequest,
    TemperError,
)
from tests.fakes.backend import ScriptedBackend
from tests.fakes.passages import PASSAGE, relayed_by
from tests.fakes.upstream_requests import upstream_request
from tests.patience import PATIENCE_SECONDS

KEY = "00000000000000aa"


def members(count: int = 3) -> list[Member]:
    """Make members in the order in which the conversation would like them."""
    made = [Member(ScriptedBackend(name=f"http://{number}")) for number in range(count)]
    return order_members(made, KEY, 0)


def numbers(found: list[Member], all_members: list[Member]) -> list[int]:
    return [all_members.index(member) for member in found]


def test_the_hash_decides_where_all_is_well() -> None:
    those = members()
    assert numbers(order_members(those[::-1], KEY, 0), those) == [0, 1, 2]


def test_a_member_that_is_full_hands_over_to_the_next() -> None:
    those = members()
    those[0].slots = those[1].slots = 2
    those[0].running = 2
    those[1].running = 1
    assert numbers(order_members(those, KEY, 0), those) == [1, 2, 0]


def test_where_all_are_full_the_hash_decides_again() -> None:
    those = members()
    for member in those:
        member.slots = member.running = 1
    assert numbers(order_members(those, KEY, 0), those) == [0, 1, 2]


@pytest.mark.parametrize(("now", "order"), [(1.0, [1, 2, 0]), (2.0, [0, 1, 2])])
def test_a_member_that_is_spared_comes_last_until_it_may_be_tried(
    now: float, order: list[int]
) -> None:
    those = members()
    for _ in range(2):
        those[0].breaker.record_failure(0)
    assert numbers(order_members(those, KEY, now), those) == order


def test_a_turn_keeps_its_member_even_if_that_is_full() -> None:
    those = members()
    those[2].slots = those[2].running = 1
    assert numbers(order_members(those, KEY, 0, those[2]), those) == [2, 0, 1]
    for _ in range(2):
        those[2].breaker.record_failure(0)
    assert numbers(order_members(those, KEY, 1, those[2]), those) == [0, 1, 2]


HI: list[ReplyEvent | TemperError] = [ReplyStarted("1"), TextDelta("Hi."), ReplyFinished("stop")]
HEADERS = {PREFIX_HEADER: "00000000000000aa"}
DOWN = BackendUnavailable("b", "cannot be reached")
LOADING = BackendUnavailable("b", "is still loading", loading=True)


class FakeServers:
    """Scripted members, named so that the first is the one that the conversation likes best."""

    def __init__(self, *scripts: list[list[ReplyEvent | TemperError]], **pace: float) -> None:
        members = [ScriptedBackend(name=f"http://{number}") for number in range(len(scripts))]
        self.pool = Pool(members, PoolTimeouts(**pace))
        self.members: list[ScriptedBackend] = []
        for standing, script in zip(self.order(), scripts, strict=True):
            backend = standing.backend
            assert isinstance(backend, ScriptedBackend)
            backend.scripts = script
            self.members.append(backend)

    def order(self) -> list[Member]:
        return self.pool.order(HEADERS[PREFIX_HEADER])

    @property
    def asked(self) -> list[int]:
        return [len(member.upstream_requests) for member in self.members]


async def replied(backend: ChatBackend, asked: UpstreamRequest | None = None) -> list[ReplyEvent]:
    async with aclosing(backend.stream(asked or upstream_request(), HEADERS)) as reply:
        return [event async for batch in reply for event in batch]


def test_a_conversation_stays_with_one_member() -> None:
    servers = FakeServers([HI] * 5, [], [])
    for _ in range(5):
        assert asyncio.run(replied(servers.pool)) == HI
    assert servers.asked == [5, 0, 0]


async def test_without_the_header_the_question_tells_the_conversation() -> None:
    servers = FakeServers([HI] * 4, [HI] * 4)
    for _ in range(4):
        async with aclosing(servers.pool.stream(upstream_request(), {})) as reply:
            assert [event async for batch in reply for event in batch] == HI
    assert sorted(servers.asked) == [0, 4]


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        LOADING,
        BackendSpokeNonsense("b", "sent no valid reply"),
        BackendRefused("b", 429, "full"),
        BackendRefused("b", 502, "bad gateway"),
        BackendRefused("b", 503, "busy"),
    ],
)
@pytest.mark.parametrize("begun", [[], [PromptProgress(1, 2, 0)]])
def test_a_member_that_fails_before_it_says_anything_is_replaced(
    error: TemperError, begun: list[ReplyEvent]
) -> None:
    servers = FakeServers([[*begun, error]], [HI], [])
    pin = servers.pool.pin()

    assert asyncio.run(replied(pin)) == [*begun, *HI]
    assert servers.asked == [1, 1, 0]
    assert pin.name == servers.members[1].name


@pytest.mark.parametrize(
    "error",
    [
        BackendRefused("b", 400, "no"),
        BackendRefused("b", 500, "no"),
        BackendTimedOut("b", "was silent"),
        ContextOverflow("too long", 5, 4),
        InvalidRequest("no"),
    ],
)
def test_what_another_member_could_do_no_better_is_not_asked_again(error: TemperError) -> None:
    servers = FakeServers([[error]], [HI])

    with pytest.raises(type(error)):
        asyncio.run(replied(servers.pool))
    assert servers.asked == [1, 0]


@pytest.mark.parametrize("error", [DOWN, LOADING])
async def test_a_question_that_may_fail_goes_to_one_member_and_is_nobodys_failure(
    error: TemperError,
) -> None:
    servers = FakeServers([HI, [error], [error]], [HI], load_wait=5.0)
    pin, spare = servers.pool.pin(), replace(upstream_request(), may_fail=True)
    await replied(pin)
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await replied(pin, spare)
    assert servers.asked == [3, 0]
    assert all(member.breaker.state(0) == "closed" for member in servers.order())
    assert all(member.running == 0 for member in servers.order())


def test_what_has_begun_is_not_begun_again() -> None:
    servers = FakeServers([[ReplyStarted("1"), DOWN]], [HI])

    with pytest.raises(BackendUnavailable):
        asyncio.run(replied(servers.pool))
    assert servers.asked == [1, 0]


def test_a_question_costs_two_members_at_most() -> None:
    servers = FakeServers([[DOWN]], [[DOWN]], [HI])

    with pytest.raises(BackendUnavailable):
        asyncio.run(replied(servers.pool))
    assert servers.asked == [1, 1, 0]


async def test_a_turn_stays_where_it_was_answered() -> None:
    servers = FakeServers([[DOWN], HI], [HI, HI])
    pin = servers.pool.pin()
    await replied(pin)
    await replied(pin)
    assert servers.asked == [1, 2]


async def test_a_member_that_failed_twice_is_spared() -> None:
    servers = FakeServers([[DOWN], [DOWN], HI], [HI] * 3)
    for _ in range(3):
        await replied(servers.pool)
    assert servers.asked == [2, 3]


@pytest.mark.parametrize("error", [BackendRefused("b", 500, "no"), ContextOverflow("long", 5, 4)])
def test_a_clients_fault_is_not_held_against_a_member(error: TemperError) -> None:
    servers = FakeServers([[error]] * 3, [HI])

    for _ in range(3):
        with pytest.raises(type(error)):
            asyncio.run(replied(servers.pool))
    assert all(member.breaker.state(0) == "closed" for member in servers.order())
    assert servers.asked == [3, 0]


class Endless(ScriptedBackend):
    """A member that begins and never ends."""

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


async def test_a_member_at_its_capacity_hands_over_and_is_asked_again_when_it_has_room() -> None:
    members = [
        Endless(name=f"http://{n}", description=Description(("m",), slots=1)) for n in (1, 2)
    ]
    pool = Pool(members)
    await pool.describe("m")
    held = pool.stream(upstream_request(), HEADERS)
    await anext(held)
    other = pool.stream(upstream_request(), HEADERS)
    await anext(other)
    assert [len(member.upstream_requests) for member in members] == [1, 1]
    first = pool.order(HEADERS[PREFIX_HEADER])[0]
    await held.aclose()
    await other.aclose()
    assert [member.running for member in pool.order("")] == [0, 0]
    assert pool.order(HEADERS[PREFIX_HEADER])[0] is first
    assert sum(member.closed for member in members) == 2


def test_while_all_load_a_question_waits() -> None:
    servers = FakeServers([[LOADING], HI], [[LOADING]], load_wait=5.0, poll=0.001)

    assert asyncio.run(replied(servers.pool)) == HI
    assert servers.asked == [2, 1]


def test_who_loads_for_too_long_is_no_longer_waited_for() -> None:
    servers = FakeServers([[LOADING]], [[LOADING]])

    with pytest.raises(BackendUnavailable):
        asyncio.run(replied(servers.pool))


def described(*told: Description, process_count: int = 1) -> Description:
    members = [ScriptedBackend(name=f"http://{n}", description=one) for n, one in enumerate(told)]
    return asyncio.run(Pool(members, process_count=process_count).describe("m"))


def test_the_slots_add_up_and_the_smallest_window_counts() -> None:
    big = Description(("m",), "qwen3", "template", slots=4, window=8192)
    small = Description(("m",), "qwen3", "template", slots=2, window=4096)
    away = Description(("m",), is_provisional=True)
    assert described(big, small) == Description(("m",), "qwen3", "template", slots=6, window=4096)
    assert described(away, small) == small
    assert described(away, away) == away
    assert described(big, Description(("m",))) == Description(
        ("m",), "qwen3", "template", window=8192
    )


def test_what_one_member_lacks_the_pool_lacks() -> None:
    one, other = (Description(("m",), engine="vLLM", lacks=(word,)) for word in ("b", "a"))
    assert described(one, other) == Description(("m",), engine="vLLM", lacks=("a", "b"))


async def test_members_are_counted_listed_and_felt_together() -> None:
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


async def test_the_list_of_models_comes_from_whoever_answers() -> None:
    class Gone(ScriptedBackend):
        async def models(self) -> tuple[BackendModel, ...]:
            raise DOWN

    pool = Pool([Gone(name="http://1"), ScriptedBackend(name="http://2")])
    assert [model.id for model in await pool.models()] == ["one"]
    with pytest.raises(BackendUnavailable):
        await Pool([Gone(name="http://1")]).models()


def test_a_member_that_does_not_feel_well_is_spared_and_comes_back() -> None:
    now = 0.0
    backend = ScriptedBackend(state=Health.UNREACHABLE)
    pool = Pool([backend], clock=lambda: now)
    member = pool.order("")[0]

    async def state_after_a_look() -> BreakerState:
        await pool.check(member)
        return member.breaker.state(now)

    assert asyncio.run(state_after_a_look()) == "closed"
    assert asyncio.run(state_after_a_look()) == "open"
    backend.state = Health.READY
    assert asyncio.run(state_after_a_look()) == "open"
    now = 2.0
    assert asyncio.run(state_after_a_look()) == "closed"
    assert asyncio.run(state_after_a_look()) == "closed"


async def test_members_are_looked_after_in_the_background() -> None:
    class Watched(ScriptedBackend):
        async def health(self) -> Health:
            looked.set()
            return Health.READY

    looked = asyncio.Event()
    pool = Pool([Watched(name="http://1")], PoolTimeouts(check=0.001))
    async with pool.watch_members(), asyncio.timeout(PATIENCE_SECONDS):
        await looked.wait()


def test_only_a_pool_has_seats() -> None:
    alone = ScriptedBackend()
    assert pin(alone) is alone
    assert pin(Pool([alone])) is not alone


def test_what_is_passed_on_goes_to_the_next_member_where_one_fails() -> None:
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


async def test_prompts_that_begin_alike_stay_with_one_member_and_others_are_spread() -> None:
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
    (together, spread) = together, [len(member.passages) for member in members]
    assert sorted(together) == [0, 0, 0, 30]
    assert all(after > before for before, after in zip(together, spread, strict=True))
