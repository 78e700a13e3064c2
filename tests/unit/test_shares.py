"""Bounds that several owners share: each owner may use an equal share of the entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shares import find_displaced, find_excess


@pytest.mark.parametrize(
    ("entries", "dropped"),
    [
        ("a1", []),
        ("a1 b1 b1", []),
        ("a1 b1 b1 b1", [1]),
        ("b1 a1 b1 b1 b1", [0, 2]),
        ("a1 b1 c1 d1", [0]),
        ("a1 b9 b9", [1]),
        ("a9 b1 b9", [1, 0]),
    ],
)
def test_the_oldest_entries_of_an_owner_that_exceeds_its_share_are_removed(
    entries: str, dropped: list[int]
) -> None:
    split = [(number, entry[0], int(entry[1:])) for number, entry in enumerate(entries.split())]
    assert [*find_excess(split, 3, 10)] == dropped


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50))),
    st.integers(1, 9),
    st.integers(0, 200),
)
def test_find_excess_removes_no_entry_of_an_owner_within_its_share(
    owned: list[tuple[str, int]], most: int, most_bytes: int
) -> None:
    entries = [(number, owner, size) for number, (owner, size) in enumerate(owned)]
    dropped = {*find_excess(entries, most, most_bytes)}
    kept = [entry for entry in entries if entry[0] not in dropped]
    assert len(kept) <= most
    assert sum(size for *_, size in kept) <= most_bytes
    owners = {owner for _, owner, _ in entries}
    for owner in owners:
        share = [entry for entry in entries if entry[1] == owner]
        is_small = sum(size for *_, size in share) * len(owners) <= most_bytes
        if is_small and len(share) * len(owners) <= most:
            assert {number for number, *_ in share}.isdisjoint(dropped)


@pytest.mark.parametrize(
    ("owners", "owner", "displaced"),
    [
        *(("", "a", None), ("aa", "a", None), ("ab", "c", None), ("aab", "b", None)),
        *(("aab", "c", 1), ("abaab", "b", None), ("abaaab", "b", 4), ("aabbb", "c", 4)),
    ],
)
def test_the_newest_entry_of_the_owner_with_the_most_entries_is_displaced(
    owners: str, owner: str, displaced: int | None
) -> None:
    assert find_displaced(owners, owner) == displaced
