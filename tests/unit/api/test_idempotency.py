import asyncio
from dataclasses import dataclass, replace

import pytest
from starlette.types import Receive, Scope, Send

from proxy.api.dialects import CHAT
from proxy.api.idempotency import Idempotency, RetentionLimits
from proxy.api.request_reader import BodyLimits
from proxy.conversation import json
from tests.fakes.asgi import HandMadeClient, endpoint_of
from tests.fakes.gated_endpoint import JSON, STREAM, GatedEndpoint

PIECE = b"data: 1\n\n"
DONE = b"data: [DONE]\n\n"


@dataclass
class Endpoint(GatedEndpoint):
    kind: bytes = STREAM
    pieces: tuple[bytes, ...] = (PIECE, DONE)


@dataclass
class Clock:
    """Returns the time that a test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def client(
    key: str = "k", body: bytes = b"{}", *, owner: str = "us", **headers: str
) -> HandMadeClient:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return HandMadeClient(body, "POST", headers={"idempotency-key": key, **sent}, owner=owner)


def create_idempotent(
    endpoint: Endpoint, memory: RetentionLimits | None = None, clock: Clock | None = None
) -> Idempotency:
    limits = memory or RetentionLimits()
    return Idempotency(
        endpoint_of(endpoint), BodyLimits(), CHAT.is_complete, limits, clock=clock or Clock()
    )


async def run_pending_tasks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [STREAM, JSON])
async def test_a_repeated_request_gets_the_stored_answer(kind: bytes) -> None:
    endpoint = Endpoint(kind=kind)
    endpoint.gate.set()
    app = create_idempotent(endpoint)
    first, second = client(), client()
    await first.ask(app)
    await second.ask(app)
    assert endpoint.begun == 1
    assert first.answer == second.answer == PIECE + DONE
    assert "idempotent-replayed" not in first.answer_headers
    assert second.answer_headers["idempotent-replayed"] == "true"


async def test_a_request_repeated_while_it_is_answered_receives_the_whole_answer() -> None:
    endpoint = Endpoint()
    app = create_idempotent(endpoint)
    first, second = client(), client()
    calls = [asyncio.create_task(caller.ask(app)) for caller in (first, second)]
    await run_pending_tasks()
    assert first.answer == second.answer == PIECE
    endpoint.gate.set()
    await asyncio.gather(*calls)
    assert first.answer == second.answer == PIECE + DONE
    assert endpoint.begun == 1


async def test_the_second_client_gets_the_whole_answer_when_the_first_disconnects() -> None:
    endpoint = Endpoint()
    app = create_idempotent(endpoint)
    first, second = client(), client()
    calls = [asyncio.create_task(caller.ask(app)) for caller in (first, second)]
    await run_pending_tasks()
    first.leaves.set()
    await calls[0]
    endpoint.gate.set()
    await calls[1]
    assert second.answer == PIECE + DONE
    assert (endpoint.begun, endpoint.left) == (1, 0)


async def test_when_all_clients_disconnect_the_work_is_canceled_and_the_key_is_released() -> None:
    endpoint = Endpoint()
    app = create_idempotent(endpoint)
    first, second = client(), client()
    first.leaves.set()
    await first.ask(app)
    assert endpoint.left == 1
    endpoint.gate.set()
    await second.ask(app)
    assert second.answer == PIECE + DONE
    assert endpoint.begun == 2


@pytest.mark.parametrize(
    "endpoint",
    [Endpoint(status=503, kind=JSON), Endpoint(pieces=(PIECE, b'data: {"error": {}}\n\n'))],
    ids=["a status", "an event"],
)
async def test_a_repeated_request_after_an_error_is_processed_again(endpoint: Endpoint) -> None:
    endpoint = replace(endpoint, gate=asyncio.Event())
    endpoint.gate.set()
    app = create_idempotent(endpoint)
    for _ in range(2):
        await client().ask(app)
    assert endpoint.begun == 2


@pytest.mark.parametrize(
    "other",
    [client(body=b'{"a":1}'), client(x_temper_text_policy="accept")],
    ids=["body", "header"],
)
async def test_a_different_request_under_the_same_key_is_refused(other: HandMadeClient) -> None:
    endpoint = Endpoint()
    endpoint.gate.set()
    app = create_idempotent(endpoint)
    await client().ask(app)
    await other.ask(app)
    error = json.parse(other.answer)
    assert isinstance(error, dict)
    assert (other.status, endpoint.begun) == (422, 1)
    assert b"idempotency_key_reused" in other.answer


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256])
async def test_a_malformed_key_is_refused(key: str) -> None:
    endpoint, asking = Endpoint(), client(key)
    await asking.ask(create_idempotent(endpoint))
    assert (asking.status, endpoint.begun) == (400, 0)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (client(owner="us"), client(owner="them")),
        (client(owner="", authorization="Bearer a"), client(owner="", authorization="Bearer b")),
        (client("k"), client("l")),
    ],
    ids=["owner", "key of the backend", "key"],
)
async def test_requests_with_another_owner_or_another_key_are_processed_separately(
    first: HandMadeClient, other: HandMadeClient
) -> None:
    endpoint = Endpoint()
    endpoint.gate.set()
    app = create_idempotent(endpoint)
    await first.ask(app)
    await other.ask(app)
    assert endpoint.begun == 2


async def test_an_answer_is_forgotten_after_its_retention_time() -> None:
    endpoint, clock = Endpoint(), Clock()
    endpoint.gate.set()
    app = create_idempotent(endpoint, RetentionLimits(seconds=60), clock)
    await client().ask(app)
    clock.now = 60.0
    await client().ask(app)
    assert endpoint.begun == 1
    clock.now = 61.0
    await client().ask(app)
    assert endpoint.begun == 2


@pytest.mark.parametrize(
    ("memory", "begun"),
    [
        (RetentionLimits(answers=1), 3),
        (RetentionLimits(bytes_of_all=30), 3),
        (RetentionLimits(bytes_of_one=20), 3),
        (RetentionLimits(), 2),
    ],
    ids=["too many", "too large together", "too large", "neither"],
)
async def test_the_oldest_answers_are_evicted_when_a_limit_is_exceeded(
    memory: RetentionLimits, begun: int
) -> None:
    endpoint = Endpoint()
    endpoint.gate.set()
    app = create_idempotent(endpoint, memory)
    for key in ("a", "b", "a"):
        await client(key).ask(app)
    assert endpoint.begun == begun


async def test_an_answer_is_produced_no_faster_than_it_is_read() -> None:
    endpoint, asking = Endpoint(pieces=(b"x" * 100_000, DONE)), client()
    stalls = asyncio.Event()

    async def take_slowly(message: object) -> None:
        del message
        await stalls.wait()

    app = create_idempotent(endpoint)
    calling = asyncio.create_task(app(asking.connection.wrap(send=take_slowly)))
    await run_pending_tasks()
    assert (endpoint.begun, endpoint.sent) == (1, 0)
    stalls.set()
    endpoint.gate.set()
    await calling
    assert endpoint.sent == 1


async def test_the_last_message_of_a_canceled_generation_reaches_every_client() -> None:
    endpoint = Endpoint()

    async def farewell(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await endpoint(scope, receive, send)
        except asyncio.CancelledError:
            await send({"type": "http.response.body", "body": b"bye", "more_body": False})
            raise

    app = Idempotency(endpoint_of(farewell), BodyLimits(), CHAT.is_complete)
    clients = [client(), client()]
    calls = [asyncio.create_task(client.ask(app)) for client in clients]
    await run_pending_tasks()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert [client.answer for client in clients] == [PIECE + b"bye"] * 2


async def test_an_internal_error_of_the_endpoint_is_raised_to_the_caller() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await client().ask(Idempotency(endpoint_of(broken), BodyLimits(), CHAT.is_complete))


async def test_no_upstream_request_is_sent_if_the_client_disconnects_during_its_body() -> None:
    endpoint, asking = Endpoint(), client()

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    await create_idempotent(endpoint)(asking.connection.wrap(receive))
    assert (endpoint.begun, asking.got) == (0, [])


@pytest.mark.fault("F102")
@pytest.mark.parametrize(
    "memory",
    [RetentionLimits(answers=3), RetentionLimits(bytes_of_all=90)],
    ids=["by number", "by bytes"],
)
async def test_one_client_cannot_evict_the_answers_of_others(memory: RetentionLimits) -> None:
    endpoint = Endpoint()
    endpoint.gate.set()
    app = create_idempotent(endpoint, memory)
    await client("a").ask(app)
    for number in range(20):
        await client(f"b{number}", owner="others").ask(app)
    assert endpoint.begun == 21
    await client("a").ask(app)
    assert endpoint.begun == 21


@pytest.mark.fault("F102")
async def test_running_requests_of_one_owner_evict_no_answer_of_another_owner() -> None:
    endpoint = Endpoint()
    endpoint.gate.set()
    app = create_idempotent(endpoint, RetentionLimits(answers=3))
    await client("a").ask(app)
    endpoint.gate.clear()
    asking = [
        asyncio.create_task(client(f"b{number}", owner="others").ask(app)) for number in range(9)
    ]
    await run_pending_tasks()
    await client("a").ask(app)
    assert endpoint.begun == 10
    endpoint.gate.set()
    await asyncio.gather(*asking)
