"""Responses of one replica that another one continues."""

from proxy.conversation import json
from tests.fakes import sse
from tests.state.replicas import RESPONSES, SAID, field_of, replicas
from tests.state.servers import StoreServer


async def test_previous_response_id_works_for_a_response_of_the_other_replica(
    any_store: StoreServer,
) -> None:
    async with replicas(any_store.url) as (backend, replica_a, replica_b):
        first = await replica_a.respond("My name is Ada.")
        second = await replica_b.respond("What is it?", previous_response_id=field_of(first, "id"))
        third = await replica_a.respond("And now?", previous_response_id=field_of(second, "id"))
        assert third.status_code == 200
        sent = backend.upstream_requests[-1].body
        for text in (b"My name is Ada.", SAID.encode(), b"What is it?", b"And now?"):
            assert text in sent
        assert "x-temper-state" not in third.headers


async def test_stored_response_is_visible_and_deletable_on_all_replicas(
    store: StoreServer,
) -> None:
    async with replicas(store.url) as (backend, replica_a, replica_b):
        first = await replica_a.respond("My name is Ada.")
        path = f"{RESPONSES}/{field_of(first, 'id')}"
        assert (await replica_b.client.get(path)).content == first.content
        listed = json.parse((await replica_b.client.get(f"{path}/input_items")).content)
        assert isinstance(listed, dict)
        item = listed["first_id"]
        reference = {"type": "item_reference", "id": item}
        message = {"type": "message", "role": "user", "content": "Who am I?"}
        answer = await replica_b.client.post(
            RESPONSES, json={"model": "m", "input": [reference, message]}
        )
        assert answer.status_code == 200
        assert b"Ada" in backend.upstream_requests[-1].body
        assert (await replica_b.client.delete(path)).status_code == 200
        assert (await replica_a.client.get(path)).status_code == 404
        assert (await replica_a.client.delete(path)).status_code == 404


async def test_previous_response_id_may_be_written_with_a_json_escape(store: StoreServer) -> None:
    async with replicas(store.url) as (backend, replica_a, replica_b):
        first = field_of(await replica_a.respond("My name is Ada."), "id")
        body = b'{"model":"m","input":"Who?","previous\\u005fresponse_id":"%s"}' % first.encode()
        headers = {"content-type": "application/json"}
        answer = await replica_b.client.post(RESPONSES, content=body, headers=headers)
        assert answer.status_code == 200
        assert b"Ada" in backend.upstream_requests[-1].body


async def test_a_response_too_large_for_the_store_can_be_read_only_on_its_replica(
    store: StoreServer,
) -> None:
    async with replicas(store.url) as (_, replica_a, replica_b):
        first = field_of(await replica_a.respond("x" * (4 * 2**20)), "id")
        assert (await replica_a.client.get(f"{RESPONSES}/{first}")).status_code == 200
        assert (await replica_b.client.get(f"{RESPONSES}/{first}")).status_code == 404
        assert await replica_a.metric('temper_unstored_responses_total{reason="too_large"}') == 1


async def test_a_response_in_the_store_cannot_be_continued_with_another_api_key(
    store: StoreServer,
) -> None:
    async with replicas(store.url, *[sse.says(SAID)] * 2) as (_, replica_a, replica_b):
        replica_b.client.headers["authorization"] = "Bearer another"
        first = field_of(await replica_a.respond("My name is Ada."), "id")
        answer = await replica_b.respond("Who am I?", previous_response_id=first)
        assert field_of(answer, "code") == "previous_response_not_found"
