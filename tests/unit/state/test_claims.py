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
from tests.timeouts import until

Result = TypeVar("Result")

NAME = ("chat", "us", "order-1")
FINGERPRINT, OTHER_FINGERPRINT = b"asked", b"something else"
SECRET, OLD = "a-secret-of-several-words", "the-one-before-this-one"
HEADERS = [(b"content-type", b"application/json")]
REPLICAS = ("a", "b", "c")
TIMES = ClaimTimes()


def run(work: Coroutine[object, object, Result]) -> Result:
    """Return the result of a coroutine that finishes without waiting."""
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


def own_claim(outcome: object) -> OwnClaim:
    assert isinstance(outcome, OwnClaim)
    return outcome


def test_other_replicas_wait_for_the_answer_while_one_has_claimed_the_idempotency_key() -> None:
    store = SharedStore()
    claim = own_claim(run(claims(store).attempt(NAME, FINGERPRINT)))
    assert run(claims(store, "b").attempt(NAME, FINGERPRINT)) is None
    assert run(claim.finish(HEADERS, b"{}")) is True
    assert run(claims(store, "b").attempt(NAME, FINGERPRINT)) == StoredAnswer(
        "a", FINGERPRINT, HEADERS, b"{}"
    )
    store.now += TIMES.answer
    assert isinstance(run(claims(store, "b").attempt(NAME, FINGERPRINT)), OwnClaim)


@pytest.mark.parametrize("is_over", [False, True], ids=["claimed", "answered"])
def test_an_idempotency_key_with_another_request_body_raises_key_reused(is_over: bool) -> None:
    store = SharedStore()
    claim = own_claim(run(claims(store).attempt(NAME, FINGERPRINT)))
    if is_over:
        run(claim.finish(HEADERS, b"{}"))
    with pytest.raises(KeyReused):
        run(claims(store, "b").attempt(NAME, OTHER_FINGERPRINT))


def test_a_released_key_can_be_claimed_by_another_replica() -> None:
    store = SharedStore()
    run(own_claim(run(claims(store).attempt(NAME, FINGERPRINT))).release())
    assert isinstance(run(claims(store, "b").attempt(NAME, OTHER_FINGERPRINT)), OwnClaim)


def test_an_expired_claim_cannot_replace_the_claim_of_another_replica() -> None:
    store = SharedStore()
    late_claim = own_claim(run(claims(store).attempt(NAME, FINGERPRINT)))
    store.now += TIMES.claim
    claim = own_claim(run(claims(store, "b").attempt(NAME, FINGERPRINT)))
    assert run(late_claim.renew()) is False
    run(late_claim.release())
    assert run(late_claim.finish(HEADERS, b"late")) is False
    assert run(claim.finish(HEADERS, b"in time")) is True
    assert run(late_claim.finish(HEADERS, b"late")) is False
    answer = run(claims(store).attempt(NAME, FINGERPRINT))
    assert isinstance(answer, StoredAnswer)
    assert answer.body == b"in time"


def test_finish_stores_the_answer_although_the_claim_has_expired() -> None:
    store = SharedStore()
    claim = own_claim(run(claims(store).attempt(NAME, FINGERPRINT)))
    store.now += TIMES.claim
    assert run(claim.finish(HEADERS, b"{}")) is True
    assert isinstance(run(claims(store, "b").attempt(NAME, FINGERPRINT)), StoredAnswer)


def test_an_answer_stored_under_another_secret_is_not_found() -> None:
    store = SharedStore()
    run(own_claim(run(claims(store).attempt(NAME, FINGERPRINT))).finish(HEADERS, b"{}"))
    stranger = claims(store, "b", secrets=(OLD,))
    assert isinstance(run(stranger.attempt(NAME, FINGERPRINT)), OwnClaim)


