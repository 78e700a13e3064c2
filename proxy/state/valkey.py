"""A store in a Valkey or Redis server: the only module that uses the client library.

Every command has a short timeout. After two failures a circuit breaker (`backends.breaker`) rejects
all commands for some time, and `watch` sends PING until the server recovers. If the server is full,
entries are still read. Each change of the state is logged once and reported to a listener. While
the server works, there are no periodic checks.

The number of concurrent commands is limited: each needs a connection, and opening hundreds of
connections at once takes longer than the timeout, which would open the circuit breaker although the
server is healthy.
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

_CHECK_SECONDS = 0.25  # between checks while the circuit breaker is open
_MOST_COMMANDS = 32  # concurrent commands, each on a separate connection
_QUEUE_TIMEOUTS = 5  # a command waits for a slot for up to this many times the timeout
_DOWN = "state store %s cannot be used (%s); this replica shares no state until it recovers"
_FULL = "state store %s rejects writes (%s); this replica shares no state until it accepts them"
_BACK = "state store %s recovered; replicas share their state again"

Answer = TypeVar("Answer")


class StateListener(Protocol):
    """Receives reports about the store."""

    def report_state(self, server: str, *, is_up: bool) -> None:
        """Report whether the store can be read and written."""

    def count_state_error(self, operation: str) -> None:
        """Count an operation that the store did not execute."""


@dataclass(frozen=True, slots=True)
class StateAddress:
    """The address of a server; `name` is the part without credentials, for logs and metrics."""

    url: str
    name: str


def address_of(url: str) -> StateAddress:
    """Parse an address; `namespace`, an option of Temper, is removed from its query."""
    parts = urlsplit(url)
    query = urlencode([option for option in parse_qsl(parts.query) if option[0] != "namespace"])
    client_url = url.partition("?")[0] + (query and f"?{query}")
    name = parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]
    return StateAddress(client_url, name)


@asynccontextmanager
async def open_valkey(
    url: str, timeout_seconds: float, listener: StateListener
) -> AsyncGenerator["ValkeyStore", None]:
    """Connect to a server while the block runs.

    If the server is unreachable, the first command raises an error, not this function.
    """
    address = address_of(url)
    has_tls = urlsplit(url).scheme in {"valkeys", "rediss"}
    # the client does not check host names by default, and rejects the option without TLS
    tls_options = {"ssl_check_hostname": True} if has_tls else {}
    client = Valkey.from_url(
        address.url,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        lib_name=None,  # no CLIENT SETINFO, which costs two commands for each connection
        lib_version=None,
        **tls_options,
    )
    store = ValkeyStore(client, address.name, timeout_seconds, listener)
    watching = asyncio.create_task(store.watch())
    try:
        yield store
    finally:
        # repeated, because `asyncio.wait_for`, which the client uses, may lose a cancellation
        while not watching.done():
            watching.cancel()
            await asyncio.wait({watching}, timeout=timeout_seconds)
        await client.aclose()


@dataclass(eq=False)
class ValkeyStore:
    """A `Store` in a server; `clock` returns seconds."""

    _client: Valkey
    _name: str
    _timeout_seconds: float
    _listener: StateListener
    clock: Callable[[], float] = time.monotonic
    _breaker: Breaker = field(default_factory=Breaker)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_COMMANDS))
    _is_full: bool = False
    _was_usable: bool = True
    _has_failed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_usable(self) -> bool:
        """True if the server is expected to accept a write, judging by the latest commands."""
        return not self._is_full and self._breaker.state(self.clock()) == "closed"

    async def watch(self) -> None:
        """Check the server once, and after each failure repeatedly until it recovers."""
        self._listener.report_state(self._name, is_up=True)
        self._has_failed.set()
        while await self._has_failed.wait():
            self._has_failed.clear()
            try:
                await self._run("ping", self._client.ping)
            except StateUnavailable as error:
                # a server that responds with an error is reachable; the next write will show
                # whether it accepts writes
                if not isinstance(error.__cause__, ResponseError):
                    self._has_failed.set()
                    await asyncio.sleep(_CHECK_SECONDS)

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        claim = partial(self._client.set, name, value, nx=True, px=_milliseconds(seconds))
        return bool(await self._write("claim", claim))

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        return await self._put("renew", name, value, final=value, seconds=seconds)

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        return await self._put("finish", name, value, final=final, seconds=seconds)

    async def release(self, name: str, value: bytes) -> None:
        await self._run(
            "release",
            lambda: self._change_if(name, (value,), lambda pipeline: pipeline.delete(name)),
        )

    async def look_up(self, name: str) -> bytes | None:
        return await self._run("look_up", lambda: _read(self._client.get(name)))

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        milliseconds = _milliseconds(seconds)

        async def keep() -> None:
            async with self._client.pipeline(transaction=True) as pipeline:
                for name, value in entries.items():
                    pipeline.set(name, value, px=milliseconds)
                await pipeline.execute()

        await self._write("keep", keep)

    async def use(self, name: str, seconds: float) -> bytes | None:
        milliseconds = _milliseconds(seconds)
        return await self._run("use", lambda: _read(self._client.getex(name, px=milliseconds)))

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        milliseconds = _milliseconds(seconds)

        async def prolong() -> None:
            async with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.pexpire(name, milliseconds)
                await pipeline.execute()

        await self._run("prolong", prolong)

    async def forget(self, names: Sequence[str]) -> bool:
        return bool(await self._run("forget", lambda: self._client.delete(*names)))

    async def _put(
        self, operation: str, name: str, value: bytes, *, final: bytes, seconds: float
    ) -> bool:
        """Store `final` under a name that has `value` or no value; return whether it was stored."""
        milliseconds = _milliseconds(seconds)

        def put() -> Awaitable[bool]:
            return self._change_if(
                name, (value, None), lambda pipeline: pipeline.set(name, final, px=milliseconds)
            )

        return await self._write(operation, put)

    async def _change_if(
        self, name: str, expected: Sequence[bytes | None], change: Callable[[Pipeline], object]
    ) -> bool:
        """Change a name if it has one of the expected values, atomically (WATCH, MULTI, EXEC)."""
        async with self._watching_pipeline() as pipeline:
            await pipeline.watch(name)
            if await pipeline.get(name) not in expected:
                return False
            pipeline.multi()
            change(pipeline)
            try:
                results = await pipeline.execute()
            except WatchError:  # another replica has changed the value in between
                return False
            return bool(results[0])

    @asynccontextmanager
    async def _watching_pipeline(self) -> AsyncGenerator[Pipeline, None]:
        """Open a pipeline, and return its connection to the pool in every case.

        At the end of a pipeline, the client valkey 6.2 sends UNWATCH. If the response does not
        arrive in time, the pipeline keeps its connection until it is garbage collected.
        """
        pipeline = self._client.pipeline(transaction=True)
        try:
            async with pipeline:
                yield pipeline
        finally:
            if (connection := pipeline.connection) is not None:
                pipeline.connection = None
                await connection.disconnect(nowait=True)
                await self._client.connection_pool.release(connection)

    async def _write(self, operation: str, command: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a writing command; its success proves that the server is not full."""
        answer = await self._run(operation, command)
        self._is_full = False
        self._report(_BACK)
        return answer

    async def _run(self, operation: str, command: Callable[[], Awaitable[Answer]]) -> Answer:
        """Wait for one of the `_MOST_COMMANDS` slots, and run a command in it.

        Raises `StateUnavailable`.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds * _QUEUE_TIMEOUTS):
                await self._slots.acquire()
        except TimeoutError as error:
            # no slot became free; the server did not fail, so the breaker is not notified
            self._listener.count_state_error(operation)
            raise StateUnavailable from error
        try:
            return await self._execute(operation, command)
        finally:
            self._slots.release()

    async def _execute(self, operation: str, command: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a command; raises `StateUnavailable`, immediately if the circuit breaker is open."""
        now = self.clock()
        if not self._breaker.allows(now):
            raise StateUnavailable
        self._breaker.begin(now)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await command()
        except ResponseError as error:  # the server works, but rejects the command, e.g. with OOM
            self._breaker.record_success()
            self._is_full = True
            self._listener.count_state_error(operation)
            self._report(_FULL, error)
            raise StateUnavailable from error
        except Exception as error:  # the client raises arbitrary errors for an invalid response
            self._breaker.record_failure(self.clock())
            self._has_failed.set()
            self._listener.count_state_error(operation)
            self._report(_DOWN, error)
            raise StateUnavailable from error
        except BaseException:
            self._breaker.record_abandoned()
            raise
        self._breaker.record_success()
        self._report(_BACK)
        return answer

    def _report(self, message: str, error: Exception | None = None) -> None:
        """Log and report the store's state if it has changed."""
        is_usable = self.is_usable
        if is_usable == self._was_usable:
            return
        self._was_usable = is_usable
        self._listener.report_state(self._name, is_up=is_usable)
        if error is None:
            logger.info(message, self._name)
        else:
            logger.warning(message, self._name, str(error) or type(error).__name__)


async def _read(command: Awaitable[object]) -> bytes | None:
    """Return the response to GET or GETEX; raises `ValkeyError` if it has another type."""
    answer = await command
    if answer is None or isinstance(answer, bytes):
        return answer
    raise ValkeyError(f"the server answered with {type(answer).__name__} instead of bytes")


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # the server rejects PX 0
