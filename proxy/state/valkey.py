"""A store in a Valkey or Redis server: the only module that knows its client.

Nobody waits long for it. A server that fails twice is not used for a while, as with a backend, but
watched. One that answers but is full is still read. Each change is logged once and reported to a
listener. While the server is well, only requested commands are sent, and few at once: a rush that
opened a connection for each command would mistake its own delay for the server's, and take the
server for dead.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from valkey.asyncio import Valkey
from valkey.asyncio.client import Pipeline
from valkey.exceptions import ResponseError, ValkeyError, WatchError

from proxy.backends.breaker import Breaker
from proxy.errors import StateUnavailable

logger = logging.getLogger(__name__)

_LOOK = 0.25  # seconds between checks of the breaker of a server that is not used
_AT_ONCE = 32  # commands, each on a connection of its own
_IN_LINE = 5  # a command waits this many times its patience for the others
_DOWN = "%s cannot be used (%s): this replica is on its own until it is back"
_FULL = "%s rejects writes (%s): this replica stores its keys and responses itself until that ends"
_BACK = "%s is used again: what is promised holds for all replicas"

Answer = TypeVar("Answer")


class StateListener(Protocol):
    """Hears about the state of the store."""

    def report_state(self, server: str, *, is_up: bool) -> None:
        """Note whether the store can be read and written."""

    def count_state_error(self, operation: str) -> None:
        """Count an operation that the store did not carry out."""


@dataclass(frozen=True, slots=True)
class StateAddress:
    """Where a server is; `name` is the part that may be shown."""

    url: str
    name: str


def address_of(url: str) -> StateAddress:
    """Parse an address; options for Temper are removed from its query."""
    parts = urlsplit(url)
    query = urlencode([one for one in parse_qsl(parts.query) if one[0] != "namespace"])
    plain = url.partition("?")[0] + (query and f"?{query}")
    where = parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]
    return StateAddress(plain, where)


@asynccontextmanager
async def open_valkey(
    url: str, patience: float, listener: StateListener
) -> AsyncGenerator["ValkeyStore", None]:
    """Use a server on this loop while the block runs, with `patience` in seconds; never raises."""
    address = address_of(url)
    has_tls = urlsplit(url).scheme in {"valkeys", "rediss"}
    checked = {"ssl_check_hostname": True} if has_tls else {}
    client = Valkey.from_url(
        address.url,
        socket_timeout=patience,
        socket_connect_timeout=patience,
        lib_name=None,
        lib_version=None,
        **checked,
    )
    store = ValkeyStore(client, address.name, patience, listener)
    watching = asyncio.create_task(store.watch())
    try:
        yield store
    finally:
        while not watching.done():  # `wait_for`, as the client uses it, may lose a cancellation
            watching.cancel()
            await asyncio.wait({watching}, timeout=patience)
        await client.aclose()


@dataclass(eq=False)
class ValkeyStore:
    """A `Store`; `clock` is a time in seconds."""

    _client: Valkey
    _name: str
    _patience: float
    _listener: StateListener
    clock: Callable[[], float] = time.monotonic
    _breaker: Breaker = field(default_factory=Breaker)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _is_full: bool = False
    _was_usable: bool = True
    _has_failed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_usable(self) -> bool:
        """Whether something kept now would be shared, as far as is known."""
        return not self._is_full and self._breaker.state(self.clock()) == "closed"

    async def watch(self) -> None:
        """Check the server once, and watch a failing one until it is well again."""
        self._listener.report_state(self._name, is_up=True)
        self._has_failed.set()
        while await self._has_failed.wait():
            self._has_failed.clear()
            try:
                await self._ask("ping", self._client.ping)
            except StateUnavailable as error:
                # after an answer of the server the next write finds out
                if not isinstance(error.__cause__, ResponseError):
                    self._has_failed.set()
                    await asyncio.sleep(_LOOK)

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        claim = partial(self._client.set, name, value, nx=True, px=_milliseconds(seconds))
        return bool(await self._write("claim", claim))

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        return await self._put("renew", name, value, final=value, seconds=seconds)

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        return await self._put("finish", name, value, final=final, seconds=seconds)

    async def release(self, name: str, value: bytes) -> None:
        await self._ask(
            "release", lambda: self._while_kept(name, (value,), lambda change: change.delete(name))
        )

    async def look_up(self, name: str) -> bytes | None:
        return await self._ask("look_up", lambda: _read(self._client.get(name)))

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        life = _milliseconds(seconds)

        async def keep() -> None:
            async with self._client.pipeline(transaction=True) as pipeline:
                for name, value in entries.items():
                    pipeline.set(name, value, px=life)
                await pipeline.execute()

        await self._write("keep", keep)

    async def use(self, name: str, seconds: float) -> bytes | None:
        life = _milliseconds(seconds)
        return await self._ask("use", lambda: _read(self._client.getex(name, px=life)))

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        life = _milliseconds(seconds)

        async def prolong() -> None:
            async with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.pexpire(name, life)
                await pipeline.execute()

        await self._ask("prolong", prolong)

    async def forget(self, names: Sequence[str]) -> bool:
        return bool(await self._ask("forget", lambda: self._client.delete(*names)))

    async def _put(
        self, operation: str, name: str, value: bytes, *, final: bytes, seconds: float
    ) -> bool:
        """Replace a value, which may be gone, by `final`; never replace another one."""
        life = _milliseconds(seconds)

        def put() -> Awaitable[bool]:
            kept = (value, None)
            return self._while_kept(name, kept, lambda change: change.set(name, final, px=life))

        return await self._write(operation, put)

    async def _while_kept(
        self, name: str, kept: Sequence[bytes | None], change: Callable[[Pipeline], object]
    ) -> bool:
        """Make a change while the name keeps one of these values."""
        async with self._client.pipeline(transaction=True) as pipeline:
            await pipeline.watch(name)
            if await pipeline.get(name) not in kept:
                return False
            pipeline.multi()
            change(pipeline)
            try:
                done = await pipeline.execute()
            except WatchError:
                return False
            return bool(done[0])

    async def _write(self, operation: str, command: Callable[[], Awaitable[Answer]]) -> Answer:
        """Write; success shows that there is room."""
        answer = await self._ask(operation, command)
        self._is_full = False
        self._tell(_BACK)
        return answer

    async def _ask(self, operation: str, command: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a command when there is room; raises `StateUnavailable`."""
        try:
            async with asyncio.timeout(self._patience * _IN_LINE):
                await self._room.acquire()
        except TimeoutError as error:  # which says nothing about the server
            self._listener.count_state_error(operation)
            raise StateUnavailable from error
        try:
            return await self._carry_out(operation, command)
        finally:
            self._room.release()

    async def _carry_out(self, operation: str, command: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a command; raises `StateUnavailable`, at once while the server is not used."""
        now = self.clock()
        if not self._breaker.allows(now):
            raise StateUnavailable
        self._breaker.begin(now)
        try:
            async with asyncio.timeout(self._patience):
                answer = await command()
        except ResponseError as error:  # it answers, but refuses
            self._breaker.record_success()
            self._is_full = True
            self._listener.count_state_error(operation)
            self._tell(_FULL, error)
            raise StateUnavailable from error
        except Exception as error:  # the client raises whatever an invalid answer causes
            self._breaker.record_failure(self.clock())
            self._has_failed.set()
            self._listener.count_state_error(operation)
            self._tell(_DOWN, error)
            raise StateUnavailable from error
        except BaseException:
            self._breaker.record_abandoned()
            raise
        self._breaker.record_success()
        self._tell(_BACK)
        return answer

    def _tell(self, words: str, error: Exception | None = None) -> None:
        """Report that the store's state has changed, if it has."""
        is_usable = self.is_usable
        if is_usable == self._was_usable:
            return
        self._was_usable = is_usable
        self._listener.report_state(self._name, is_up=is_usable)
        if error is None:
            logger.info(words, self._name)
        else:
            logger.warning(words, self._name, str(error) or type(error).__name__)


async def _read(asked: Awaitable[object]) -> bytes | None:
    answer = await asked
    if answer is None or isinstance(answer, bytes):
        return answer
    raise ValkeyError(f"it answered with {type(answer).__name__} instead of bytes")


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
