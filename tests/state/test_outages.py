"""Every request is answered even if the store is killed, frozen, full, empty or locked."""

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
from tests.state.conftest import PROGRAMS
from tests.state.replicas import RESPONSES, Replica, field_of, replicas
from tests.state.servers import StoreServer
from tests.test_repository import read
from tests.timeouts import TIMEOUT_SECONDS, until

USUAL_MS = 200  # a store that has not answered within this time will never answer
GUIDE = read("docs/guides/growing.md")
ALONE = "x-temper-state"
UP, ERRORS = "temper_state_up{", "temper_state_errors_total{"


@dataclass
class RecordingObserver:
    """Records the reported states of the store and the failed operations."""

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


async def check_all_requests_are_answered(first: Replica, other: Replica) -> None:
    """Send requests that need the store and others, often enough to open any circuit breaker."""
    for number in range(3):
        for replica in (first, other):
            plain = await replica.ask("How warm is it?")
            assert (plain.status_code, ALONE in plain.headers) == (200, False)
            keyed = await replica.ask("How warm is it?", key=f"key-{number}")
            assert (keyed.status_code, keyed.headers.get(ALONE)) == (200, "alone")
    again = await first.ask("How warm is it?", key="key-0")
    assert again.headers["idempotent-replayed"] == "true"


async def check_own_responses_can_be_continued(replica: Replica) -> None:
    """Continue from a response that this replica has stored."""
    first = await replica.respond("My name is Ada.")
    assert (first.status_code, first.headers.get(ALONE)) == (200, "alone")
    second = await replica.respond("Who am I?", previous_response_id=field_of(first, "id"))
    assert second.status_code == 200
    unkept = await replica.respond("Who am I?", store=False)
    assert (unkept.status_code, ALONE in unkept.headers) == (200, False)


