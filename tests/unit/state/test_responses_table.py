import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.dialects.openai_responses.store import StoredResponse
from proxy.state.memory_responses import Bounds, MemoryStore
from proxy.state.responses_table import SCHEMA, ResponsesTable

BOUNDS = Bounds(responses=4, bytes=20_000, seconds=40)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def response(name: str, previous: str | None = None, size: int = 0) -> StoredResponse:
    items = json.dump({"id": f"{name}_in", "text": "x" * size})
    return StoredResponse(name, [items], [json.dump({"id": f"{name}_out"})], b"{}", previous)


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in ("PRAGMA foreign_keys = ON", *SCHEMA):
        connection.execute(statement)
    return connection


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["keep", "find", "history", "inputs", "item", "forget"]),
        st.sampled_from(["me", "you"]),
        st.integers(0, 9),
        st.integers(0, 9),
        st.sampled_from([0.1, 1, 20]),
        st.sampled_from([0, 5_000, 30_000]),
    ),
    max_size=30,
)


@given(STEPS)
def test_random_operations_return_the_same_as_the_memory_store(
    steps: list[tuple[str, str, int, int, float, int]],
) -> None:
    clock, memory_clock = Clock(), Clock()
    memory = MemoryStore(memory_clock, BOUNDS)
    with closing(connect()) as connection:
        table = ResponsesTable(connection, clock, BOUNDS)
        for what, owner, number, other, passed, size in steps:
            clock.now += passed
            memory_clock.now += passed
            name = f"r{number}"
            if what == "keep":
                stored = response(name, f"r{other}" if other < number else None, size)
                table.keep(owner, stored)
                memory.keep(owner, stored)
            else:
                argument = f"{name}_out" if what == "item" else name
                result = getattr(table, what)(owner, argument)
                assert result == getattr(memory, what)(owner, argument)


def test_the_table_does_not_contain_the_api_key() -> None:
    with closing(connect()) as connection:
        ResponsesTable(connection, Clock(), BOUNDS).keep("sk-secret", response("a"))
        assert "sk-secret" not in "".join(connection.iterdump())


def test_a_stored_response_is_found_by_another_table_until_it_expires() -> None:
    clock = Clock()
    with closing(connect()) as connection:
        ResponsesTable(connection, clock, BOUNDS).keep("me", response("a"))
        clock.now += 30
        assert ResponsesTable(connection, clock, BOUNDS).find("me", "a") == response("a")
        clock.now += 41
        ResponsesTable(connection, clock, BOUNDS)
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (0,)


def test_the_latest_response_of_a_chain_is_evicted_first_even_if_the_clock_goes_back() -> None:
    clock = Clock()
    with closing(connect()) as connection:
        table = ResponsesTable(connection, clock, BOUNDS)
        table.keep("me", response("a"))
        table.keep("me", response("b", "a"))
        clock.now -= 20
        table.find("me", "a")
        for name in "cde":
            table.keep("me", response(name))
            assert table.find("me", "b") is None or table.history("me", "b") is not None


def test_the_history_of_a_cyclic_chain_is_none() -> None:
    with closing(connect()) as connection:
        table = ResponsesTable(connection, Clock(), BOUNDS)
        table.keep("me", response("a", "b"))
        table.keep("me", response("b", "a"))
        assert table.history("me", "b") is None


def test_a_failed_write_is_rolled_back() -> None:
    with closing(connect()) as connection:
        table = ResponsesTable(connection, Clock(), BOUNDS)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            table.keep("me", response("a", size=15_000))
        connection.execute("PRAGMA max_page_count = 1000")
        assert table.find("me", "a") is None
        table.keep("me", response("b"))
        assert table.find("me", "b") is not None


def test_a_read_only_database_can_be_read() -> None:
    with closing(connect()) as connection:
        table = ResponsesTable(connection, Clock(), BOUNDS)
        table.keep("me", response("a"))
        connection.execute("PRAGMA query_only = ON")
        assert table.find("me", "a") == response("a")
        assert table.item("me", "a_out") == b'{"id":"a_out"}'


@pytest.mark.fault("F102")
@pytest.mark.parametrize("size", [0, 5_000], ids=["by number", "by bytes"])
def test_many_responses_of_one_api_key_do_not_evict_the_responses_of_another(size: int) -> None:
    with closing(connect()) as connection:
        table = ResponsesTable(connection, Clock(), BOUNDS)
        table.keep("me", response("a", size=size))
        for number in range(20):
            table.keep("you", response(f"b{number}", size=size))
        assert table.find("me", "a") is not None
        assert table.find("you", "b19") is not None
        assert table.find("you", "b0") is None
