"""Requests with one idempotency key to two replicas cause one generation."""

import asyncio
from pathlib import Path

from tests.fakes import sse
from tests.fakes.scripted_backend import Script, refuses
from tests.state.conftest import PROGRAMS
from tests.state.replicas import RESPONSES, SAID, field_of, replicas
from tests.state.servers import StoreServer

REPLAYED = "idempotent-replayed"


def gated() -> tuple[asyncio.Event, Script]:
    """Return a gate, and an answer that begins at once and ends after the gate is opened."""
    gate = asyncio.Event()
    whole = sse.says(SAID)
    return gate, Script((whole[:40], gate, whole[40:]))


async def test_concurrent_requests_with_one_idempotency_key_on_two_replicas_cost_one_generation(
    any_store: StoreServer, *, stream: bool
) -> None:
    gate, script = gated()
    async with replicas(any_store.url, script) as (backend, replica_a, replica_b):
        asking = [
            asyncio.create_task(each.ask("How warm is it?", key="k", stream=stream))
            for each in (replica_a, replica_b) * 4
        ]
        await backend.next_request()
        gate.set()
        answers = await asyncio.gather(*asking)
        assert len(backend.upstream_requests) == 1
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert SAID[:5].encode() in answers[0].content
        assert sum(REPLAYED not in answer.headers for answer in answers) == 1
        assert all("x-temper-state" not in answer.headers for answer in answers)


async def test_the_other_replica_replays_the_stored_response_of_an_idempotency_key(
    any_store: StoreServer, *, stream: bool
) -> None:
    async with replicas(any_store.url, sse.says(SAID)) as (backend, replica_a, replica_b):
        first = await replica_a.ask("How warm is it?", key="k", stream=stream)
        second = await replica_b.ask("How warm is it?", key="k", stream=stream)
        third = await replica_b.ask("How warm is it?", key="k", stream=stream)
        assert first.content == second.content == third.content
        assert second.headers.get_list(REPLAYED) == third.headers.get_list(REPLAYED) == ["true"]
        assert second.headers["content-type"] == first.headers["content-type"]
        assert len(backend.upstream_requests) == 1


async def test_the_url_of_the_store_may_be_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "store"
    options = ("--unixsocket", str(path))
    with StoreServer(next(iter(PROGRAMS.values())), tmp_path, options).running():
        url = f"unix://{path}?db=1&namespace=mine"
        async with replicas(url, sse.says(SAID)) as (backend, replica_a, replica_b):
            first = await replica_a.ask("How warm is it?", key="k")
            assert (await replica_b.ask("How warm is it?", key="k")).content == first.content
            assert len(backend.upstream_requests) == 1


async def test_an_idempotency_key_reused_with_another_body_is_a_422_on_the_other_replica(
    store: StoreServer,
) -> None:
    async with replicas(store.url, sse.says(SAID)) as (_, replica_a, replica_b):
        await replica_a.ask("How warm is it?", key="k")
        refused = await replica_b.ask("How cold is it?", key="k")
        assert (refused.status_code, field_of(refused, "code")) == (422, "idempotency_key_reused")


async def test_the_same_idempotency_key_in_two_dialects_generates_two_responses(
    store: StoreServer,
) -> None:
    async with replicas(store.url) as (backend, replica_a, replica_b):
        body = {"model": "m", "input": "Hello"}
        await replica_a.ask("Hello", key="k")
        answer = await replica_b.client.post(RESPONSES, json=body, headers={"idempotency-key": "k"})
        assert answer.status_code == 200
        assert len(backend.upstream_requests) == 2


async def test_request_waiting_for_another_replica_gets_keep_alives(
    store: StoreServer,
) -> None:
    gate, script = gated()
    async with replicas(store.url, script, keep_alive_seconds=0.01) as (
        backend,
        replica_a,
        replica_b,
    ):
        making = asyncio.create_task(replica_a.ask("How warm is it?", key="k", stream=True))
        await backend.next_request()
        body = {"model": "m", "messages": [{"role": "user", "content": "How warm is it?"}]}
        waiting = replica_b.client.stream(
            "POST",
            "/v1/chat/completions",
            json={**body, "stream": True},
            headers={"idempotency-key": "k"},
        )
        async with waiting as answer:
            pieces = answer.aiter_bytes()
            begun = await anext(pieces)
            gate.set()
            rest = b"".join([piece async for piece in pieces])
        assert begun.startswith(b": another replica")
        made = await making
        shown = (begun + rest).replace(b": another replica is answering this request\n\n", b"")
        assert made.content.endswith(shown)
        assert shown.count(b"[DONE]") == 1
        assert len(backend.upstream_requests) == 1


async def test_after_a_failed_or_canceled_generation_the_idempotency_key_can_be_used_again(
    store: StoreServer,
) -> None:
    _, never = gated()
    scripts = (never, refuses(400, {"message": "no"}), sse.says(SAID))
    async with replicas(store.url, *scripts) as (backend, replica_a, replica_b):
        leaving = asyncio.create_task(replica_a.ask("How warm is it?", key="k"))
        abandoned = await backend.next_request()
        leaving.cancel()
        await abandoned.left.wait()
        assert (await replica_b.ask("How warm is it?", key="k")).status_code == 400
        assert (await replica_a.ask("How warm is it?", key="k")).status_code == 200
        assert len(backend.upstream_requests) == 3