def test_an_answer_stored_under_the_previous_secret_is_found() -> None:
    store = SharedStore()
    run(
        own_claim(run(claims(store, secrets=(OLD,)).attempt(NAME, FINGERPRINT))).finish(
            HEADERS, b"{}"
        )
    )
    changed = claims(store, "b", secrets=(SECRET, OLD))
    assert isinstance(run(changed.attempt(NAME, FINGERPRINT)), StoredAnswer)
    assert isinstance(run(changed.attempt(("chat", "us", "order-2"), FINGERPRINT)), OwnClaim)


@pytest.mark.parametrize(
    "is_sealed", [False, True], ids=["written by another program", "written by another version"]
)
def test_an_unreadable_entry_is_removed_and_the_key_can_be_claimed(is_sealed: bool) -> None:
    store = SharedStore()
    key = Sealing((SECRET,), "temper").entries("key", *NAME)[0]
    body = key.seal(b"\x93\x01\x02", b"n" * 12) if is_sealed else b"nonsense"
    store.kept[key.name] = (body, 1000.0)
    assert run(claims(store).attempt(NAME, FINGERPRINT)) is None
    assert isinstance(run(claims(store).attempt(NAME, FINGERPRINT)), OwnClaim)


async def test_settle_returns_the_answer_that_another_replica_stored() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001)
    claim = own_claim(await claims(store, times=times).settle(NAME, FINGERPRINT))
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, FINGERPRINT))
    await until(lambda: store.operations.count("claim") >= 4)  # the second replica polls
    await claim.finish(HEADERS, b"{}")
    answer = await waiting
    assert answer == StoredAnswer("a", FINGERPRINT, HEADERS, b"{}")


async def test_hold_renews_the_claim_again_after_an_outage_of_the_store() -> None:
    store = SharedStore()
    claim = own_claim(
        await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, FINGERPRINT)
    )
    async with claim.hold():
        store.is_down = True
        await until(lambda: store.operations.count("renew") >= 2)
        store.is_down = False
        store.now = TIMES.claim - 1
        renewed = store.operations.count("renew")
        await until(lambda: store.operations.count("renew") >= renewed + 2)
    store.now = TIMES.claim + 1
    assert await claims(store, "b").attempt(NAME, FINGERPRINT) is None
    assert store.kept


async def test_hold_waits_at_its_end_for_a_renewal_that_is_running() -> None:
    """Found by the simulation: a canceled renewal left its connection to the store open."""
    finished: list[str] = []

    class SlowStore(SharedStore):
        async def renew(self, name: str, value: bytes, seconds: float) -> bool:
            self.operations.append("begin")
            await asyncio.sleep(0.01)
            finished.append(name)
            return await super().renew(name, value, seconds)

    store = SlowStore()
    claim = own_claim(
        await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, FINGERPRINT)
    )
    async with claim.hold():
        await until(lambda: "begin" in store.operations)
    assert finished
    await claim.release()
    assert not store.kept


async def test_hold_stops_renewing_after_another_replica_has_claimed_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SharedStore()
    claim = own_claim(
        await claims(store, times=ClaimTimes(renewal=0.001)).settle(NAME, FINGERPRINT)
    )
    async with claim.hold():
        store.kept.clear()
        own_claim(await claims(store, "b").attempt(NAME, FINGERPRINT))
        await until(lambda: "claim expired" in caplog.text)
    assert store.operations.count("renew") == 1


def test_renew_stores_the_claim_again_if_the_store_has_lost_it() -> None:
    store = SharedStore()
    claim = own_claim(run(claims(store).attempt(NAME, FINGERPRINT)))
    store.kept.clear()  # the store was restarted, or was full
    assert run(claim.renew()) is True
    assert run(claims(store, "b").attempt(NAME, FINGERPRINT)) is None


