"""Ordinary requests cause no traffic to the store, and the traffic of others is not readable."""

from tests.state.replicas import SECRET, replicas
from tests.state.servers import StoreServer, monitored

KEY, QUESTION, API_KEY = "order-4711", "How warm is it in Graz?", "sk-of-a-client"
HIDDEN = (KEY, QUESTION, API_KEY, SECRET, "Graz", "warm", "resp_", "msg_", "item_")


async def test_requests_without_key_and_previous_response_send_no_command_to_the_store(
    any_store: StoreServer, *, stream: bool
) -> None:
    async with replicas(any_store.url) as (_, replica_a, replica_b):
        await replica_a.ask(QUESTION, key="k")  # these requests open the connections to the store
        await replica_b.ask(QUESTION, key="k")
        with monitored(any_store) as seen:
            for replica in (replica_a, replica_b):
                assert (await replica.ask(QUESTION, stream=stream)).status_code == 200
                answer = await replica.respond(QUESTION, store=False, stream=stream)
                assert answer.status_code == 200
                assert (await replica.client.get("/v1/models")).status_code == 200
                assert (await replica.client.get("/metrics")).status_code == 200
        assert seen == []


async def test_the_traffic_to_the_store_contains_no_readable_key_or_body(
    any_store: StoreServer,
) -> None:
    async with replicas(f"{any_store.url}?namespace=mine") as (_, replica_a, replica_b):
        for replica in (replica_a, replica_b):
            replica.client.headers["authorization"] = f"Bearer {API_KEY}"
        with monitored(any_store) as seen:
            await replica_a.ask(QUESTION, key=KEY)
            await replica_b.ask(QUESTION, key=KEY)
            response = (await replica_a.respond(QUESTION)).json()
            again = await replica_b.respond(QUESTION, previous_response_id=response["id"])
            assert again.status_code == 200
        commands = b"".join(seen).decode()
        assert [word for word in (*HIDDEN, response["id"]) if word in commands] == []
        names = [line.split('"')[3] for line in commands.splitlines() if "SET" in line]
        assert len(names) >= 4
        assert all(name.startswith("mine:") for name in names)
        keys = any_store.ask("KEYS", "*").decode().split("\r\n")[2::2]
        for name in keys[:-1] or keys:
            assert int(any_store.ask("PTTL", name).strip(b":\r\n")) > 0