async def check_references_get_503(replica: Replica, response_id: str) -> None:
    """Check that references get 503 instead of 404, because the responses may exist."""
    path = f"{RESPONSES}/{response_id}"
    for answer in (
        await replica.respond("Who am I?", previous_response_id=response_id),
        await replica.client.get(path),
        await replica.client.get(f"{path}/input_items"),
        await replica.client.delete(path),
    ):
        assert (answer.status_code, field_of(answer, "code")) == (503, "state_unavailable")
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("end", [StoreServer.kill, StoreServer.freeze], ids=["killed", "frozen"])
async def test_replicas_work_alone_during_a_store_outage(
    store: StoreServer, end: Callable[[StoreServer], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(store.url, store_ms=USUAL_MS) as (_, replica_a, replica_b):
        kept = field_of(await replica_a.respond("My name is Ada."), "id")
        end(store)
        await check_all_requests_are_answered(replica_a, replica_b)
        await check_own_responses_can_be_continued(replica_a)
        await check_references_get_503(replica_b, kept)
        assert await replica_a.metric(UP) == 0
        assert await replica_a.metric(ERRORS) >= 2
        assert caplog.text.count("cannot be used") == 2  # one log line of each replica
        store.thaw() if end is StoreServer.freeze else store.start()
        for replica in (replica_a, replica_b):
            await replica.until(UP, 1)
        assert caplog.text.count("recovered") == 2
        await replica_a.ask("How warm is it now?", key="new")
        shared = await replica_b.ask("How warm is it now?", key="new")
        assert shared.headers["idempotent-replayed"] == "true"
        assert ALONE not in shared.headers


async def test_two_hundred_concurrent_claims_use_few_connections_to_the_store(
    store: StoreServer,
) -> None:
    async with open_valkey(store.url, TIMEOUT_SECONDS, RecordingObserver()) as opened:
        claims = Claims(opened, Sealing(("",), "temper"), "here")
        rush = [claims.attempt(("chat", f"key-{i}"), b"") for i in range(200)]
        assert all(isinstance(claim, OwnClaim) for claim in await asyncio.gather(*rush))
    stats = store.ask("INFO", "stats").decode()
    assert int(stats.partition("total_connections_received:")[2].split()[0]) < 50


async def test_a_full_store_is_read_but_not_written(
    store: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(store.url) as (_, replica_a, replica_b):
        kept = field_of(await replica_a.respond("My name is Ada."), "id")
        store.ask("CONFIG", "SET", "maxmemory", "1")
        await check_all_requests_are_answered(replica_a, replica_b)
        await check_own_responses_can_be_continued(replica_a)
        answer = await replica_b.respond("Who am I?", previous_response_id=kept)
        assert answer.status_code == 200
        assert caplog.text.count("rejects writes") == 2
        store.ask("CONFIG", "SET", "maxmemory", "0")
        await replica_a.ask("How warm is it now?", key="new")
        assert ALONE not in (await replica_b.ask("How warm is it now?", key="new")).headers
        assert await replica_a.metric(UP) == 1


async def test_a_claim_lost_by_the_store_is_made_again_at_its_renewal(
    store: StoreServer,
) -> None:
    async with open_valkey(store.url, TIMEOUT_SECONDS, RecordingObserver()) as opened:
        claims = Claims(opened, Sealing(("",), "temper"), "here")
        claim = await claims.attempt(("chat", "k"), b"")
        assert isinstance(claim, OwnClaim)
        store.ask("FLUSHALL")
        assert await claim.renew() is True
        assert await claims.attempt(("chat", "k"), b"") is None


def only(*commands: str) -> tuple[str, ...]:
    """Return the ACL of a user `temper` that may run only some commands."""
    return ("ACL", "SETUSER", "temper", "on", ">right", "~temper:*", *commands)


async def test_without_permission_for_ping_the_store_is_probed_only_once(
    store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.state.valkey._CHECK_SECONDS", 0.0)
    store.ask(*only("+set"))
    log = RecordingObserver()
    url = store.url.replace("//", "//temper:right@")
    async with open_valkey(url, TIMEOUT_SECONDS, log) as opened:
        await until(lambda: log.states == [True, False])
        for number in range(20):
            assert await opened.claim(f"temper:{number}", b"", 1.0)
    assert log.states == [True, False, True]
    assert log.failed == ["ping"]


async def test_the_acl_in_the_guide_permits_all_commands_of_temper(store: StoreServer) -> None:
    (commands,) = re.findall(r"~temper:\* (.+)", GUIDE)
    store.ask(*only(*commands.split()))
    async with replicas(store.url.replace("//", "//temper:right@") + "/1") as (
        backend,
        replica_a,
        replica_b,
    ):
        for replica in (replica_a, replica_b):
            assert ALONE not in (await replica.ask("How warm is it?", key="k")).headers
        kept = field_of(await replica_a.respond("My name is Ada."), "id")
        again = await replica_b.respond("Who am I?", previous_response_id=kept)
        assert (again.status_code, ALONE in again.headers) == (200, False)
        assert (await replica_b.client.delete(f"{RESPONSES}/{kept}")).status_code == 200
        assert await replica_a.metric(ERRORS) + await replica_b.metric(ERRORS) == 0
        assert len(backend.upstream_requests) == 3


async def test_after_a_restart_of_the_store_its_responses_and_keys_are_unknown(
    store: StoreServer,
) -> None:
    async with replicas(store.url) as (backend, replica_a, replica_b):
        kept = field_of(await replica_a.respond("My name is Ada."), "id")
        await replica_a.ask("How warm is it?", key="k")
        store.kill()
        store.start()
        answer = await replica_b.respond("Who am I?", previous_response_id=kept)
        assert (answer.status_code, field_of(answer, "code")) == (
            400,
            "previous_response_not_found",
        )
        assert (await replica_b.ask("How warm is it?", key="k")).status_code == 200
        assert len(backend.upstream_requests) == 3


async def test_a_wrong_password_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = StoreServer(next(iter(PROGRAMS.values())), tmp_path, ("--requirepass", "right"))
    with server.running():
        url = server.url.replace("//", "//:hidden-wrong@")
        async with replicas(url) as (_, replica_a, replica_b):
            await replica_a.until(UP, 0)
            await check_all_requests_are_answered(replica_a, replica_b)
            await check_own_responses_can_be_continued(replica_a)
            await check_references_get_503(replica_b, "resp_of_before")
            assert caplog.text.count("cannot be used") == 2
            assert "hidden-wrong" not in caplog.text + (await replica_a.client.get("/metrics")).text
        right = server.url.replace("//", "//:right@")
        async with replicas(right) as (_, replica_a, replica_b):
            await replica_a.ask("How warm is it?", key="k")
            shared = await replica_b.ask("How warm is it?", key="k")
            assert shared.headers["idempotent-replayed"] == "true"


async def test_replicas_with_different_secrets_cannot_read_each_others_entries(
    store: StoreServer,
) -> None:
    secrets = ("a-secret-of-one-replica", "a-secret-of-the-other")
    async with replicas(store.url, secrets=secrets) as (backend, replica_a, replica_b):
        kept = field_of(await replica_a.respond("My name is Ada."), "id")
        for replica in (replica_a, replica_b):
            answer = await replica.ask("How warm is it?", key="k")
            assert (answer.status_code, ALONE in answer.headers) == (200, False)
        assert len(backend.upstream_requests) == 3
        answer = await replica_b.respond("Who am I?", previous_response_id=kept)
        assert field_of(answer, "code") == "previous_response_not_found"


async def test_replicas_with_the_same_secrets_in_another_order_read_each_others_entries(
    store: StoreServer,
) -> None:
    old, new = "the-secret-of-yesterday", "the-secret-of-tomorrow"
    async with replicas(store.url, secrets=(f"{old} {new}", f"{new} {old}")) as (
        _,
        replica_a,
        replica_b,
    ):
        for first, second, key in ((replica_a, replica_b, "a"), (replica_b, replica_a, "b")):
            kept = field_of(await first.respond("My name is Ada."), "id")
            answer = await second.respond("Who am I?", previous_response_id=kept)
            assert answer.status_code == 200
            await first.ask("How warm is it?", key=key)
            shared = await second.ask("How warm is it?", key=key)
            assert shared.headers["idempotent-replayed"] == "true"
