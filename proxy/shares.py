"""Bounds that several owners share: entries are removed from the owner with the most entries.

    owners of the entries    a a a a b    one entry more than the bound
    removed                  the oldest entry of a

So a client that floods a store removes only its own entries (F102).
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def find_excess(
    entries: Iterable[tuple[Key, str, int]], most: int, most_bytes: int
) -> Iterator[Key]:
    """Yield the keys of the entries to remove, so that the other entries are within the bounds.

    `entries` are (key, owner, size), the oldest entry first. In each step, the owner with the most
    entries loses its oldest entry (the owner with the most bytes, if only these exceed their
    bound). If several owners have equally many, the owner whose entry comes first in `entries` is
    chosen. Takes O(entries) time, plus O(owners) for each removed entry.
    """
    queues: dict[str, deque[tuple[Key, int]]] = {}
    counts, sizes = Counter[str](), Counter[str]()
    for key, owner, size in entries:
        queues.setdefault(owner, deque()).append((key, size))
        counts[owner] += 1
        sizes[owner] += size
    while counts.total() > most or sizes.total() > most_bytes:
        weights = counts if counts.total() > most else sizes
        heaviest = max(queues, key=weights.__getitem__)
        key, size = queues[heaviest].popleft()
        counts[heaviest] -= 1
        sizes[heaviest] -= size
        if not queues[heaviest]:
            del queues[heaviest]
        yield key


def find_displaced(owners: Sequence[str], owner: str) -> int | None:
    """Return the index of the entry that a new entry of `owner` displaces from a full queue.

    `owners` are the owners of the entries, the oldest entry first. The newest entry of the owner
    with the most entries is displaced. Returns None if `owner`, with the new entry, would have at
    least as many entries as every other owner.
    """
    counts = Counter(owners)
    heaviest, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if most <= counts[owner] + 1:
        return None
    return len(owners) - 1 - owners[::-1].index(heaviest)
