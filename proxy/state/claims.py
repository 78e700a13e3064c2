"""Claims on idempotency keys: one replica answers a request, the other replicas wait for it.

Theory of operation
-------------------
    free      no replica has claimed the key, or the claim of a crashed replica has expired
    claimed   one replica generates the answer and renews its claim; the others poll
    answered  the complete answer is stored for `ClaimTimes.answer` seconds, for repeated requests

A replica never replaces a claim or an answer of another replica, even if it had claimed the same
key before. If the claim of a replica is missing because the store restarted or was full, the
replica claims the key again. This module treats answers as bytes.
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
        """Store a value if the name has no value; return whether it was stored."""

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        """Store a value again for `seconds`; return False if the name has a different value."""

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        """Replace `value` by `final`; return False if the name has a different value."""

    async def release(self, name: str, value: bytes) -> None:
        """Delete a name if it still has this value."""

    async def look_up(self, name: str) -> bytes | None: ...

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        """Store all values, or none of them."""

    async def use(self, name: str, seconds: float) -> bytes | None:
        """Return the value of a name, and set its lifetime to `seconds` from now."""

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        """Set the lifetime of the existing names to `seconds` from now."""

    async def forget(self, names: Sequence[str]) -> bool:
        """Delete names; return whether any of them existed."""


logger = logging.getLogger(__name__)

Name: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True)
class ClaimTimes:
    """The lifetimes of claims and answers, and the intervals of renewals and polls, in seconds.

    A waiting replica polls after `poll`, then at growing intervals up to `longest_poll`. It gives
    up if the store does not respond for `outage` seconds.
    """

    claim: float = 15.0
    renewal: float = 5.0
    answer: float = 300.0
    poll: float = 0.05
    longest_poll: float = 0.5
    outage: float = 5.0


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """Marks that `replica` generates the answer to the request with this fingerprint."""

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
    """The claim of this replica to a key; its functions raise `StateUnavailable`."""

    store: Store
    entry: SealedEntry
    value: bytes
    claim: Claim
    times: ClaimTimes

    async def renew(self) -> bool:
        """Renew the claim; return False if another replica has the key."""
        return await self.store.renew(self.entry.name, self.value, self.times.claim)

    async def finish(self, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Store the answer for the other replicas; return whether it was stored."""
        answer = StoredAnswer(self.claim.replica, self.claim.fingerprint, headers, body)
        final = self.entry.seal(_encode(answer), os.urandom(NONCE_BYTES))
        finish = partial(self.store.finish, self.entry.name, self.value, final, self.times.answer)
        # retried, because the store may recover from an outage before the claim expires
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
        is_over = asyncio.Event()
        renewing = asyncio.create_task(self._keep_renewing(is_over))
        try:
            yield
        finally:
            # The renewal is awaited, not canceled: a cancellation between two commands would leave
            # a connection open. Without the wait, the renewal could claim the key again after
            # `release`.
            is_over.set()
            await renewing

    async def _keep_renewing(self, is_over: asyncio.Event) -> None:
        is_valid = True
        while is_valid:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.times.renewal):
                    await is_over.wait()
                    return
            with suppress(StateUnavailable):  # the store may recover before the claim expires
                is_valid = await self.renew()
        logger.warning("idempotency key: claim expired; another replica may also respond")


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims idempotency keys for a `replica`.

    The name of a claim consists of the idempotency key and the owner of the API key.
    """

    _store: Store
    _sealing: Sealing
    _replica: str
    _times: ClaimTimes = ClaimTimes()

    async def settle(
        self, name: Name, fingerprint: bytes, is_wanted: Callable[[], bool] = lambda: True
    ) -> OwnClaim | StoredAnswer | None:
        """Claim a key, or wait for the answer that another replica generates.

        Polls while `is_wanted` returns True, and returns None when it returns False. Do not cancel
        the task instead: a task that is canceled while it claims a key could not release the claim.
        Raises `KeyReused` if the key was used for another request, and `StateUnavailable`.
        """
        pause, outage_left = self._times.poll, 0.0  # an outage at the beginning is an error
        while is_wanted():
            try:
                if (result := await self.attempt(name, fingerprint)) is not None:
                    return result
                outage_left = self._times.outage  # tolerated while another replica has the claim
            except StateUnavailable:
                if outage_left <= 0:
                    raise
                outage_left -= pause
            await asyncio.sleep(pause)
            pause = min(self._times.longest_poll, pause * 1.5)
        return None

    async def attempt(self, name: Name, fingerprint: bytes) -> OwnClaim | StoredAnswer | None:
        """Claim a key or return its answer; None while another replica generates the answer.

        Raises the errors of `settle`.
        """
        entry, *older = self._sealing.entries("key", *name)
        # after a rotation of the secret, a replica may have a claim under the older secret
        for candidate in older:
            value = await self._store.look_up(candidate.name)
            if (content := _open(candidate, value)) is not None:
                return _answer_in(content, fingerprint)
        claim = Claim(self._replica, fingerprint)
        sealed_claim = entry.seal(_encode(claim), os.urandom(NONCE_BYTES))
        if await self._store.claim(entry.name, sealed_claim, self._times.claim):
            return OwnClaim(self._store, entry, sealed_claim, claim, self._times)
        sealed = await self._store.look_up(entry.name)
        if (content := _open(entry, sealed)) is not None:
            return _answer_in(content, fingerprint)
        if sealed is not None:  # damaged, or written by a program without the secret
            await self._store.release(entry.name, sealed)
        return None


def _open(entry: SealedEntry, sealed: bytes | None) -> Claim | StoredAnswer | None:
    """Decrypt and decode an entry; None if it is missing or unreadable."""
    with suppress(msgspec.DecodeError):  # written by another version of Temper
        if sealed is not None and (body := entry.open(sealed)) is not None:
            return _decode(body)
    return None


def _answer_in(content: Claim | StoredAnswer, fingerprint: bytes) -> StoredAnswer | None:
    if content.fingerprint != fingerprint:
        raise KeyReused
    return content if isinstance(content, StoredAnswer) else None
