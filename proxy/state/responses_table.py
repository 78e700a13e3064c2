"""Responses in a SQLite database: who may see them, how they are linked, how long they are kept.

Every function waits for the disk and raises `sqlite3.Error`; one thread has the connection. It does
what `MemoryStore` does, and survives a restart. Owners are stored as digests, because an owner may
be a key.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from proxy import shares
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse, id_of
from proxy.state.memory_responses import Bounds

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS responses (
        number INTEGER PRIMARY KEY AUTOINCREMENT, owner BLOB NOT NULL, id TEXT NOT NULL,
        previous_id TEXT, size INTEGER NOT NULL, used_at INTEGER NOT NULL, whole BLOB NOT NULL,
        UNIQUE (owner, id))""",
    "CREATE INDEX IF NOT EXISTS responses_by_use ON responses (used_at, size)",
    """CREATE TABLE IF NOT EXISTS items (
        response INTEGER NOT NULL REFERENCES responses ON DELETE CASCADE, place INTEGER NOT NULL,
        is_output INTEGER NOT NULL, id TEXT, item BLOB NOT NULL, PRIMARY KEY (response, place))""",
    "CREATE INDEX IF NOT EXISTS items_by_id ON items (id) WHERE id IS NOT NULL",
)

_MICROSECONDS = 10**6
# The latest first. The limit guards against a file in which somebody has written a cycle.
_CHAIN = """WITH RECURSIVE chain (number, id, previous_id, depth) AS (
    SELECT number, id, previous_id, 0 FROM responses
        WHERE owner = :owner AND id = :id AND used_at >= :oldest
    UNION ALL SELECT one.number, one.id, one.previous_id, depth + 1
        FROM chain JOIN responses AS one ON one.owner = :owner AND one.id = chain.previous_id
        WHERE depth < :most)
    SELECT number, id, previous_id FROM chain ORDER BY depth"""
_ITEM = """SELECT responses.id, items.item FROM items
    JOIN responses ON responses.number = items.response
    WHERE items.id = ? AND responses.owner = ? AND responses.used_at >= ?
    ORDER BY responses.number DESC LIMIT 1"""
_KEEP = """INSERT OR IGNORE INTO responses (owner, id, previous_id, size, used_at, whole)
    VALUES (?, ?, ?, ?, ?, ?)"""
_KEEP_ITEM = "INSERT INTO items (response, place, is_output, id, item) VALUES (?, ?, ?, ?, ?)"
_WHOLE = "SELECT whole FROM responses WHERE number = ?"
_ITEMS = "SELECT item, is_output FROM items WHERE response = ? ORDER BY place"
# An entry that was used last keeps its time if the clock was set back since.
_USE = "UPDATE responses SET used_at = max(used_at, ?) WHERE number = ?"

Read = TypeVar("Read")


class _FoundRow(NamedTuple):
    number: int
    id: str
    previous_id: str | None


@dataclass(eq=False)
class ResponsesTable(ResponseStore):
    """Keeps responses by their owner; `now` is a Unix time in seconds."""

    _connection: sqlite3.Connection
    _now: Callable[[], float]
    _bounds: Bounds

    def __post_init__(self) -> None:
        with self._writing():
            self._evict()

    def keep(self, owner: str, response: StoredResponse) -> None:
        if response.size > self._bounds.bytes:
            return
        whose = _digest(owner)
        row = (whose, response.id, response.previous_id, response.size, 0, response.whole)
        with self._writing():
            kept = self._connection.execute(_KEEP, row)
            if not kept.rowcount:
                return
            number = kept.lastrowid
            asked = len(response.inputs)
            rows = [
                (number, place, place >= asked, id_of(item) or None, item)
                for place, item in enumerate(response.items)
            ]
            self._connection.executemany(_KEEP_ITEM, rows)
            self._use(self._chain(whose, response.id, oldest=0))
            self._evict()

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        return self._read(owner, response_id, lambda chain: self._response(chain[0]))

    def chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        return self._read(owner, response_id, lambda rows: [*map(self._response, rows)]) or []

    def item(self, owner: str, item_id: str) -> bytes | None:
        sought = item_id, _digest(owner), self._oldest
        found = self._connection.execute(_ITEM, sought).fetchone()
        if found is None:
            return None
        response_id, item = found
        return self._read(owner, response_id, lambda _: bytes(item))

    def forget(self, owner: str, response_id: str) -> bool:
        delete = "DELETE FROM responses WHERE owner = ? AND id = ?"
        with self._writing():
            self._evict()
            return self._connection.execute(delete, (_digest(owner), response_id)).rowcount > 0

    def _read(
        self, owner: str, response_id: str, make: Callable[[Sequence[_FoundRow]], Read | None]
    ) -> Read | None:
        """Convert a response and those before it, and mark them as used."""
        self._connection.execute("BEGIN")  # writes of others are not visible until the end
        try:
            chain = self._chain(_digest(owner), response_id, self._oldest)
            made = make(chain) if chain else None
        finally:
            self._connection.execute("ROLLBACK")
        # a locked file, or one on a full disk, can still be read
        with suppress(sqlite3.OperationalError), self._writing():
            self._use(chain)
        return made

    def _chain(self, owner: bytes, response_id: str, oldest: int) -> list[_FoundRow]:
        sought = {"owner": owner, "id": response_id, "oldest": oldest}
        rows = self._connection.execute(_CHAIN, {**sought, "most": self._bounds.responses})
        return [_FoundRow(*row) for row in rows]

    def _response(self, found: _FoundRow) -> StoredResponse:
        (whole,) = self._connection.execute(_WHOLE, (found.number,)).fetchone()
        sides: tuple[list[bytes], list[bytes]] = [], []
        for item, is_output in self._connection.execute(_ITEMS, (found.number,)):
            sides[is_output].append(item)
        return StoredResponse(found.id, *sides, whole, found.previous_id)

    def _use(self, chain: Sequence[_FoundRow]) -> None:
        """Note a use; what comes earlier in a conversation counts as used a little later."""
        now = self._microseconds
        rows = [(now + place, found.number) for place, found in enumerate(chain)]
        self._connection.executemany(_USE, rows)

    def _evict(self) -> None:
        """Delete what was not used for too long, then what exceeds an owner's share."""
        execute = self._connection.execute
        execute("DELETE FROM responses WHERE used_at < ?", (self._oldest,))
        count, size = execute("SELECT count(*), total(size) FROM responses").fetchone()
        most, most_bytes = self._bounds.responses, self._bounds.bytes
        if count > most or size > most_bytes:
            rows = execute("SELECT number, hex(owner), size FROM responses ORDER BY used_at")
            for number in shares.find_excess(rows.fetchall(), most, most_bytes):
                execute("DELETE FROM responses WHERE number = ?", (number,))

    @property
    def _microseconds(self) -> int:
        return int(self._now() * _MICROSECONDS)

    @property
    def _oldest(self) -> int:
        return self._microseconds - int(self._bounds.seconds * _MICROSECONDS)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the block in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _digest(owner: str) -> bytes:
    return hashlib.blake2b(owner.encode("utf-8", "surrogateescape"), digest_size=16).digest()
