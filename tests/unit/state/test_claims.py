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
    """Run a coroutine that never waits."""
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


def owned(outcome: object) -> OwnClaim:
    assert isinstance(outcome, OwnClaim)
    return outcome


def test_the_first_replica_owns_a_key_and_others_wait_for_its_answer() -> None:
    store = SharedStore()
    claim = owned(done(claims(store).attempt(NAME, ASKED)))
    assert done(claims(store, "b").attempt(NAME, ASKED)) is None
    assert done(claim.finish(HEADERS, b"{}")) is True
    assert done(claims(store, "b").attempt(NAME, ASKED)) == StoredAnswer("a", ASKED, HEADERS, b"{}")
    store.now += TIMES.answer
    assert isinstance(done(claims(store, "b").attempt(NAME, ASKED)), OwnClaim)


@pytest.mark.parametrize("is_over", [False, True], ids=["claimed", "answered"])
def test_a_key_of_another_request_is_refused(is_over: bool) -> None:
    store = SharedStore()
    claim = owned(done(claims(store).attempt(NAME, ASKED)))
    if is_over:
        done(claim.finish(HEADERS, b"{}"))
    with pytest.raises(KeyReused):
        done(claims(store, "b").attempt(NAME, OTHER))


def test_a_key_that_was_released_is_free() -> None:
    store = SharedStore()
    done(owned(done(claims(store).attempt(NAME, ASKED))).release())
    assert isinstance(done(claims(store, "b").attempt(NAME, OTHER)), OwnClaim)


def test_an_expired_owner_cannot_touch_the_claim_and_answer_of_another() -> None:
    store = SharedStore()
    late_claim = owned(done(claims(store).attempt(NAME, ASKED)))
    store.now += TIMES.claim
    claim = owned(done(claims(store, "b").attempt(NAME, ASKED)))
    assert done(late_claim.renew()) is False
    done(late_claim.release())
    assert done(late_claim.finish(HEADERS, b"late")) is False
    assert done(claim.finish(HEADERS, b"in time")) is True
    assert done(late_claim.finish(HEADERS, b"late")) is False
    answer = done(claims(store).attempt(NAME, ASKED))
    assert isinstance(answer, StoredAnswer)
    assert answer.body == b"in time"


def test_an_answer_after_an_unnoticed_expiry_counts() -> None:
    store = SharedStore()
    claim = owned(done(claims(store).attempt(NAME, ASKED)))
    store.now += TIMES.claim
    assert done(claim.finish(HEADERS, b"{}")) is True
    assert isinstance(done(claims(store, "b").attempt(NAME, ASKED)), StoredAnswer)


def test_with_another_secret_nothing_is_found() -> None:
    store = SharedStore()
    done(owned(done(claims(store).attempt(NAME, ASKED))).finish(HEADERS, b"{}"))
    stranger = claims(store, "b", secrets=(OLD,))
    assert isinstance(done(stranger.attempt(NAME, ASKED)), OwnClaim)


def test_an_answer_under_the_previous_secret_is_still_found() -> None:
    store = SharedStore()
    done(owned(done(claims(store, secrets=(OLD,)).attempt(NAME, ASKED))).finish(HEADERS, b"{}"))
    changed = claims(store, "b", secrets=(SECRET, OLD))
    assert isinstance(done(changed.attempt(NAME, ASKED)), StoredAnswer)
    assert isinstance(done(changed.attempt(("chat", "us", "order-2"), ASKED)), OwnClaim)


@pytest.mark.parametrize("is_sealed", [False, True], ids=["by a stranger", "by another version"])
def test_an_unreadable_entry_is_replaced(is_sealed: bool) -> None:
    store = SharedStore()
    key = Sealing((SECRET,), "temper").entries("key", *NAME)[0]
    body = key.seal(b"\x93\x01\x02", b"n" * 12) if is_sealed else b"nonsense"
    store.kept[key.name] = (body, 1000.0)
    assert done(claims(store).attempt(NAME, ASKED)) is None
    assert isinstance(done(claims(store).attempt(NAME, ASKED)), OwnClaim)


async def test_a_waiting_replica_gets_the_answer() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001)
    claim = owned(await claims(store, times=times).settle(NAME, ASKED))
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, ASKED))
    await until(lambda: store.operations.count("claim") >= 4)  # it has come again
    await claim.finish(HEADERS, b"{}")
    answer = await waiting
    assert answer == StoredAnswer("a", ASKED, HEADERS, b"{}")


