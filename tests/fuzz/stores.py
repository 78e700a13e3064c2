"""A hostile shared store: Temper must not trust its data.

An input is a list of parts; each part is an answer of the store. A part that begins with `S` is
sealed with Temper's secret, because a store may return values that are old or were written by
another version of Temper.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
from hypothesis import strategies as st

from proxy.dialects.openai_responses.store import StoredResponse
from proxy.errors import KeyReused, StateUnavailable
from proxy.state.claims import Claim, Claims, ClaimTimes, StoredAnswer
from proxy.state.memory_responses import Bounds, MemoryStore
from proxy.state.sealing import NONCE_BYTES, SealedEntry, Sealing
from proxy.state.shared_responses import SharedResponses
from tests.fuzz.targets import Target, run

SEPARATOR = b"\x1e"
SECRETS = ("the-new-secret-of-all", "the-old-secret-of-all")
PRINT = b"fingerprint"
_NONCE = bytes(NONCE_BYTES)
_NAMES = (("response", "us", "resp_1"), ("response", "us", "resp_2"), ("item", "us", "msg_1"))
_KEY = ("us", "key")


class Hostile:
    """A store whose n-th answer is the n-th part of an input; after the last part it is None."""

    def __init__(self, parts: Sequence[bytes], places: Mapping[str, SealedEntry]) -> None:
        self._parts = iter(parts)
        self._places = places

    def answer(self, name: str) -> bytes | None:
        part = next(self._parts, b"")
        if part == b"!":
            raise StateUnavailable
        entry = self._places.get(name)
        if part.startswith(b"S") and entry is not None:
            return entry.seal(part[1:], _NONCE)
        return part or None

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        return bool(self.answer(name))

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        return bool(self.answer(name))

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        return bool(self.answer(name))

    async def release(self, name: str, value: bytes) -> None:
        self.answer(name)

    async def look_up(self, name: str) -> bytes | None:
        return self.answer(name)

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        self.answer("")

    async def use(self, name: str, seconds: float) -> bytes | None:
        return self.answer(name)

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        self.answer("")

    async def forget(self, names: Sequence[str]) -> bool:
        return bool(self.answer(""))


def judge(data: bytes) -> None:
    """Use a hostile store for idempotency keys and for stored responses.

    A store with unusable data must be treated like an unavailable store.
    """
    sealing = Sealing(SECRETS, "temper")
    names = (*_NAMES, ("key", *_KEY))
    places = {entry.name: entry for name in names for entry in sealing.entries(*name)}
    run(_use(Hostile(data.split(SEPARATOR), places), sealing))


async def _use(store: Hostile, sealing: Sealing) -> None:
    times = ClaimTimes(claim=0.002, renewal=0.001, poll=0.001, outage=0.0)
    claims = Claims(store, sealing, "replica", times)
    with suppress(StateUnavailable, KeyReused):
        settled = await claims.attempt(_KEY, PRINT)
        if isinstance(settled, StoredAnswer):
            assert settled.fingerprint == PRINT
        elif settled is not None:
            await settled.finish([], b"{}")
            await settled.release()
    alone = MemoryStore(time.monotonic, Bounds())
    responses = SharedResponses(store, sealing, alone, Bounds(), lambda: True)
    await asyncio.to_thread(_read, responses)


def _read(responses: SharedResponses) -> None:
    for _ in range(2):
        with suppress(StateUnavailable):
            assert all(
                isinstance(response.whole, bytes) for response in responses.chain("us", "resp_2")
            )
        with suppress(StateUnavailable):
            responses.item("us", "msg_1")
        with suppress(StateUnavailable):
            responses.forget("us", "resp_1")
        responses.keep("us", StoredResponse("resp_3", [], [b"{}"], b"{}", "resp_2"))


_encode = msgspec.msgpack.Encoder().encode
_ITEM = b'{"id":"msg_1"}'
_SEALED = [
    _encode(StoredResponse("resp_1", [_ITEM], [b"{}"], b"{}")),
    _encode(StoredResponse("resp_2", [], [_ITEM], b"{}", "resp_1")),
    _encode(StoredResponse("resp_2", [], [], b"{}", "resp_2")),
    _encode(Claim("other", PRINT)),
    _encode(StoredAnswer("other", PRINT, [(b"a", b"b")], b"{}")),
    _encode(StoredAnswer("other", b"another", [], b"{}")),
    _encode({"type": "later"}),
    _encode([[[[]]]] * 9),
    b"resp_1",
    b"resp_2",
    b"\xff",
    b"",
]
_PARTS = (
    st.sampled_from(_SEALED).map(lambda data: b"S" + data)
    | st.sampled_from([b"", b"!", b"1", b":1", b"\x01" + _NONCE])
    | st.binary(max_size=40)
)
_STORED = st.lists(_PARTS, max_size=12).map(SEPARATOR.join)

TARGETS = (Target("stores", _STORED, judge),)
