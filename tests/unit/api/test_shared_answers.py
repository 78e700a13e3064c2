import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.client_connection import ClientConnection, Endpoint
from proxy.api.dialects import CHAT
from proxy.api.idempotency import Idempotency
from proxy.api.request_reader import BodyLimits
from proxy.api.shared_answers import BackgroundTasks, SharedAnswers
from proxy.errors import StateUnavailable
from proxy.state.claims import Claims, ClaimTimes, OwnClaim
from proxy.state.sealing import Sealing
from tests.fakes.asgi import HandMadeClient, endpoint_of
from tests.fakes.gated_endpoint import JSON, STREAM, GatedEndpoint
from tests.fakes.shared_store import SharedStore
from tests.timeouts import until

DONE = b"data: [DONE]\n\n"
STREAMED = b'{"stream": true}'
SOON = ClaimTimes(claim=0.002, renewal=0.001, poll=0.001, longest_poll=0.001, outage=0.01)


def open_endpoint(**others: object) -> GatedEndpoint:
    endpoint = GatedEndpoint(**others)  # type: ignore[arg-type] # the tests pass valid values
    endpoint.gate.set()
    return endpoint


@dataclass
class Replica:
    """The idempotency middleware of one replica, with the shared store."""

    app: ASGIApp
    store: SharedStore
    silence: float = 10.0
    language: str = "chat"
    background: BackgroundTasks = field(default_factory=BackgroundTasks)

    @property
    def sharing(self) -> SharedAnswers:
        claims = Claims(self.store, Sealing(("s",), "temper"), "host:1", SOON)
        is_complete = CHAT.is_complete
        return SharedAnswers(claims, self.language, is_complete, self.silence, self.background)

    async def ask(self, asking: HandMadeClient) -> HandMadeClient:
        sharing = self.sharing
        endpoint = endpoint_of(self.app)
        await asking.ask(Idempotency(endpoint, BodyLimits(), CHAT.is_complete, sharing=sharing))
        await self.background.drain()
        return asking


def client(body: bytes = b"{}") -> HandMadeClient:
    return HandMadeClient(body, "POST", headers={"idempotency-key": "k"}, owner="us")


async def test_a_repeated_request_at_another_replica_gets_the_stored_answer() -> None:
    endpoint, store = open_endpoint(), SharedStore()
    first = await Replica(endpoint, store).ask(client())
    second = await Replica(endpoint, store).ask(client())
    assert endpoint.begun == 1
    assert first.answer == second.answer == b"{}"
    assert "idempotent-replayed" not in first.answer_headers
    assert second.answer_headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    "endpoint",
    [
        {"status": 503},
        {"kind": STREAM, "pieces": (b"", b"data: broken\n\n")},
        {"pieces": (b"x" * (4 * 2**20), b"x")},
    ],
    ids=["an error", "a stream without its end", "too large"],
)
async def test_an_error_or_an_incomplete_or_too_large_answer_releases_the_key(
    endpoint: dict[str, object],
) -> None:
    store, answering = SharedStore(), open_endpoint(**endpoint)
    for _ in range(2):
        await Replica(answering, store).ask(client())
    assert answering.begun == 2
    assert store.kept == {}


async def test_the_key_is_released_if_the_client_disconnects() -> None:
    store, asking = SharedStore(), client()
    asking.leaves.set()
    await Replica(GatedEndpoint(), store).ask(asking)
    assert store.kept == {}
    assert "release" in store.operations


async def test_a_different_request_with_the_same_key_gets_422() -> None:
    store, endpoint = SharedStore(), open_endpoint()
    await Replica(endpoint, store).ask(client())
    refused = await Replica(endpoint, store).ask(client(b'{"a": 1}'))
    assert refused.status == 422
    assert b"idempotency_key_reused" in refused.answer


async def test_an_answer_has_the_state_header_if_the_store_is_down() -> None:
    endpoint = open_endpoint()
    replica = Replica(endpoint, SharedStore(is_down=True))
    response = await replica.ask(client())
    assert response.answer_headers["x-temper-state"] == "alone"
    assert response.answer == b"{}"
    assert replica.store.operations == ["claim"]


async def test_the_state_header_is_not_added_to_an_answer_that_already_has_it() -> None:
    async def alone(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        headers = [(b"content-type", JSON), (b"x-temper-state", b"alone")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})

    response = await Replica(alone, SharedStore(is_down=True)).ask(client())
    names = [name for name, _ in response.got[0]["headers"]]
    assert names.count(b"x-temper-state") == 1


async def test_an_answer_is_complete_although_the_store_fails_before_its_end() -> None:
    store, endpoint = SharedStore(), GatedEndpoint()
    asking = asyncio.create_task(Replica(endpoint, store).ask(client()))
    await until(lambda: endpoint.begun == 1)
    store.is_down = True
    endpoint.gate.set()
    assert (await asking).answer == b"{}"


