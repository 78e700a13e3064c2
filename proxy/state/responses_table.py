"""The SQL tables and queries of stored responses.

Every function blocks on the disk and raises `sqlite3.Error`; only one thread may use the
connection. The behavior is that of `MemoryStore`. Owners are stored as digests, because an owner
may be an API key, and the file must not reveal it.
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

# `whole` is the JSON of the response object; `items` has its input and output items in order
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
# The first row is the latest response. The limit on the depth ends the recursion in a manipulated
# file whose links form a cycle.
_CHAIN = """WITH RECURSIVE chain (number, id, previous_id, depth) AS (
    SELECT number, id, previous_id, 0 FROM responses
        WHERE owner = :owner AND id = :id AND used_at >= :oldest
    UNION ALL SELECT earlier.number, earlier.id, earlier.previous_id, depth + 1
        FROM chain
        JOIN responses AS earlier ON earlier.owner = :owner AND earlier.id = chain.previous_id
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
# `max`: if the clock was set back, the most recently used response must not become the oldest.
_USE = "UPDATE responses SET used_at = max(used_at, ?) WHERE number = ?"

Read = TypeVar("Read")


class _ChainRow(NamedTuple):
    number: int
    id: str
    previous_id: str | None


@dataclass(eq=False)
class ResponsesTable(ResponseStore):
    """Stores responses by their owner; `now` returns a Unix time in seconds."""

    _connection: sqlite3.Connection
    _now: Callable[[], float]
    _bounds: Bounds

    def __post_init__(self) -> None:
        with self._writing():
            self._evict()

    def keep(self, owner: str, response: StoredResponse) -> None:
        if response.size > self._bounds.bytes:
            return
        owner_digest = _digest(owner)
        row = (owner_digest, response.id, response.previous_id, response.size, 0, response.whole)
        with self._writing():
            inserted = self._connection.execute(_KEEP, row)
            if not inserted.rowcount:  # the id is already stored
                return
            number = inserted.lastrowid
            input_count = len(response.inputs)
            rows = [
                (number, index, index >= input_count, id_of(item) or None, item)
                for index, item in enumerate(response.items)
            ]
            self._connection.executemany(_KEEP_ITEM, rows)
            self._use(self._chain(owner_digest, response.id, oldest=0))
            self._evict()

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        return self._read(owner, response_id, lambda chain: self._response(chain[0]))

    def chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        return self._read(owner, response_id, lambda rows: [*map(self._response, rows)]) or []

    def item(self, owner: str, item_id: str) -> bytes | None:
        parameters = item_id, _digest(owner), self._oldest
        match = self._connection.execute(_ITEM, parameters).fetchone()
        if match is None:
            return None
        response_id, item = match
        return self._read(owner, response_id, lambda _: bytes(item))

    def forget(self, owner: str, response_id: str) -> bool:
        delete = "DELETE FROM responses WHERE owner = ? AND id = ?"
        with self._writing():
            self._evict()
            return self._connection.execute(delete, (_digest(owner), response_id)).rowcount > 0

    def _read(
        self, owner: str, response_id: str, convert: Callable[[Sequence[_ChainRow]], Read | None]
    ) -> Read | None:
        """Pass a response and its predecessors to `convert`, and mark them as used."""
        # one transaction, because another process may delete a row between two queries
        self._connection.execute("BEGIN")
        try:
            chain = self._chain(_digest(owner), response_id, self._oldest)
            result = convert(chain) if chain else None
        finally:
            self._connection.execute("ROLLBACK")
        # if the file is locked or the disk is full, only the time of use is lost
        with suppress(sqlite3.OperationalError), self._writing():
            self._use(chain)
        return result

    def _chain(self, owner: bytes, response_id: str, oldest: int) -> list[_ChainRow]:
        parameters = {"owner": owner, "id": response_id, "oldest": oldest}
        rows = self._connection.execute(_CHAIN, {**parameters, "most": self._bounds.responses})
        return [_ChainRow(*row) for row in rows]

    def _response(self, row: _ChainRow) -> StoredResponse:
        (whole,) = self._connection.execute(_WHOLE, (row.number,)).fetchone()
        inputs_and_output: tuple[list[bytes], list[bytes]] = [], []
        for item, is_output in self._connection.execute(_ITEMS, (row.number,)):
            inputs_and_output[is_output].append(item)
        return StoredResponse(row.id, *inputs_and_output, whole, row.previous_id)

    def _use(self, chain: Sequence[_ChainRow]) -> None:
        """Update the times of use; the time of each predecessor is one microsecond later."""
        # The beginning of a conversation must be evicted last: later responses are useless
        # without it.
        now = self._microseconds
        rows = [(now + depth, row.number) for depth, row in enumerate(chain)]
        self._connection.executemany(_USE, rows)

    def _evict(self) -> None:
        """Delete expired responses, and the responses beyond the bounds (see `shares`)."""
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
