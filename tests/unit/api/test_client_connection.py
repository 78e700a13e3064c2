import asyncio
from collections.abc import Awaitable

from starlette.datastructures import Headers
from starlette.types import Message, Scope

from proxy.api.client_connection import WIRE, ClientConnection, Endpoint, headers_of
from proxy.api.edge import serve
from proxy.conversation import json
from tests.fakes.asgi import HandMadeClient, HandMadeWire

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def work_until_disconnected(connection: ClientConnection) -> None:
    """Work until the client disconnects, which cancels the work."""
    await connection.receive()
    await connection.while_connected(wait_forever())


async def respond_and_work(connection: ClientConnection) -> None:
    await connection.send(START)
    await connection.write(b"so ")
    await work_until_disconnected(connection)


async def wait_forever() -> None:
    await asyncio.Event().wait()


async def run_and_cancel(client: HandMadeClient, endpoint: Endpoint) -> HandMadeClient:
    """Call an endpoint, and cancel the request as an operator once it is running."""
    connection = client.connection
    serving = asyncio.create_task(run(endpoint, connection))
    for _ in range(9):
        await asyncio.sleep(0)
    connection.cancel()
    await serving
    return client


async def run(endpoint: Endpoint, connection: ClientConnection) -> None:
    await serve(endpoint, connection)


def test_a_request_canceled_before_its_response_began_gets_503() -> None:
    client = asyncio.run(run_and_cancel(HandMadeClient(method="POST"), work_until_disconnected))
    assert client.status == 503
    answer = json.parse(client.answer)
    assert isinstance(answer, dict)
    assert "request_cancelled" in str(answer["error"])


def test_a_request_canceled_after_its_response_began_gets_the_end_of_the_body() -> None:
    client = asyncio.run(run_and_cancel(HandMadeClient(method="POST"), respond_and_work))
    assert client.status == 200
    assert client.got[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_a_cancellation_after_a_complete_response_sends_nothing_more() -> None:
    async def answers(connection: ClientConnection) -> None:
        await connection.receive()
        await connection.send(START)
        await connection.end(b"all")
        connection.cancel()

    client = HandMadeClient()
    asyncio.run(client.ask(answers))
    assert client.answer == b"all"
    assert len(client.got) == 2


async def test_the_method_receive_returns_a_disconnect_after_an_operator_cancellation() -> None:
    connection = HandMadeClient().connection
    connection.cancel()
    message = await connection.receive()
    assert message == {"type": "http.disconnect"}


async def test_an_operator_cancellation_ends_a_waiting_receive_call_with_a_disconnect() -> None:
    connection = HandMadeClient(has_sent=True).connection
    receiving = asyncio.create_task(connection.receive())
    await asyncio.sleep(0)
    connection.cancel()
    message = await receiving
    assert message == {"type": "http.disconnect"}


async def test_a_task_that_is_canceled_while_it_waits_in_receive_ends_as_canceled() -> None:
    connection = HandMadeClient().connection
    await connection.receive()
    listening = asyncio.create_task(connection.receive())
    await asyncio.sleep(0)
    listening.cancel()
    await asyncio.wait((listening,))
    canceled = listening.cancelled()
    assert canceled


def while_connected(client: HandMadeClient, work: Awaitable[None]) -> bool:
    async def connected() -> bool:
        return await client.connection.while_connected(work)

    return asyncio.run(connected())


def test_work_runs_to_its_end_if_the_client_stays_connected() -> None:
    done: list[bool] = []

    async def work() -> None:
        done.append(True)

    assert while_connected(HandMadeClient(has_sent=True), work())
    assert done == [True]


def test_work_is_canceled_when_the_client_disconnects() -> None:
    client = HandMadeClient()
    ended: list[bool] = []

    async def work() -> None:
        try:
            client.leaves.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert not while_connected(client, work())
    assert ended == [True]


def connection_on(wire: HandMadeWire) -> ClientConnection:
    client = HandMadeClient()
    scope = {**client.scope, "extensions": {WIRE: {"wire": wire}}}
    return ClientConnection(scope, client.receive, client.send)


async def test_a_disconnect_is_detected_without_a_waiting_task() -> None:
    wire = HandMadeWire()
    connection = connection_on(wire)
    tasks = len(asyncio.all_tasks())
    task = asyncio.create_task(connection.while_connected(wait_forever()))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks + 1
    wire.leave()
    assert not await task
    assert not wire.is_watched
    assert connection.is_disconnected


async def test_work_for_a_disconnected_client_runs_until_its_first_await() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("at once")
        await asyncio.Event().wait()

    connection = connection_on(HandMadeWire(is_gone=True))
    assert not await connection.while_connected(work())
    assert done == ["at once"]
    assert await connection.while_connected(asyncio.sleep(0)) is False
    await asyncio.sleep(0)


async def test_work_without_an_await_finishes_although_the_client_has_disconnected() -> None:
    async def work() -> None:
        pass

    connection = connection_on(HandMadeWire(is_gone=True))
    assert await connection.while_connected(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)


SENT = [(b"host", b"here"), (b"x-api-key", b"one"), (b"accept", b"\xe4"), (b"x-api-key", b"two")]


def test_headers_have_the_same_values_as_in_starlette() -> None:
    scope: Scope = {"headers": SENT}
    headers = headers_of(scope)
    assert dict(headers) == {
        name: Headers(scope=scope)[name] for name in ("host", "x-api-key", "accept")
    }


def test_headers_are_parsed_once() -> None:
    scope: Scope = {"headers": SENT}
    assert headers_of(scope) is headers_of(scope)
