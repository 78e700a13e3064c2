"""Responses in a store that several Tempers share, for as long as they are used.

The store is used on the event loop; readers ask from threads of their own. What it does not take is
kept here in memory, as without a store. Anything that is not here, and may or may not be there,
raises `StateUnavailable`: nothing may seem gone that may exist.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from proxy import bounds
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse, id_of
from proxy.errors import StateUnavailable
from proxy.state.claims import Store
from proxy.state.memory_responses import Bounds, MemoryStore
from proxy.state.sealing import NONCE_BYTES, Sealing

TOO_LARGE, UNSHARED = "too_large", "unshared"
MOST_BYTES = bounds.RESPONSE_BYTES
_PATIENCE = 2.0  # seconds that an answer waits for the store
_READING = 10.0  # seconds that a request waits for the response that it continues

Found = TypeVar("Found")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredResponse).decode


@dataclass(eq=False)
class SharedResponses(ResponseStore):
    """Keeps responses by the owner of the key that asked for them.

    `is_usable` says whether the store would take one now. Those that it does not take go to
    `alone`, and `on_loss` gets the reason.
    """

    _store: Store
    _sealing: Sealing
    _alone: MemoryStore
    _bounds: Bounds
    is_usable: Callable[[], bool]
    on_loss: Callable[[str], None] = lambda _reason: None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _unwritten: set[Future[None]] = field(default_factory=set)

    def keep(self, owner: str, response: StoredResponse) -> None:
        if response.size > min(MOST_BYTES, self._bounds.bytes):
            self._keep_alone(owner, response, TOO_LARGE)
            return
        writing = asyncio.run_coroutine_threadsafe(self._write(owner, response), self._loop)
        self._unwritten.add(writing)
        writing.add_done_callback(self._unwritten.discard)

    async def flush(self) -> None:
        if unwritten := [asyncio.wrap_future(one) for one in [*self._unwritten]]:
            await asyncio.wait(unwritten, timeout=_PATIENCE)

    def chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        return self._ask(self._chain(owner, response_id))

    def item(self, owner: str, item_id: str) -> bytes | None:
        here = self._alone.item(owner, item_id)
        return here if here is not None else self._ask(self._item(owner, item_id))

    def forget(self, owner: str, response_id: str) -> bool:
        was_here = self._alone.forget(owner, response_id)
        names = [place.name for place in self._sealing.places("response", owner, response_id)]
        return self._ask(self._store.forget(names)) or was_here

    def _ask(self, asked: Coroutine[object, object, Found]) -> Found:
        """Wait for the event loop, in another thread; the loop itself must never wait."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                asked.close()
                raise StateUnavailable
        answering = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answering.result(_READING)
        except TimeoutError as error:
            answering.cancel()
            raise StateUnavailable from error

    async def _write(self, owner: str, response: StoredResponse) -> None:
        told = response.id.encode()
        entries = self._seal(_encode(response), "response", owner, response.id)
        for item_id in _ids(response):
            entries |= self._seal(told, "item", owner, item_id)
        try:
            await self._store.keep(entries, self._bounds.seconds)
        except StateUnavailable:
            self._keep_alone(owner, response, UNSHARED)

    def _keep_alone(self, owner: str, response: StoredResponse, reason: str) -> None:
        self.on_loss(reason)
        self._alone.keep(owner, response)

    async def _chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        """Return a response and those before it, latest first, and mark them as used."""
        chain: list[StoredResponse] = []
        sought: str | None = response_id
        while sought is not None and len(chain) < self._bounds.responses:
            found = self._alone.find(owner, sought) or await self._response(owner, sought)
            if found is None:
                break
            chain.append(found)
            sought = found.previous_id
        # the index from items to their responses is kept for longer too
        item_ids = {item_id for one in chain for item_id in _ids(one)}
        names = [one.name for each in item_ids for one in self._sealing.places("item", owner, each)]
        if names:
            with suppress(StateUnavailable):
                await self._store.prolong(names, self._bounds.seconds)
        return chain

    async def _response(self, owner: str, response_id: str) -> StoredResponse | None:
        told = await self._read("response", owner, response_id)
        with suppress(msgspec.DecodeError):  # written by another version
            return _decode(told) if told is not None else None
        return None

    async def _item(self, owner: str, item_id: str) -> bytes | None:
        told = await self._read("item", owner, item_id)
        if told is None:
            return None
        chain = await self._chain(owner, told.decode(errors="replace"))
        items = chain[0].items if chain else ()
        return next((item for item in items if id_of(item) == item_id), None)

    async def _read(self, *name: str) -> bytes | None:
        """Return the value of a name under any of the secrets."""
        for place in self._sealing.places(*name):
            sealed = await self._store.use(place.name, self._bounds.seconds)
            if sealed is not None and (told := place.open(sealed)) is not None:
                return told
        return None

    def _seal(self, told: bytes, *name: str) -> dict[str, bytes]:
        place = self._sealing.places(*name)[0]
        return {place.name: place.seal(told, os.urandom(NONCE_BYTES))}


def _ids(response: StoredResponse) -> Iterable[str]:
    return filter(None, map(id_of, response.items))
