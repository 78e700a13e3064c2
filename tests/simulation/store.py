"""A Valkey server that workers share: it drops connections, stalls, is full, or loses its data.

It implements the commands that `proxy.state.valkey` sends, in the protocol RESP 2, so the client
library runs unchanged on the simulated network. `play_event` plays the events of a scenario. If the
client library (extra `state`) is not installed, seeds with a store are skipped.

    -> *5 $3 SET $10 temper:abc $2 {} $2 NX $2 PX $5 15000
    <- +OK
"""

import asyncio
import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.state.claims import ClaimTimes
from tests.simulation.clock import CLOCK
from tests.simulation.network import Network, context_of
from tests.simulation.scenario import Event, StoreTrouble

_HOST, _PORT = "10.0.3.1", 6379
HAS_CLIENT = all(map(importlib.util.find_spec, ("valkey", "cryptography")))
OCCURRENCES = {
    "store reset": "resets of the store",
    "store stall": "stalls of the store",
    "store full": "full stores",
    "store restart": "restarts of the store",
}
URL = f"valkey://{_HOST}:{_PORT}"
_CLAIM_MS = round(ClaimTimes().claim * 1000)
_LATE = 8.0  # seconds after which all workers have noticed that the store works again
_WRITES = frozenset({b"SET", b"PEXPIRE"})  # commands that a full server rejects; it can delete
_OK, _NOTHING, _QUEUED = b"+OK\r\n", b"$-1\r\n", b"+QUEUED\r\n"
_FULL = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


@dataclass(slots=True)
class _Entry:
    value: bytes
    milliseconds: int
    until: float


@dataclass(eq=False)
class Store:
    """The server; `troubles` has the times (begin, end) in which commands or data may be lost."""

    network: Network
    is_full: bool = False
    troubles: list[tuple[float, float]] = field(default_factory=list)
    commands: Counter[str] = field(default_factory=Counter)
    _entries: dict[bytes, _Entry] = field(default_factory=dict)
    _changes: Counter[bytes] = field(default_factory=Counter)

    async def start(self) -> None:
        serving = asyncio.start_server(self._serve, _HOST, _PORT)
        await asyncio.get_running_loop().create_task(serving, context=context_of(_HOST))

    async def play_event(self, event: Event, kind: StoreTrouble) -> None:
        """Play an event; it lasts for `event.seconds`, except for a reset."""
        trouble = len(self.troubles)
        self.troubles.append((CLOCK.now, CLOCK.now + event.seconds))
        match kind:
            case "store reset":
                self.network.crash(_HOST)
                self.network.restart(_HOST)
            case "store stall":
                self.network.stall(_HOST)
                await asyncio.sleep(event.seconds)
                self.network.resume(_HOST)
            case "store full":
                self.is_full = True
                await asyncio.sleep(event.seconds)
                self.is_full = False
            case "store restart":
                self._entries.clear()
                self.network.crash(_HOST)
                await asyncio.sleep(event.seconds)
                self.network.restart(_HOST)
        self.troubles[trouble] = (self.troubles[trouble][0], CLOCK.now)

    def has_trouble(self, begun: float, over: float) -> bool:
        """Return whether a worker may have been unable to use the store between these times."""
        return any(begin <= over and begun <= end + _LATE for begin, end in self.troubles)

    def held_claims(self) -> int:
        """Return the number of claims to idempotency keys that have not expired."""
        return sum(
            entry.milliseconds == _CLAIM_MS and entry.until > CLOCK.now
            for entry in self._entries.values()
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Session(self)
        try:
            while not writer.is_closing():
                count = int((await reader.readuntil(b"\r\n"))[1:])
                words = [await _read_word(reader) for _ in range(count)]
                self.commands[words[0].decode()] += 1
                writer.write(session.respond(words))
        except (OSError, asyncio.IncompleteReadError):  # the client has disconnected
            pass
        finally:
            writer.close()

    def find(self, name: bytes) -> _Entry | None:
        entry = self._entries.get(name)
        return entry if entry is not None and entry.until > CLOCK.now else None

    def put(self, name: bytes, value: bytes, milliseconds: int) -> None:
        self._changes[name] += 1
        self._entries[name] = _Entry(value, milliseconds, CLOCK.now + milliseconds / 1000)

    def remove(self, name: bytes) -> bool:
        has_name = self.find(name) is not None
        self._changes[name] += has_name
        self._entries.pop(name, None)
        return has_name

    def version(self, name: bytes) -> tuple[int, bool]:
        """Return a value that changes when the entry is changed, removed or expires (`WATCH`)."""
        return self._changes[name], self.find(name) is not None


class _Session:
    """The state of one connection: the names it watches, and the commands of its transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[bytes, tuple[int, bool]] = {}
        self._queue: list[list[bytes]] | None = None

    def respond(self, words: list[bytes]) -> bytes:
        match words[0]:
            case b"MULTI":
                self._queue = []
                return _OK
            case b"EXEC":
                return self._execute()
            case b"UNWATCH":
                self._watched.clear()
                return _OK
            case b"WATCH":
                self._watched |= {name: self._store.version(name) for name in words[1:]}
                return _OK
            case _:
                pass
        if self._queue is not None:
            self._queue.append(words)
            return _QUEUED
        return self._run(words)

    def _execute(self) -> bytes:
        queue, self._queue = self._queue or [], None
        watched, self._watched = self._watched, {}
        if any(self._store.version(name) != version for name, version in watched.items()):
            return b"*-1\r\n"
        return b"*%d\r\n" % len(queue) + b"".join(map(self._run, queue))

    def _run(self, words: list[bytes]) -> bytes:
        if self._store.is_full and words[0] in _WRITES:
            return _FULL
        return _COMMANDS[words[0]](self._store, words[1:])


async def _read_word(reader: asyncio.StreamReader) -> bytes:
    length = int((await reader.readuntil(b"\r\n"))[1:])
    return (await reader.readexactly(length + 2))[:-2]


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


def _set(store: Store, words: list[bytes]) -> bytes:
    name, value, *options = words
    if b"NX" in options and store.find(name) is not None:
        return _NOTHING
    store.put(name, value, int(options[options.index(b"PX") + 1]))
    return _OK


def _get(store: Store, words: list[bytes]) -> bytes:
    entry = store.find(words[0])
    return _NOTHING if entry is None else _bulk(entry.value)


def _getex(store: Store, words: list[bytes]) -> bytes:
    answer = _get(store, words)
    _prolong(store, [words[0], words[2]])
    return answer


def _prolong(store: Store, words: list[bytes]) -> bytes:
    entry, milliseconds = store.find(words[0]), int(words[1])
    if entry is not None:
        store.put(words[0], entry.value, milliseconds)
    return b":%d\r\n" % (entry is not None)


_COMMANDS: Mapping[bytes, Callable[[Store, list[bytes]], bytes]] = {
    b"PING": lambda _store, _words: b"+PONG\r\n",
    b"SET": _set,
    b"GET": _get,
    b"GETEX": _getex,
    b"PEXPIRE": _prolong,
    b"DEL": lambda store, words: b":%d\r\n" % sum(map(store.remove, words)),
}
