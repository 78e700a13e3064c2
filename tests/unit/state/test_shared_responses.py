import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import bounds
from proxy.conversation import json
from proxy.dialects.openai_responses.store import StoredResponse
from proxy.errors import StateUnavailable
from proxy.state.memory_responses import Bounds, MemoryStore
from proxy.state.sealing import Sealing
from proxy.state.shared_responses import TOO_LARGE, UNSHARED, SharedResponses
from tests.examples import examples
from tests.fakes.shared_store import SharedStore

Result = TypeVar("Result")

OWNER, OTHER_OWNER = "us", "them"
NEW, OLD = "the-new-secret-of-all", "the-old-secret-of-all"


def item(name: str) -> bytes:
    return json.dump({"type": "message", "id": name})


def response(name: str, previous: str | None = None) -> StoredResponse:
    inputs, output = [item(f"in_{name}")], [item(f"out_{name}"), b'{"type":"reasoning"}']
    return StoredResponse(name, inputs, output, b'{"id":"%s"}' % name.encode(), previous)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


class Replica:
    """The responses of one replica; tests call it from another thread than its event loop."""

    def __init__(
        self,
        portal: BlockingPortal,
        store: SharedStore,
        secrets: tuple[str, ...] = (NEW,),
        bounds: Bounds | None = None,
    ) -> None:
        self.lost: list[str] = []
        self._portal = portal

        async def make() -> SharedResponses:
            alone = MemoryStore(lambda: store.now, bounds or Bounds())
            return SharedResponses(
                store,
                Sealing(secrets, "temper"),
                alone,
                bounds or Bounds(),
                is_usable=lambda: not store.is_down,
                on_loss=self.lost.append,
            )

        self.responses = portal.call(make)

    def keep(self, *responses: StoredResponse, owner: str = OWNER) -> None:
        for response in responses:
            self.responses.keep(owner, response)
            self._portal.call(self.responses.flush)


@pytest.fixture
def store() -> SharedStore:
    return SharedStore()


def test_a_response_stored_by_one_replica_is_found_by_another(
    portal: BlockingPortal, store: SharedStore
) -> None:
    first_replica, other = Replica(portal, store), Replica(portal, store)
    first, second = response("a"), response("b", "a")
    first_replica.keep(first)
    other.keep(second)
    responses = first_replica.responses
    assert responses.find(OWNER, "b") == second
    assert responses.history(OWNER, "b") == [*first.items, *second.items]
    assert responses.inputs(OWNER, "b") == [*first.items, *second.inputs]
    assert responses.item(OWNER, "out_a") == item("out_a")
    assert responses.forget(OWNER, "b") is True
    assert responses.forget(OWNER, "b") is False
    assert other.responses.find(OWNER, "b") is None
    assert other.responses.item(OWNER, "out_b") is None


def test_an_unknown_response_or_a_response_of_another_owner_is_not_found(
    portal: BlockingPortal, store: SharedStore
) -> None:
    replica = Replica(portal, store)
    replica.keep(response("a"), response("c", "b"))
    responses = replica.responses
    assert responses.find(OTHER_OWNER, "a") is None
    assert responses.history(OWNER, "c") is None
    assert responses.inputs(OWNER, "c") == [*response("c").inputs]
    assert (
        responses.history(OWNER, "x"),
        responses.inputs(OWNER, "x"),
        responses.item(OWNER, "x"),
    ) == (None,) * 3


def test_using_a_response_also_postpones_the_expiry_of_its_predecessors(
    portal: BlockingPortal, store: SharedStore
) -> None:
    replica = Replica(portal, store, bounds=Bounds(seconds=10))
    replica.keep(response("a"), response("b", "a"), response("c"))
    store.now = 9
    assert replica.responses.find(OWNER, "b")
    store.now = 18
    assert replica.responses.item(OWNER, "in_a") == item("in_a")
    assert replica.responses.find(OWNER, "c") is None
    store.now = 29
    assert replica.responses.find(OWNER, "b") is None


def test_responses_stored_under_the_previous_secret_can_be_read_and_deleted(
    portal: BlockingPortal, store: SharedStore
) -> None:
    Replica(portal, store, (OLD,)).keep(response("a"))
    changed = Replica(portal, store, (NEW, OLD)).responses
    assert changed.history(OWNER, "a") == response("a").items
    assert changed.item(OWNER, "in_a") == item("in_a")
    assert Replica(portal, store).responses.find(OWNER, "a") is None
    assert changed.forget(OWNER, "a") is True


