import asyncio
from collections.abc import Coroutine
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from proxy.errors import KeyReused, StateUnavailable
from proxy.state.claims import Claims, ClaimTimes, OwnClaim, StoredAnswer
from proxy.state.sealing import Sealing
from tests.fakes.shared_store import SharedStore
from tests.patience import until

Result = TypeVar("Result")

NAME = ("chat", "us", "order-1")
ASKED, OTHER = b"asked", b"something else"
SECRET, OLD = "a-secret-of-several-words", "the-one-before-this-one"
HEADERS = [(b"content-type", b"application/json")]
REPLICAS = ("a", "b", "c")
TIMES = ClaimTimes()


def done(work: Coroutine[object, object, Result]) -> Result:
    """Run what never has to wait."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("it waits")


def claims(
    store: SharedStore,
    replica: str = "a",
    times: ClaimTimes | None = None,
    *,
    secrets: tuple[str, ...] = (SECRET,),
) -> Claims:
    return Claims(store, sealing(secrets), replica, times or TIMES)


@cache
def sealing(secrets: tuple[str, ...]) -> Sealing:
    return Sealing(secrets, "temper")


def owned(found: object) -> OwnClaim:
    assert isinstance(found, OwnClaim)
    return found


def test_the_first_owns_a_key_and_the_others_come_again_for_its_answer() -> None:
    store = SharedStore()
    own = owned(done(claims(store).attempt(NAME, ASKED)))
    assert done(claims(store, "b").attempt(NAME, ASKED)) is None
    assert done(own.finish(HEADERS, b"{}")) is True
    assert done(claims(store, "b").attempt(NAME, ASKED)) == StoredAnswer("a", ASKED, HEADERS, b"{}")
    store.now += TIMES.answer
    assert isinstance(done(claims(store, "b").attempt(NAME, ASKED)), OwnClaim)


@pytest.mark.parametrize("is_over", [False, True], ids=["claimed", "answered"])
def test_a_key_of_another_request_is_refused(is_over: bool) -> None:
    store = SharedStore()
    own = owned(done(claims(store).attempt(NAME, ASKED)))
    if is_over:
        done(own.finish(HEADERS, b"{}"))
    with pytest.raises(KeyReused):
        done(claims(store, "b").attempt(NAME, OTHER))


def test_a_key_that_was_released_is_free() -> None:
    store = SharedStore()
    done(owned(done(claims(store).attempt(NAME, ASKED))).release())
    assert isinstance(done(claims(store, "b").attempt(NAME, OTHER)), OwnClaim)


def test_an_owner_that_is_late_leaves_the_claim_and_the_answer_of_another_alone() -> None:
    store = SharedStore()
    late = owned(done(claims(store).attempt(NAME, ASKED)))
    store.now += TIMES.claim
    own = owned(done(claims(store, "b").attempt(NAME, ASKED)))
    assert done(late.renew()) is False
    done(late.release())
    assert done(late.finish(HEADERS, b"late")) is False
    assert done(own.finish(HEADERS, b"in time")) is True
    assert done(late.finish(HEADERS, b"late")) is False
    found = done(claims(store).attempt(NAME, ASKED))
    assert isinstance(found, StoredAnswer)
    assert found.body == b"in time"


def test_an_answer_counts_that_comes_when_its_claim_has_run_out_unnoticed() -> None:
    store = SharedStore()
    own = owned(done(claims(store).attempt(NAME, ASKED)))
    store.now += TIMES.claim
    assert done(own.finish(HEADERS, b"{}")) is True
    assert isinstance(done(claims(store, "b").attempt(NAME, ASKED)), StoredAnswer)


def test_with_another_secret_nothing_is_there() -> None:
    store = SharedStore()
    done(owned(done(claims(store).attempt(NAME, ASKED))).finish(HEADERS, b"{}"))
    stranger = claims(store, "b", secrets=(OLD,))
    assert isinstance(done(stranger.attempt(NAME, ASKED)), OwnClaim)


def test_what_was_answered_under_the_secret_before_is_still_the_answer() -> None:
    store = SharedStore()
    done(owned(done(claims(store, secrets=(OLD,)).attempt(NAME, ASKED))).finish(HEADERS, b"{}"))
    changed = claims(store, "b", secrets=(SECRET, OLD))
    assert isinstance(done(changed.attempt(NAME, ASKED)), StoredAnswer)
    assert isinstance(done(changed.attempt(("chat", "us", "order-2"), ASKED)), OwnClaim)


@pytest.mark.parametrize("is_sealed", [False, True], ids=["by a stranger", "by another version"])
def test_what_nobody_can_read_makes_way(is_sealed: bool) -> None:
    store = SharedStore()
    place = Sealing((SECRET,), "temper").entries("key", *NAME)[0]
    body = place.seal(b"\x93\x01\x02", b"n" * 12) if is_sealed else b"nonsense"
    store.kept[place.name] = (body, 1000.0)
    assert done(claims(store).attempt(NAME, ASKED)) is None
    assert isinstance(done(claims(store).attempt(NAME, ASKED)), OwnClaim)


async def test_whoever_waits_gets_the_answer_when_there_is_one() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001)
    own = owned(await claims(store, times=times).settle(NAME, ASKED))
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, ASKED))
    await until(lambda: store.asked.count("claim") >= 4)  # it has come again
    await own.finish(HEADERS, b"{}")
    found = await waiting
    assert found == StoredAnswer("a", ASKED, HEADERS, b"{}")


async def test_a_claim_is_renewed_while_it_is_held_also_after_the_store_was_away() -> None:
    store = SharedStore()
    own = owned(await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, ASKED))
    async with own.hold():
        store.is_down = True
        await until(lambda: store.asked.count("renew") >= 2)
        store.is_down = False
        store.now = TIMES.claim - 1
        renewed = store.asked.count("renew")
        await until(lambda: store.asked.count("renew") >= renewed + 2)
    store.now = TIMES.claim + 1
    assert await claims(store, "b").attempt(NAME, ASKED) is None
    found = store
    assert found.kept


async def test_a_claim_that_was_lost_is_not_renewed_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SharedStore()
    own = owned(await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, ASKED))
    async with own.hold():
        store.kept.clear()
        owned(await claims(store, "b").attempt(NAME, ASKED))
        await until(lambda: "claim expired" in caplog.text)
    assert store.asked.count("renew") == 1


def test_a_claim_that_is_gone_is_made_again_before_another_replica_asks() -> None:
    store = SharedStore()
    own = owned(done(claims(store).attempt(NAME, ASKED)))
    store.kept.clear()  # it began anew, or had no room
    assert done(own.renew()) is True
    assert done(claims(store, "b").attempt(NAME, ASKED)) is None


async def test_an_answer_that_ends_while_the_store_is_away_is_left_there_afterwards() -> None:
    store, times = SharedStore(), ClaimTimes(claim=0.1, renewal=0.001)
    own = owned(await claims(store, times=times).settle(NAME, ASKED))
    store.is_down = True
    leaving = asyncio.create_task(own.finish(HEADERS, b"{}"))
    await until(lambda: store.asked.count("finish") >= 2)
    store.is_down = False
    assert await leaving is True
    found = await claims(store, "b").attempt(NAME, ASKED)
    assert found == StoredAnswer("a", ASKED, HEADERS, b"{}")


async def test_whoever_waits_does_so_through_a_short_outage_of_the_store() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001, outage=1000.0)
    own = owned(await claims(store, times=times).settle(NAME, ASKED))
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, ASKED))
    await until(lambda: store.asked.count("claim") >= 3)
    store.is_down, before = True, store.asked.count("claim")
    await until(lambda: store.asked.count("claim") >= before + 3)
    store.is_down = False
    await own.finish(HEADERS, b"{}")
    found = await waiting
    assert found == StoredAnswer("a", ASKED, HEADERS, b"{}")


async def test_whoever_waits_gives_up_a_store_that_stays_away() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001, outage=0.01)
    await claims(store, times=times).settle(NAME, ASKED)
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, ASKED))
    await until(lambda: store.asked.count("claim") >= 3)
    store.is_down = True
    with pytest.raises(StateUnavailable):
        await waiting


def test_while_the_store_is_away_nothing_is_settled() -> None:
    with pytest.raises(StateUnavailable):
        done(claims(SharedStore(is_down=True)).settle(NAME, ASKED))


class Replicas(RuleBasedStateMachine):
    """Replicas that ask for one key, answer, die, stall, and lose what was kept.

    What should be kept is `kept`: a claim or the body of an answer, for which request, and until
    when. `owners` are the claims of replicas that live, whatever has become of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = SharedStore()
        self.owners: list[OwnClaim] = []
        self.kept: tuple[OwnClaim | bytes, bytes, float] | None = None
        self.made = 0

    @rule(replica=st.sampled_from(REPLICAS), fingerprint=st.sampled_from([ASKED, OTHER]))
    def ask(self, replica: str, fingerprint: bytes) -> None:
        asking = claims(self.store, replica).attempt(NAME, fingerprint)
        if self.kept is None:
            own = owned(done(asking))
            self.owners.append(own)
            self.kept = (own, fingerprint, self.store.now + TIMES.claim)
            return
        what, asked, _ = self.kept
        if asked != fingerprint:
            with pytest.raises(KeyReused):
                done(asking)
            return
        found = done(asking)
        assert (found.body if isinstance(found, StoredAnswer) else found) == (
            what if isinstance(what, bytes) else None
        )

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), is_good=st.booleans())
    def end(self, data: st.DataObject, is_good: bool) -> None:
        own = self._some(data)
        self.owners.remove(own)
        is_ours = self.kept is not None and self.kept[0] is own
        if not is_good:
            done(own.release())
            self.kept = None if is_ours else self.kept
            return
        self.made += 1
        body = b"%d" % self.made
        counts = is_ours or self.kept is None
        assert done(own.finish(HEADERS, body)) is counts
        if counts:
            self.kept = (body, own.claimed.fingerprint, self.store.now + TIMES.answer)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        own = self._some(data)
        is_ours = self.kept is not None and self.kept[0] is own
        counts = is_ours or self.kept is None
        assert done(own.renew()) is counts
        if counts:
            self.kept = (own, own.claimed.fingerprint, self.store.now + TIMES.claim)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.owners.remove(self._some(data))

    @rule(seconds=st.sampled_from([1.0, TIMES.renewal, TIMES.claim, TIMES.answer]))
    def pass_time(self, seconds: float) -> None:
        self.store.now += seconds
        if self.kept is not None and self.store.now >= self.kept[2]:
            self.kept = None

    @rule()
    def restart_empty(self) -> None:
        self.store.kept.clear()
        self.kept = None

    def _some(self, data: st.DataObject) -> OwnClaim:
        return data.draw(st.sampled_from(self.owners))


TestReplicas = Replicas.TestCase
