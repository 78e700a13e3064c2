"""What somebody sees who watches the store: nothing for ordinary requests, and nothing readable."""

from tests.state.replicas import SECRET, replicas
from tests.state.servers import StoreServer, monitored

KEY, QUESTION, API_KEY = "order-4711", "How warm is it in Graz?", "sk-of-a-client"
HIDDEN = (KEY, QUESTION, API_KEY, SECRET, "Graz", "warm", "resp_", "msg_", "item_")


async def test_ordinary_requests_cost_no_command(any_store: StoreServer, *, stream: bool) -> None:
    async with replicas(any_store.url) as (_, one, other):
        await one.ask(QUESTION, key="k")  # connections are open now
        await other.ask(QUESTION, key="k")
        with monitored(any_store) as seen:
            for replica in (one, other):
                assert (await replica.ask(QUESTION, stream=stream)).status_code == 200
                answer = await replica.respond(QUESTION, store=False, stream=stream)
                assert answer.status_code == 200
                assert (await replica.client.get("/v1/models")).status_code == 200
                assert (await replica.client.get("/metrics")).status_code == 200
        assert seen == []


async def test_neither_names_nor_bodies_can_be_read(any_store: StoreServer) -> None:
    async with replicas(f"{any_store.url}?namespace=mine") as (_, one, other):
        for replica in (one, other):
            replica.client.headers["authorization"] = f"Bearer {API_KEY}"
        with monitored(any_store) as seen:
            await one.ask(QUESTION, key=KEY)
            await other.ask(QUESTION, key=KEY)
            response = (await one.respond(QUESTION)).json()
            again = await other.respond(QUESTION, previous_response_id=response["id"])
            assert again.status_code == 200
        told = b"".join(seen).decode()
        assert [word for word in (*HIDDEN, response["id"]) if word in told] == []
        names = [line.split('"')[3] for line in told.splitlines() if "SET" in line]
        assert len(names) >= 4
        assert all(name.startswith("mine:") for name in names)
        keys = any_store.ask("KEYS", "*").decode().split("\r\n")[2::2]
        for name in keys[:-1] or keys:
            assert int(any_store.ask("PTTL", name).strip(b":\r\n")) > 0
