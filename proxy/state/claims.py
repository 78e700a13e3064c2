"""Claims on idempotency keys: one replica answers a request, the other replicas wait for it.

Theory of operation
-------------------
    free      the key is not claimed, or the claim of a crashed replica has expired
    claimed   a replica generates the answer and renews its claim; the others poll
    answered  the complete answer is stored for a while, for repetitions of the request

A replica never replaces a claim or an answer of another replica, even if it had the key before. A
claim that is missing, because the store restarted or was full, is claimed again. This module treats
answers as bytes.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import msgspec

from proxy.errors import KeyReused, StateUnavailable
from proxy.state.sealing import NONCE_BYTES, SealedEntry, Sealing


class Store(Protocol):
    """Stores bytes for all replicas, each value for some seconds.

    Every function is atomic, and raises `StateUnavailable` if the store does not execute it.
    """

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        """Store a value if the name is free; return whether it was free."""

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        """Prolong a value, or store it again if it is gone; never replace a different value."""

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        """Replace a value, which may be gone, by `final`; never replace a different value."""

    async def release(self, name: str, value: bytes) -> None:
        """Free a name if it still has this value."""

    async def look_up(self, name: str) -> bytes | None: ...

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        """Store all of these values, or none of them."""

    async def use(self, name: str, seconds: float) -> bytes | None:
        """Return the value of a name, and prolong it."""

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        """Prolong the values of those names that exist."""

    async def forget(self, names: Sequence[str]) -> bool:
        """Delete these names; return whether any of them existed."""


logger = logging.getLogger(__name__)

Name: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True)
class ClaimTimes:
    """The lifetimes of claims and answers, and the intervals of renewals and polls, in seconds.

    A waiting replica polls after `poll`, then at growing intervals up to `longest_poll`. It
    tolerates an `outage` of the store of this length.
    """

    claim: float = 15.0
    renewal: float = 5.0
    answer: float = 300.0
    poll: float = 0.05
    longest_poll: float = 0.5
    outage: float = 5.0


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """The mark of a replica that generates the answer to the request with this fingerprint."""

    replica: str
    fingerprint: bytes


class StoredAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """A successful answer to the request with this fingerprint."""

    replica: str
    fingerprint: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Claim | StoredAnswer] = msgspec.msgpack.Decoder(
    Claim | StoredAnswer
).decode


@dataclass(eq=False, slots=True)
class OwnClaim:
    """A key that this replica answers; its functions raise `StateUnavailable`."""

    store: Store
    entry: SealedEntry
    value: bytes
    claimed: Claim
    times: ClaimTimes

    async def renew(self) -> bool:
        """Renew the claim; return whether this replica still has it."""
        return await self.store.renew(self.entry.name, self.value, self.times.claim)

    async def finish(self, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Store the answer for the other replicas; return whether it was stored."""
        answer = StoredAnswer(self.claimed.replica, self.claimed.fingerprint, headers, body)
        final = self.entry.seal(_encode(answer), os.urandom(NONCE_BYTES))
        finish = partial(self.store.finish, self.entry.name, self.value, final, self.times.answer)
        # retried during an outage: the store may recover before the claim expires
        for _ in range(round(self.times.claim / self.times.renewal) - 1):
            with suppress(StateUnavailable):
                return await finish()
            await asyncio.sleep(self.times.renewal)
        return await finish()

    async def release(self) -> None:
        await self.store.release(self.entry.name, self.value)

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Renew the claim while the block runs."""
        renewing = asyncio.create_task(self._keep_renewing())
        try:
            yield
        finally:
            renewing.cancel()

    async def _keep_renewing(self) -> None:
        is_held = True
        while is_held:
            await asyncio.sleep(self.times.renewal)
            with suppress(StateUnavailable):  # the store may recover before the claim expires
                is_held = await self.renew()
        logger.warning("idempotency key: claim expired; another replica may also respond")


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims keys for a `replica`; the parts of a name include the owner of the API key."""

    _store: Store
    _sealing: Sealing
    _replica: str
    _times: ClaimTimes = ClaimTimes()

    async def settle(
        self, name: Name, fingerprint: bytes, is_wanted: Callable[[], bool] = lambda: True
    ) -> OwnClaim | StoredAnswer | None:
        """Claim a key, or wait for its answer while another replica makes it.

        Returns None when `is_wanted` returns False. Use that instead of canceling the task, which
        could leave a claim that is never released. Raises `KeyReused` if the key belongs to another
        request, and `StateUnavailable`.
        """
        pause, patience = self._times.poll, 0.0
        while is_wanted():
            try:
                if (settled := await self.attempt(name, fingerprint)) is not None:
                    return settled
                patience = self._times.outage  # the store works: another replica has the claim
            except StateUnavailable:
                if patience <= 0:
                    raise
                patience -= pause
            await asyncio.sleep(pause)
            pause = min(self._times.longest_poll, pause * 1.5)
        return None

    async def attempt(self, name: Name, fingerprint: bytes) -> OwnClaim | StoredAnswer | None:
        """Claim a key or find its answer; None while another replica has it; raises as `settle`."""
        entry, *older = self._sealing.entries("key", *name)
        # with a rotated secret, another replica may still have a claim under an older one
        for candidate in older:
            value = await self._store.look_up(candidate.name)
            if (held := _open(candidate, value)) is not None:
                return _answer_in(held, fingerprint)
        claim = Claim(self._replica, fingerprint)
        sealed_claim = entry.seal(_encode(claim), os.urandom(NONCE_BYTES))
        if await self._store.claim(entry.name, sealed_claim, self._times.claim):
            return OwnClaim(self._store, entry, sealed_claim, claim, self._times)
        sealed = await self._store.look_up(entry.name)
        if (held := _open(entry, sealed)) is not None:
            return _answer_in(held, fingerprint)
        if sealed is not None:  # damaged, or written by a program without the secret
            await self._store.release(entry.name, sealed)
        return None


def _open(entry: SealedEntry, sealed: bytes | None) -> Claim | StoredAnswer | None:
    """Return the contents of an entry; None if it is missing or unreadable."""
    with suppress(msgspec.DecodeError):  # written by another version of Temper
        if sealed is not None and (body := entry.open(sealed)) is not None:
            return _decode(body)
    return None


def _answer_in(held: Claim | StoredAnswer, fingerprint: bytes) -> StoredAnswer | None:
    if held.fingerprint != fingerprint:
        raise KeyReused
    return held if isinstance(held, StoredAnswer) else None