async def test_finish_retries_until_the_store_is_available_again() -> None:
    store, times = SharedStore(), ClaimTimes(claim=0.1, renewal=0.001)
    claim = own_claim(await claims(store, times=times).settle(NAME, FINGERPRINT))
    store.is_down = True
    leaving = asyncio.create_task(claim.finish(HEADERS, b"{}"))
    await until(lambda: store.operations.count("finish") >= 2)
    store.is_down = False
    assert await leaving is True
    answer = await claims(store, "b").attempt(NAME, FINGERPRINT)
    assert answer == StoredAnswer("a", FINGERPRINT, HEADERS, b"{}")


async def test_settle_continues_to_wait_during_a_short_outage_of_the_store() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001, outage=1000.0)
    claim = own_claim(await claims(store, times=times).settle(NAME, FINGERPRINT))
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, FINGERPRINT))
    await until(lambda: store.operations.count("claim") >= 3)
    store.is_down, before = True, store.operations.count("claim")
    await until(lambda: store.operations.count("claim") >= before + 3)
    store.is_down = False
    await claim.finish(HEADERS, b"{}")
    answer = await waiting
    assert answer == StoredAnswer("a", FINGERPRINT, HEADERS, b"{}")


async def test_settle_raises_state_unavailable_after_a_long_outage_of_the_store() -> None:
    store = SharedStore()
    times = ClaimTimes(poll=0.001, longest_poll=0.001, outage=0.01)
    await claims(store, times=times).settle(NAME, FINGERPRINT)
    waiting = asyncio.create_task(claims(store, "b", times).settle(NAME, FINGERPRINT))
    await until(lambda: store.operations.count("claim") >= 3)
    store.is_down = True
    with pytest.raises(StateUnavailable):
        await waiting


def test_settle_raises_state_unavailable_if_the_store_is_down_at_the_beginning() -> None:
    with pytest.raises(StateUnavailable):
        run(claims(SharedStore(is_down=True)).settle(NAME, FINGERPRINT))


class Replicas(RuleBasedStateMachine):
    """Replicas that claim one key, answer and crash, while the store loses and expires entries.

    `kept` is the expected entry: a claim or the body of an answer, the fingerprint of its request,
    and its expiry. `owners` are the claims of running replicas, including expired claims.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = SharedStore()
        self.owners: list[OwnClaim] = []
        self.kept: tuple[OwnClaim | bytes, bytes, float] | None = None
        self.answers = 0

    @rule(
        replica=st.sampled_from(REPLICAS),
        fingerprint=st.sampled_from([FINGERPRINT, OTHER_FINGERPRINT]),
    )
    def ask(self, replica: str, fingerprint: bytes) -> None:
        attempt = claims(self.store, replica).attempt(NAME, fingerprint)
        if self.kept is None:
            claim = own_claim(run(attempt))
            self.owners.append(claim)
            self.kept = (claim, fingerprint, self.store.now + TIMES.claim)
            return
        entry, request_fingerprint, _ = self.kept
        if request_fingerprint != fingerprint:
            with pytest.raises(KeyReused):
                run(attempt)
            return
        outcome = run(attempt)
        assert (outcome.body if isinstance(outcome, StoredAnswer) else outcome) == (
            entry if isinstance(entry, bytes) else None
        )

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), is_good=st.booleans())
    def end(self, data: st.DataObject, is_good: bool) -> None:
        claim = self._some(data)
        self.owners.remove(claim)
        is_ours = self.kept is not None and self.kept[0] is claim
        if not is_good:
            run(claim.release())
            self.kept = None if is_ours else self.kept
            return
        self.answers += 1
        body = b"%d" % self.answers
        is_stored = is_ours or self.kept is None
        assert run(claim.finish(HEADERS, body)) is is_stored
        if is_stored:
            self.kept = (body, claim.claim.fingerprint, self.store.now + TIMES.answer)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claim = self._some(data)
        is_ours = self.kept is not None and self.kept[0] is claim
        is_stored = is_ours or self.kept is None
        assert run(claim.renew()) is is_stored
        if is_stored:
            self.kept = (claim, claim.claim.fingerprint, self.store.now + TIMES.claim)

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