def test_an_entry_that_cannot_be_decoded_is_not_found(
    portal: BlockingPortal, store: SharedStore
) -> None:
    key = Sealing((NEW,), "temper").entries("response", OWNER, "a")[0]
    store.kept[key.name] = (key.seal(b"\xc1", bytes(12)), 100.0)
    assert Replica(portal, store).responses.find(OWNER, "a") is None
    key = Sealing((NEW,), "temper").entries("item", OWNER, "a")[0]
    store.kept[key.name] = (key.seal(b"\xc1", bytes(12)), 100.0)
    assert Replica(portal, store).responses.item(OWNER, "a") is None


def test_only_responses_stored_in_memory_during_an_outage_are_found_during_it(
    portal: BlockingPortal, store: SharedStore
) -> None:
    replica = Replica(portal, store)
    replica.keep(response("a"))
    store.is_down = True
    assert replica.responses.is_usable() is False
    replica.keep(response("b"), response("d", "a"))
    assert replica.lost == [UNSHARED, UNSHARED]
    responses = replica.responses
    assert responses.history(OWNER, "b") == response("b").items
    assert responses.item(OWNER, "in_b") == item("in_b")
    for ask in (
        responses.find,
        responses.history,
        responses.inputs,
        responses.item,
        responses.forget,
    ):
        with pytest.raises(StateUnavailable):
            ask(OWNER, "a")
    with pytest.raises(StateUnavailable):
        responses.history(OWNER, "d")
    store.is_down = False
    assert responses.history(OWNER, "d") == [*response("a").items, *response("d").items]
    assert responses.forget(OWNER, "d") is True


def test_a_response_too_large_for_the_store_is_stored_in_memory(
    portal: BlockingPortal, store: SharedStore
) -> None:
    replica = Replica(portal, store)
    large = StoredResponse("a", [], [], b"x" * bounds.RESPONSE_BYTES)
    replica.keep(large)
    assert replica.lost == [TOO_LARGE]
    assert store.operations == []
    assert replica.responses.find(OWNER, "a") == large


def test_the_history_of_a_cyclic_chain_is_none(portal: BlockingPortal, store: SharedStore) -> None:
    replica = Replica(portal, store, bounds=Bounds(responses=3))
    replica.keep(response("a", "b"), response("b", "a"))
    assert replica.responses.history(OWNER, "a") is None


async def test_a_call_on_the_event_loop_of_the_replica_raises_state_unavailable(
    portal: BlockingPortal, store: SharedStore
) -> None:
    responses = Replica(portal, store).responses

    async def call_on_loop() -> None:
        with pytest.raises(StateUnavailable):
            responses.find(OWNER, "a")

    portal.call(call_on_loop)
    outcome = responses.find(OWNER, "a")
    assert outcome is None


class HangingStore(SharedStore):
    """A store that never responds."""

    async def use(self, name: str, seconds: float) -> bytes | None:
        del name, seconds
        await asyncio.Event().wait()
        return None


def test_a_read_from_a_store_that_never_responds_raises_state_unavailable(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.state.shared_responses._READ_SECONDS", 0.01)
    with pytest.raises(StateUnavailable):
        Replica(portal, HangingStore()).responses.find(OWNER, "a")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["keep", "history", "inputs", "find", "item", "forget"]),
        st.sampled_from("abcd"),
        st.sampled_from([None, *"abcd"]),
        st.sampled_from([OWNER, OTHER_OWNER]),
    ),
    max_size=12,
)


@settings(max_examples=examples(30))
@given(STEPS)
def test_random_operations_on_two_replicas_return_the_same_as_the_memory_store(
    steps: list[tuple[str, str, str | None, str]],
) -> None:
    with start_blocking_portal() as portal:
        shared = SharedStore()
        replicas = [Replica(portal, shared), Replica(portal, shared)]
        memory = MemoryStore(lambda: 0.0)
        for number, (step, name, previous, owner) in enumerate(steps):
            replica = replicas[number % 2]
            if step == "keep":
                if name <= (previous or ""):  # a response continues an earlier response
                    continue
                if memory.find(owner, name) is None:  # ids are unique
                    replica.keep(response(name, previous), owner=owner)
                    memory.keep(owner, response(name, previous))
                continue
            looked_up = f"in_{name}" if step == "item" else name
            operation: Callable[[str, str], object] = getattr(replica.responses, step)
            expected: Callable[[str, str], object] = getattr(memory, step)
            assert operation(owner, looked_up) == expected(owner, looked_up)