async def test_a_client_that_leaves_while_another_replica_answers_starts_no_generation() -> None:
    store, endpoint = SharedStore(), GatedEndpoint()
    owner = Replica(endpoint, store)
    making = asyncio.create_task(owner.ask(client()))
    await until(lambda: endpoint.begun == 1)
    leaving = client()
    waiting = asyncio.create_task(Replica(endpoint, store).ask(leaving))
    await until(lambda: store.operations.count("claim") > 1)
    leaving.leaves.set()
    await waiting
    endpoint.gate.set()
    await making
    assert (endpoint.begun, leaving.got) == (1, [])


async def answer_after_wait(
    answer: Callable[[OwnClaim], Coroutine[object, object, None]],
    body: bytes = STREAMED,
    endpoint: GatedEndpoint | None = None,
    language: str = "chat",
) -> HandMadeClient:
    """Send a request whose key another replica has claimed; call `answer` with that claim."""
    replica = Replica(endpoint or open_endpoint(), SharedStore(), 0.001, language)
    waiting, late_claims = client(body), LateReplica(replica)
    idempotency = Idempotency(
        endpoint_of(replica.app), BodyLimits(), CHAT.is_complete, sharing=late_claims
    )
    calling = asyncio.create_task(waiting.ask(idempotency))
    await until(lambda: replica.store.operations.count("claim") > 3)
    await until(lambda: len(waiting.got) > 1 or body != STREAMED)
    await answer(late_claims.claimed[0])
    await calling
    return waiting


@dataclass
class LateReplica:
    """Wraps the sharing of a replica, so that another replica has already claimed each key."""

    replica: Replica
    claimed: list[OwnClaim] = field(default_factory=list)

    def __call__(self, endpoint: Endpoint, name: tuple[str, str], fingerprint: bytes) -> Endpoint:
        sharing = self.replica.sharing
        inner = sharing(endpoint, name, fingerprint)

        async def answer(connection: ClientConnection) -> None:
            claim = await sharing.claims.attempt((sharing.language, *name), fingerprint)
            assert isinstance(claim, OwnClaim)
            self.claimed.append(claim)
            await inner(connection)

        return answer


async def finish(claim: OwnClaim) -> None:
    await claim.finish([(b"content-type", STREAM)], b"data: 1\n\n" + DONE)


async def lose_store(claim: OwnClaim) -> None:
    assert isinstance(claim.store, SharedStore)
    claim.store.is_down = True


async def test_a_client_waiting_for_a_stream_gets_keepalive_comments() -> None:
    waiting = await answer_after_wait(finish)
    assert waiting.status == 200
    assert waiting.answer_headers["content-type"] == STREAM.decode()
    assert waiting.answer.startswith(b": another replica is answering this request\n\n")
    assert waiting.answer.endswith(b"\n\ndata: 1\n\n" + DONE)
    assert [message["type"] for message in waiting.got].count("http.response.start") == 1


@pytest.mark.parametrize("body", [b"{}", b"no JSON"])
async def test_a_client_waiting_for_a_whole_answer_gets_no_early_bytes(body: bytes) -> None:
    waiting = await answer_after_wait(finish, body)
    assert waiting.answer == b"data: 1\n\n" + DONE
    assert waiting.answer_headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("change", [OwnClaim.release, lose_store], ids=["released", "store lost"])
async def test_a_waiting_replica_generates_the_answer_if_the_claim_or_the_store_is_lost(
    change: Callable[[OwnClaim], Coroutine[object, object, None]],
) -> None:
    endpoint = open_endpoint(kind=STREAM, pieces=(b"data: 2\n\n", DONE))
    waiting = await answer_after_wait(change, endpoint=endpoint)
    assert endpoint.begun == 1
    assert waiting.answer.endswith(b"\n\ndata: 2\n\n" + DONE)


@pytest.mark.parametrize(
    ("language", "body", "event"),
    [
        ("chat", b'{"error": {}}', b'data: {"error": {}}\n\n'),
        (
            "messages",
            b'{"type": "error", "error": {}}',
            b'event: error\ndata: {"type": "error", "error": {}}\n\n',
        ),
        (
            "responses",
            b'{"error": {"message": "m", "type": "server_error", "param": null, "code": null}}',
            b'event: error\ndata: {"type":"error","code":null,"message":"m","param":null,'
            b'"sequence_number":0}\n\n',
        ),
    ],
)
async def test_an_error_after_the_start_of_a_stream_is_an_event_of_its_dialect(
    language: str, body: bytes, event: bytes
) -> None:
    """The simulation found that every dialect's streams got the event of the Messages API."""
    endpoint = open_endpoint(status=503, pieces=(body,))
    waiting = await answer_after_wait(OwnClaim.release, endpoint=endpoint, language=language)
    assert waiting.status == 200
    assert waiting.answer.endswith(b"request\n\n" + event)


async def test_an_exception_in_a_background_task_is_not_raised_to_the_caller() -> None:
    background = BackgroundTasks()

    async def fail() -> None:
        raise StateUnavailable

    background.add(fail())
    await background.drain()


async def test_unfinished_background_work_is_canceled_at_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.api.shared_answers._LAST_SECONDS", 0.001)
    background = BackgroundTasks()
    never = asyncio.get_running_loop().create_future()
    background.add(never)
    await background.drain()
    assert never.cancelled()
