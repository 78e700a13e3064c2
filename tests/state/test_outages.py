"""A store that is killed, frozen, full, empty or locked: every request is answered all the same."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("valkey", reason="needs the extra `state`")

from proxy.state.claims import Claims, OwnClaim
from proxy.state.sealing import Sealing
from proxy.state.valkey import open_valkey
from tests.patience import PATIENCE_SECONDS, until
from tests.state.conftest import PROGRAMS
from tests.state.replicas import RESPONSES, Replica, field_of, replicas
from tests.state.servers import StoreServer
from tests.test_repository import read

USUAL_MS = 200  # what does not answer by then does not answer
GUIDE = read("docs/guides/growing.md")
ALONE = "x-temper-state"
UP, ERRORS = "temper_state_up{", "temper_state_errors_total{"


@dataclass
class Heard:
    """Remembers what a store was heard to do."""

    states: list[bool] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def report_state(self, server: str, *, is_up: bool) -> None:
        del server
        self.states.append(is_up)

    def count_state_error(self, operation: str) -> None:
        self.failed.append(operation)


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "proxy.state")


async def all_is_answered(one: Replica, other: Replica) -> None:
    """Ask for what needs the store and what does not, often enough for any breaker to open."""
    for number in range(3):
        for replica in (one, other):
            plain = await replica.ask("How warm is it?")
            assert (plain.status_code, ALONE in plain.headers) == (200, False)
            keyed = await replica.ask("How warm is it?", key=f"key-{number}")
            assert (keyed.status_code, keyed.headers.get(ALONE)) == (200, "alone")
    again = await one.ask("How warm is it?", key="key-0")
    assert again.headers["idempotent-replayed"] == "true"


async def here_it_goes_on(one: Replica) -> None:
    """Go on from a response that was kept by the replica that is asked."""
    first = await one.respond("My name is Ada.")
    assert (first.status_code, first.headers.get(ALONE)) == (200, "alone")
    second = await one.respond("Who am I?", previous_response_id=field_of(first, "id"))
    assert second.status_code == 200
    unkept = await one.respond("Who am I?", store=False)
    assert (unkept.status_code, ALONE in unkept.headers) == (200, False)


async def named_things_are_busy(replica: Replica, response_id: str) -> None:
    """What is named may be there: nobody is told that it is not."""
    place = f"{RESPONSES}/{response_id}"
    for answer in (
        await replica.respond("Who am I?", previous_response_id=response_id),
        await replica.client.get(place),
        await replica.client.get(f"{place}/input_items"),
        await replica.client.delete(place),
    ):
        assert (answer.status_code, field_of(answer, "code")) == (503, "state_unavailable")
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("end", [StoreServer.kill, StoreServer.freeze], ids=["killed", "frozen"])
async def test_without_the_store_each_replica_is_on_its_own_until_it_is_back(
    store: StoreServer, end: Callable[[StoreServer], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(store.url, store_ms=USUAL_MS) as (_, one, other):
        kept = field_of(await one.respond("My name is Ada."), "id")
        end(store)
        await all_is_answered(one, other)
        await here_it_goes_on(one)
        await named_things_are_busy(other, kept)
        assert await one.metric(UP) == 0
        assert await one.metric(ERRORS) >= 2
        assert caplog.text.count("cannot be used") == 2  # once for each replica
        store.thaw() if end is StoreServer.freeze else store.start()
        for replica in (one, other):
            await replica.until(UP, 1)
        assert caplog.text.count("recovered") == 2
        await one.ask("How warm is it now?", key="new")
        shared = await other.ask("How warm is it now?", key="new")
        assert shared.headers["idempotent-replayed"] == "true"
        assert ALONE not in shared.headers


async def test_a_rush_of_keys_shares_a_few_connections(store: StoreServer) -> None:
    async with open_valkey(store.url, PATIENCE_SECONDS, Heard()) as opened:
        claims = Claims(opened, Sealing(("",), "temper"), "here")
        rush = [claims.attempt(("chat", f"key-{one}"), b"") for one in range(200)]
        assert all(isinstance(one, OwnClaim) for one in await asyncio.gather(*rush))
    told = store.ask("INFO", "stats").decode()
    assert int(told.partition("total_connections_received:")[2].split()[0]) < 50


async def test_a_full_store_is_read_but_not_written(
    store: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(store.url) as (_, one, other):
        kept = field_of(await one.respond("My name is Ada."), "id")
        store.ask("CONFIG", "SET", "maxmemory", "1")
        await all_is_answered(one, other)
        await here_it_goes_on(one)
        answer = await other.respond("Who am I?", previous_response_id=kept)
        assert answer.status_code == 200
        assert caplog.text.count("rejects writes") == 2
        store.ask("CONFIG", "SET", "maxmemory", "0")
        await one.ask("How warm is it now?", key="new")
        assert ALONE not in (await other.ask("How warm is it now?", key="new")).headers
        assert await one.metric(UP) == 1


async def test_a_claim_that_the_store_lost_is_claimed_again(store: StoreServer) -> None:
    async with open_valkey(store.url, PATIENCE_SECONDS, Heard()) as opened:
        claims = Claims(opened, Sealing(("",), "temper"), "here")
        own = await claims.attempt(("chat", "k"), b"")
        assert isinstance(own, OwnClaim)
        store.ask("FLUSHALL")
        assert await own.renew() is True
        assert await claims.attempt(("chat", "k"), b"") is None


def only(*commands: str) -> tuple[str, ...]:
    """Return the words that make a user `temper` who may put these commands."""
    return ("ACL", "SETUSER", "temper", "on", ">right", "~temper:*", *commands)


async def test_a_user_who_may_not_ping_is_looked_after_once(
    store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.state.valkey._CHECK_SECONDS", 0.0)
    store.ask(*only("+set"))
    heard = Heard()
    url = store.url.replace("//", "//temper:right@")
    async with open_valkey(url, PATIENCE_SECONDS, heard) as opened:
        await until(lambda: heard.states == [True, False])
        for number in range(20):
            assert await opened.claim(f"temper:{number}", b"", 1.0)
    assert heard.states == [True, False, True]
    assert heard.failed == ["ping"]


async def test_the_user_of_the_guide_may_do_all_that_is_done(store: StoreServer) -> None:
    (commands,) = re.findall(r"~temper:\* (.+)", GUIDE)
    store.ask(*only(*commands.split()))
    async with replicas(store.url.replace("//", "//temper:right@") + "/1") as (backend, one, other):
        for replica in (one, other):
            assert ALONE not in (await replica.ask("How warm is it?", key="k")).headers
        kept = field_of(await one.respond("My name is Ada."), "id")
        again = await other.respond("Who am I?", previous_response_id=kept)
        assert (again.status_code, ALONE in again.headers) == (200, False)
        assert (await other.client.delete(f"{RESPONSES}/{kept}")).status_code == 200
        assert await one.metric(ERRORS) + await other.metric(ERRORS) == 0
        assert len(backend.upstream_requests) == 3


async def test_a_store_that_begins_anew_has_nothing_and_says_so(store: StoreServer) -> None:
    async with replicas(store.url) as (backend, one, other):
        kept = field_of(await one.respond("My name is Ada."), "id")
        await one.ask("How warm is it?", key="k")
        store.kill()
        store.start()
        answer = await other.respond("Who am I?", previous_response_id=kept)
        assert (answer.status_code, field_of(answer, "code")) == (
            400,
            "previous_response_not_found",
        )
        assert (await other.ask("How warm is it?", key="k")).status_code == 200
        assert len(backend.upstream_requests) == 3


async def test_a_wrong_password_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = StoreServer(next(iter(PROGRAMS.values())), tmp_path, ("--requirepass", "right"))
    with server.running():
        url = server.url.replace("//", "//:hidden-wrong@")
        async with replicas(url) as (_, one, other):
            await one.until(UP, 0)
            await all_is_answered(one, other)
            await here_it_goes_on(one)
            await named_things_are_busy(other, "resp_of_before")
            assert caplog.text.count("cannot be used") == 2
            assert "hidden-wrong" not in caplog.text + (await one.client.get("/metrics")).text
        right = server.url.replace("//", "//:right@")
        async with replicas(right) as (_, one, other):
            await one.ask("How warm is it?", key="k")
            shared = await other.ask("How warm is it?", key="k")
            assert shared.headers["idempotent-replayed"] == "true"


async def test_with_another_secret_nothing_is_there(store: StoreServer) -> None:
    secrets = ("a-secret-of-one-replica", "a-secret-of-the-other")
    async with replicas(store.url, secrets=secrets) as (backend, one, other):
        kept = field_of(await one.respond("My name is Ada."), "id")
        for replica in (one, other):
            answer = await replica.ask("How warm is it?", key="k")
            assert (answer.status_code, ALONE in answer.headers) == (200, False)
        assert len(backend.upstream_requests) == 3
        answer = await other.respond("Who am I?", previous_response_id=kept)
        assert field_of(answer, "code") == "previous_response_not_found"


async def test_a_secret_is_changed_while_replicas_serve(store: StoreServer) -> None:
    old, new = "the-secret-of-yesterday", "the-secret-of-tomorrow"
    async with replicas(store.url, secrets=(f"{old} {new}", f"{new} {old}")) as (_, one, other):
        for first, second, key in ((one, other, "a"), (other, one, "b")):
            kept = field_of(await first.respond("My name is Ada."), "id")
            answer = await second.respond("Who am I?", previous_response_id=kept)
            assert answer.status_code == 200
            await first.ask("How warm is it?", key=key)
            shared = await second.ask("How warm is it?", key=key)
            assert shared.headers["idempotent-replayed"] == "true"
