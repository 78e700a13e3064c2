"""Stores responses in a store that several replicas share; each use prolongs their lifetime.

The store is used on the event loop; the reading functions block, and are called in other threads.
If the store rejects a response, the response is stored in the memory of this process. During an
outage, a request for a response that is not in memory raises `StateUnavailable`. The client must
not receive 404: the response may exist, and after a 404 the client would drop its conversation.
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

# the reasons for storing a response only in this process, as counted in the metrics
TOO_LARGE, UNSHARED = "too_large", "unshared"
MOST_BYTES = bounds.RESPONSE_BYTES
_FLUSH_SECONDS = 2.0  # maximum time that an answer waits for the store
_READ_SECONDS = 10.0  # maximum time that a request waits for its previous response

Result = TypeVar("Result")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredResponse).decode


@dataclass(eq=False)
class SharedResponses(ResponseStore):
    """Stores responses by owner; the owner is the API key of the request.

    `is_usable` returns whether the store is expected to accept a response. A response that the
    store rejects is stored in `_local`, and `on_loss` is called with the reason.
    """

    _store: Store
    _sealing: Sealing
    _local: MemoryStore
    _bounds: Bounds
    is_usable: Callable[[], bool]
    on_loss: Callable[[str], None] = lambda _reason: None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _unwritten: set[Future[None]] = field(default_factory=set)

    def keep(self, owner: str, response: StoredResponse) -> None:
        if response.size > min(MOST_BYTES, self._bounds.bytes):
            self._keep_locally(owner, response, TOO_LARGE)
            return
        writing = asyncio.run_coroutine_threadsafe(self._write(owner, response), self._loop)
        self._unwritten.add(writing)
        writing.add_done_callback(self._unwritten.discard)

    async def flush(self) -> None:
        if pending := [asyncio.wrap_future(writing) for writing in [*self._unwritten]]:
            await asyncio.wait(pending, timeout=_FLUSH_SECONDS)

    def chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        return self._run(self._chain(owner, response_id))

    def item(self, owner: str, item_id: str) -> bytes | None:
        local = self._local.item(owner, item_id)
        return local if local is not None else self._run(self._item(owner, item_id))

    def forget(self, owner: str, response_id: str) -> bool:
        was_local = self._local.forget(owner, response_id)
        names = [entry.name for entry in self._sealing.entries("response", owner, response_id)]
        return self._run(self._store.forget(names)) or was_local

    def _run(self, operation: Coroutine[object, object, Result]) -> Result:
        """Run an operation on the event loop, and wait for it in the calling thread."""
        # waiting on the event loop itself would be a deadlock
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                operation.close()
                raise StateUnavailable
        running = asyncio.run_coroutine_threadsafe(operation, self._loop)
        try:
            return running.result(_READ_SECONDS)
        except TimeoutError as error:
            running.cancel()
            raise StateUnavailable from error

    async def _write(self, owner: str, response: StoredResponse) -> None:
        encoded_id = response.id.encode()
        entries = self._seal(_encode(response), "response", owner, response.id)
        for item_id in _ids(response):
            entries |= self._seal(encoded_id, "item", owner, item_id)
        try:
            await self._store.keep(entries, self._bounds.seconds)
        except StateUnavailable:
            self._keep_locally(owner, response, UNSHARED)

    def _keep_locally(self, owner: str, response: StoredResponse, reason: str) -> None:
        self.on_loss(reason)
        self._local.keep(owner, response)

    async def _chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        """Return a response and its predecessors, latest first, and mark them as used."""
        chain: list[StoredResponse] = []
        next_id: str | None = response_id
        while next_id is not None and len(chain) < self._bounds.responses:
            response = self._local.find(owner, next_id) or await self._response(owner, next_id)
            if response is None:
                break
            chain.append(response)
            next_id = response.previous_id
        # the index from items to responses must not expire before the responses
        item_ids = {item_id for response in chain for item_id in _ids(response)}
        names = [
            entry.name
            for item_id in item_ids
            for entry in self._sealing.entries("item", owner, item_id)
        ]
        if names:
            with suppress(StateUnavailable):
                await self._store.prolong(names, self._bounds.seconds)
        return chain

    async def _response(self, owner: str, response_id: str) -> StoredResponse | None:
        body = await self._read("response", owner, response_id)
        with suppress(msgspec.DecodeError):  # written by another version of Temper
            return _decode(body) if body is not None else None
        return None

    async def _item(self, owner: str, item_id: str) -> bytes | None:
        encoded_id = await self._read("item", owner, item_id)
        if encoded_id is None:
            return None
        chain = await self._chain(owner, encoded_id.decode(errors="replace"))
        items = chain[0].items if chain else ()
        return next((item for item in items if id_of(item) == item_id), None)

    async def _read(self, *name: str) -> bytes | None:
        """Return the decrypted value of a name; an older secret may have encrypted it."""
        for entry in self._sealing.entries(*name):
            sealed = await self._store.use(entry.name, self._bounds.seconds)
            if sealed is not None and (body := entry.open(sealed)) is not None:
                return body
        return None

    def _seal(self, body: bytes, *name: str) -> dict[str, bytes]:
        entry = self._sealing.entries(*name)[0]
        return {entry.name: entry.seal(body, os.urandom(NONCE_BYTES))}


def _ids(response: StoredResponse) -> Iterable[str]:
    return filter(None, map(id_of, response.items))
