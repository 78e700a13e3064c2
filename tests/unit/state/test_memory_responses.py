import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.dialects.openai_responses.store import StoredResponse
from proxy.state.memory_responses import Bounds, MemoryStore


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def response(name: str, previous: str | None = None, size: int = 0) -> StoredResponse:
    items = json.dump({"id": f"{name}_in", "text": "x" * size})
    return StoredResponse(name, [items], [json.dump({"id": f"{name}_out"})], b"{}", previous)


def store_of(*responses: StoredResponse, clock: Clock | None = None) -> MemoryStore:
    store = MemoryStore(clock or Clock(), Bounds(responses=3, bytes=10_000, seconds=60))
    for response in responses:
        store.keep("me", response)
    return store


def ids(items: list[bytes] | None) -> list[str] | None:
    if items is None:
        return None
    return [json.split_object(item)["id"].decode().strip('"') for item in items]


def test_the_history_of_a_chain_has_the_items_of_all_responses_in_order() -> None:
    store = store_of(response("a"), response("b", "a"), response("c", "b"))
    assert ids(store.history("me", "c")) == ["a_in", "a_out", "b_in", "b_out", "c_in", "c_out"]
    assert ids(store.inputs("me", "c")) == ["a_in", "a_out", "b_in", "b_out", "c_in"]
    assert ids(store.history("me", "a")) == ["a_in", "a_out"]


def test_responses_stored_under_another_api_key_are_not_returned() -> None:
    store = store_of(response("a"))
    assert store.find("me", "a") == response("a")
    assert store.item("me", "a_out") == b'{"id":"a_out"}'
    assert store.find("you", "a") is None
    assert store.history("you", "a") is None
    assert store.inputs("you", "a") is None
    assert store.item("you", "a_out") is None
    assert not store.forget("you", "a")


def test_history_is_none_if_an_earlier_response_was_deleted() -> None:
    store = store_of(response("a"), response("b", "a"))
    assert store.forget("me", "a")
    assert not store.forget("me", "a")
    assert store.item("me", "a_in") is None
    assert store.history("me", "b") is None
    assert store.find("me", "b") is not None
    assert ids(store.inputs("me", "b")) == ["b_in"]


def test_the_latest_response_of_the_least_recently_used_chain_is_evicted_first() -> None:
    store = store_of(response("a"), response("b", "a"), response("c"))
    store.find("me", "b")
    store.keep("me", response("d"))
    assert store.find("me", "c") is None
    store.keep("me", response("e"))
    assert store.history("me", "a") is not None
    assert store.find("me", "b") is None


def test_a_response_larger_than_the_limit_of_bytes_is_not_stored() -> None:
    store = store_of(response("a", size=5_000), response("b", size=20_000))
    assert store.find("me", "b") is None
    assert store.find("me", "a") is not None
    store.keep("me", response("c", size=5_000))
    assert store.find("me", "a") is None
    assert store.find("me", "c") is not None


def test_a_response_expires_unless_its_chain_is_used() -> None:
    clock = Clock()
    store = store_of(response("a"), response("b", "a"), response("c"), clock=clock)
    clock.now = 50
    assert store.item("me", "b_out") is not None
    clock.now = 100
    assert store.find("me", "c") is None
    assert store.history("me", "b") is not None
    clock.now = 161
    assert store.item("me", "a_in") is None
    assert store.find("me", "b") is None


def test_the_latest_of_two_items_with_the_same_id_is_returned() -> None:
    again = StoredResponse("b", [b'{"id":"a_out","again":true}', b"[1]", b'{"id":7}'], [], b"{}")
    store = store_of(response("a"), again)
    assert store.forget("me", "a")
    assert store.item("me", "a_out") == b'{"id":"a_out","again":true}'
    assert store.item("me", "") is None


def test_a_response_that_is_stored_twice_counts_only_once_towards_the_limit_of_bytes() -> None:
    store = store_of(
        response("a", size=4_000), response("a", size=4_000), response("b", size=2_000)
    )
    assert store.find("me", "a") is not None
    assert store.find("me", "b") is not None


@pytest.mark.parametrize("name", ["", "resp_none"])
def test_find_returns_none_for_an_unknown_response_id(name: str) -> None:
    assert store_of().find("me", name) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 30)), max_size=40))
def test_eviction_and_expiry_never_remove_a_response_before_its_successors(
    steps: list[tuple[int, int, int]],
) -> None:
    clock = Clock()
    store = MemoryStore(clock, Bounds(responses=4, bytes=20_000, seconds=40))
    for kept, (use, previous, passed) in enumerate(steps):
        clock.now += passed
        store.find("me", f"r{use}")
        parent = f"r{previous}" if store.find("me", f"r{previous}") else None
        store.keep("me", response(f"r{kept}", parent))
        alive = [name for name in map("r{}".format, range(kept + 1)) if store.inputs("me", name)]
        assert len(alive) <= 4
        assert all(store.history("me", name) is not None for name in alive)


def test_concurrent_use_by_several_threads_keeps_the_limit_of_responses() -> None:
    store = MemoryStore(lambda: 0.0, Bounds(responses=2))
    responses = [StoredResponse(f"r{number}", [], [], b"{}") for number in range(10_000)]

    def use(owner: str) -> None:
        for response in responses:
            store.keep(owner, response)
            store.find(owner, response.id)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(use, owner) for owner in "abcd"]:
                done.result()
    finally:
        sys.setswitchinterval(before)
    assert (
        sum(
            store.find(owner, response.id) is not None for owner in "abcd" for response in responses
        )
        == 2
    )


@pytest.mark.fault("F102")
@pytest.mark.parametrize("size", [0, 2_500], ids=["by number", "by bytes"])
def test_many_responses_of_one_api_key_do_not_evict_the_responses_of_another(size: int) -> None:
    store = store_of(response("a", size=size))
    for number in range(20):
        store.keep("you", response(f"b{number}", size=size))
    assert store.find("me", "a") is not None
    assert store.find("you", "b19") is not None
    assert store.find("you", "b0") is None
