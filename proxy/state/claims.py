"""One answer for each key among all replicas: who makes it, and who waits for it.

Theory of operation
-------------------
    free      nobody has claimed the key, or the claim of a replica that died has run out
    claimed   a replica makes the answer; it renews its claim, others come again
    answered  the whole answer is kept for a while, for everybody who asks the same

A claim that was lost to another replica is left alone, whatever happens here: nothing replaces what
another one has claimed or answered. A claim that is merely gone, because the store restarted or was
full, is claimed again. This module must not know what answers are.
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
from proxy.state.sealing import NONCE_BYTES, SealedPlace, Sealing


class Store(Protocol):
    """Keeps bytes for all replicas, each for some seconds.

    Every function is one atomic step, and raises `StateUnavailable` if it cannot be done.
    """

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        """Keep a value if the name is free; return whether it was."""

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        """Keep a value for longer, or again if it is gone; never in place of another one."""

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        """Replace a value, which may be gone, by `final`; never replace another one."""

    async def release(self, name: str, value: bytes) -> None:
        """Free a name if it still has this value."""

    async def look_up(self, name: str) -> bytes | None: ...

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        """Keep all of these values, or none of them."""

    async def use(self, name: str, seconds: float) -> bytes | None:
        """Return the value of a name, and keep it for longer."""

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        """Keep those of these names that exist for longer."""

    async def forget(self, names: Sequence[str]) -> bool:
        """Delete these names; return whether any of them existed."""


logger = logging.getLogger(__name__)

Name: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True)
class ClaimTimes:
    """How long claims and answers are kept, how often claims are renewed and polled: seconds.

    Whoever waits looks again after `poll`, then less and less often, up to `longest_poll`, even
    through an `outage` of the store.
    """

    claim: float = 15.0
    renewal: float = 5.0
    answer: float = 300.0
    poll: float = 0.05
    longest_poll: float = 0.5
    outage: float = 5.0


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """Says that a replica is making the answer to the request with this fingerprint."""

    replica: str
    fingerprint: bytes


class KeptAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """A successful answer to the request with this fingerprint."""

    replica: str
    fingerprint: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Claim | KeptAnswer] = msgspec.msgpack.Decoder(Claim | KeptAnswer).decode


@dataclass(eq=False, slots=True)
class OwnClaim:
    """A key that this replica answers; its functions raise `StateUnavailable`."""

    store: Store
    place: SealedPlace
    value: bytes
    claimed: Claim
    times: ClaimTimes

    async def renew(self) -> bool:
        """Renew the claim; return whether it is still ours."""
        return await self.store.renew(self.place.name, self.value, self.times.claim)

    async def finish(self, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Store the answer for the others; return whether it was stored.

        If the store is away it is asked again, because it may be back before the claim expires.
        """
        answer = KeptAnswer(self.claimed.replica, self.claimed.fingerprint, headers, body)
        final = self.place.seal(_encode(answer), os.urandom(NONCE_BYTES))
        finish = partial(self.store.finish, self.place.name, self.value, final, self.times.answer)
        for _ in range(round(self.times.claim / self.times.renewal) - 1):
            with suppress(StateUnavailable):
                return await finish()
            await asyncio.sleep(self.times.renewal)
        return await finish()

    async def release(self) -> None:
        await self.store.release(self.place.name, self.value)

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        renewing = asyncio.create_task(self._keep_renewing())
        try:
            yield
        finally:
            renewing.cancel()

    async def _keep_renewing(self) -> None:
        is_ours = True
        while is_ours:
            await asyncio.sleep(self.times.renewal)
            with suppress(StateUnavailable):  # it may be back before the claim expires
                is_ours = await self.renew()
        logger.warning(
            "the claim of an idempotency key expired: another replica may process the request too"
        )


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims keys for a `replica`, under names that include the keys' owners."""

    _store: Store
    _sealing: Sealing
    _replica: str
    _times: ClaimTimes = ClaimTimes()

    async def settle(
        self, name: Name, fingerprint: bytes, is_wanted: Callable[[], bool] = lambda: True
    ) -> OwnClaim | KeptAnswer | None:
        """Claim a key, or wait for its answer while another replica makes it.

        Returns None when it is no longer wanted; do not cancel it, which could leave a claim that
        nobody holds. Raises `KeyReused` if the key belongs to another request, and
        `StateUnavailable`.
        """
        pause, patience = self._times.poll, 0.0
        while is_wanted():
            try:
                if (found := await self.attempt(name, fingerprint)) is not None:
                    return found
                patience = self._times.outage  # another replica is working on it
            except StateUnavailable:
                if patience <= 0:
                    raise
                patience -= pause
            await asyncio.sleep(pause)
            pause = min(self._times.longest_poll, pause * 1.5)
        return None

    async def attempt(self, name: Name, fingerprint: bytes) -> OwnClaim | KeptAnswer | None:
        """Claim a key or find its answer; None while another replica has it; raises as `settle`."""
        place, *earlier = self._sealing.places("key", *name)
        for one in earlier:
            if (held := _open(one, await self._store.look_up(one.name))) is not None:
                return _answer_in(held, fingerprint)
        claim = Claim(self._replica, fingerprint)
        value = place.seal(_encode(claim), os.urandom(NONCE_BYTES))
        if await self._store.claim(place.name, value, self._times.claim):
            return OwnClaim(self._store, place, value, claim, self._times)
        sealed = await self._store.look_up(place.name)
        if (held := _open(place, sealed)) is not None:
            return _answer_in(held, fingerprint)
        if sealed is not None:  # whoever wrote that does not know the secret
            await self._store.release(place.name, sealed)
        return None


def _open(place: SealedPlace, sealed: bytes | None) -> Claim | KeptAnswer | None:
    """Return what is kept in a place; what cannot be read counts as missing."""
    with suppress(msgspec.DecodeError):  # written by another version
        if sealed is not None and (told := place.open(sealed)) is not None:
            return _decode(told)
    return None


def _answer_in(held: Claim | KeptAnswer, fingerprint: bytes) -> KeptAnswer | None:
    if held.fingerprint != fingerprint:
        raise KeyReused
    return held if isinstance(held, KeptAnswer) else None