async def test_a_held_claim_is_renewed_even_after_an_outage() -> None:
    store = SharedStore()
    claim = owned(await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, ASKED))
    async with claim.hold():
        store.is_down = True
        await until(lambda: store.operations.count("renew") >= 2)
        store.is_down = False
        store.now = TIMES.claim - 1
        renewed = store.operations.count("renew")
        await until(lambda: store.operations.count("renew") >= renewed + 2)
    store.now = TIMES.claim + 1
    assert await claims(store, "b").attempt(NAME, ASKED) is None
    assert store.kept


async def test_a_claim_that_was_lost_is_not_renewed_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SharedStore()
    claim = owned(await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, ASKED))
    async with claim.hold():
        store.kept.clear()
        owned(await claims(store, "b").attempt(NAME, ASKED))
        await until(lambda: "claim expired" in caplog.text)
    assert store.operations.count("renew") == 1


def test_a_lost_claim_is_renewed_before_another_replica_asks() -> None:
    store = SharedStore()
    claim = owned(done(claims(store).attempt(NAME, ASKED)))
    store.kept.clear()  # it was restarted, or was full
    assert done(claim.renew()) is True
    assert done(claims(store, "b").attempt(NAME, ASKED)) is None


async def test_an_answer_that_ends_during_an_outage_is_stored_afterwards() -> None:
    store, times = SharedStore(), ClaimTimes(claim=0.1, renewal=0.001)
    claim = owned(await claims(store, times=times).settle(NAME, ASKED))
    store.is_down = True
    leaving = asyncio.create_task(claim.finish(HEADERS, b"{}"))
    await until(lambda: store.operations.count("finish") >= 2)
    store.is_down = False
    assert await leaving is True
    answer = await claims(store, "b").attempt(NAME, ASKED)
    assert answer == StoredAnswer("a", ASKED, HEADERS, b"{}")


async def test_waiting_survives_a_short_outage_of_the_store() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001, outage=1000.0)
    claim = owned(await claims(store, times=times).settle(NAME, ASKED))
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, ASKED))
    await until(lambda: store.operations.count("claim") >= 3)
    store.is_down, before = True, store.operations.count("claim")
    await until(lambda: store.operations.count("claim") >= before + 3)
    store.is_down = False
    await claim.finish(HEADERS, b"{}")
    answer = await waiting
    assert answer == StoredAnswer("a", ASKED, HEADERS, b"{}")


async def test_waiting_gives_up_after_a_long_outage_of_the_store() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001, outage=0.01)
    await claims(store, times=times).settle(NAME, ASKED)
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, ASKED))
    await until(lambda: store.operations.count("claim") >= 3)
    store.is_down = True
    with pytest.raises(StateUnavailable):
        await waiting


def test_while_the_store_is_away_nothing_is_settled() -> None:
    with pytest.raises(StateUnavailable):
        done(claims(SharedStore(is_down=True)).settle(NAME, ASKED))


class Replicas(RuleBasedStateMachine):
    """Replicas that request one key, answer, die, stall, and lose stored entries.

    `kept` is the expected entry: a claim or the body of an answer, its request, and its expiry.
    `owners` are the claims of living replicas, including lost ones.
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
            claim = owned(done(asking))
            self.owners.append(claim)
            self.kept = (claim, fingerprint, self.store.now + TIMES.claim)
            return
        what, request_fingerprint, _ = self.kept
        if request_fingerprint != fingerprint:
            with pytest.raises(KeyReused):
                done(asking)
            return
        outcome = done(asking)
        assert (outcome.body if isinstance(outcome, StoredAnswer) else outcome) == (
            what if isinstance(what, bytes) else None
        )

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), is_good=st.booleans())
    def end(self, data: st.DataObject, is_good: bool) -> None:
        claim = self._some(data)
        self.owners.remove(claim)
        is_ours = self.kept is not None and self.kept[0] is claim
        if not is_good:
            done(claim.release())
            self.kept = None if is_ours else self.kept
            return
        self.made += 1
        body = b"%d" % self.made
        counts = is_ours or self.kept is None
        assert done(claim.finish(HEADERS, body)) is counts
        if counts:
            self.kept = (body, claim.claimed.fingerprint, self.store.now + TIMES.answer)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claim = self._some(data)
        is_ours = self.kept is not None and self.kept[0] is claim
        counts = is_ours or self.kept is None
        assert done(claim.renew()) is counts
        if counts:
            self.kept = (claim, claim.claimed.fingerprint, self.store.now + TIMES.claim)

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
