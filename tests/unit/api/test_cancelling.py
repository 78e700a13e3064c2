import asyncio
from collections.abc import Callable

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.cancelling import DEPARTURE, Cancellable, CancelScope, Stoppable
from proxy.api.streaming import ENDED_BY_OPERATOR, while_connected
from proxy.conversation import json
from tests.fakes.asgi import HandMadeClient
from tests.patience import until

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def works_until_left(scope: Scope, receive: Receive, send: Send) -> None:
    """Work for ever; the client is gone when the work is cancelled."""
    del scope, send
    await receive()

    async def work() -> None:
        await asyncio.Event().wait()

    await while_connected(receive, work)


async def begins_and_works(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"so ", "more_body": True})
    await works_until_left(scope, receive, send)


async def ended(client: HandMadeClient, app: Cancellable) -> HandMadeClient:
    """Call an application and end the request once it listens."""
    scope = client.scope
    serving = asyncio.create_task(app(scope, client.receive, client.send))
    for _ in range(9):
        await asyncio.sleep(0)
    departure: CancelScope = scope["state"][DEPARTURE]
    departure.leave()
    await serving
    return client


def test_a_client_that_has_seen_nothing_gets_an_error() -> None:
    client = asyncio.run(ended(HandMadeClient(method="POST"), Cancellable(works_until_left)))
    assert client.status == 503
    answer = json.parse(client.answer)
    assert isinstance(answer, dict)
    assert "request_cancelled" in str(answer["error"])


def test_a_client_that_has_seen_something_gets_the_end() -> None:
    client = asyncio.run(ended(HandMadeClient(method="POST"), Cancellable(begins_and_works)))
    assert client.status == 200
    assert client.got[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_an_answer_that_is_complete_stays_as_it_was() -> None:
    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send({"type": "http.response.body", "body": b"all", "more_body": False})
        scope["state"][DEPARTURE].leave()

    client = HandMadeClient()
    asyncio.run(client.call(Cancellable(answers)))
    assert client.answer == b"all"
    assert len(client.got) == 2


def test_once_it_was_told_nobody_waits_for_the_client_any_more() -> None:
    async def work() -> Message:
        client = HandMadeClient()
        departure = CancelScope(client.receive, client.send)
        departure.leave()
        return await departure.receive()

    assert asyncio.run(work()) == {"type": "http.disconnect", "reason": ENDED_BY_OPERATOR}


def test_somebody_elses_cancelling_is_not_taken_for_the_operators() -> None:
    async def work() -> bool:
        client = HandMadeClient()
        await client.receive()
        departure = CancelScope(client.receive, client.send)
        listening = asyncio.create_task(departure.receive())
        await asyncio.sleep(0)
        listening.cancel()
        await asyncio.wait((listening,))
        return listening.cancelled()

    assert asyncio.run(work())


async def cut_off(client: HandMadeClient, app: ASGIApp, begun: Callable[[], bool]) -> None:
    """Call an application, and cancel it as a server does that does not wait any longer."""
    serving = asyncio.create_task(client.call(Stoppable(app)))
    await until(begun)
    serving.cancel()
    await serving


def test_a_server_that_ends_says_so_to_whoever_has_seen_nothing() -> None:
    client = HandMadeClient(method="POST")
    asyncio.run(cut_off(client, works_until_left, lambda: client.has_sent))
    assert client.status == 503
    assert client.answer_headers["retry-after"]
    assert b"server_stopping" in client.answer


def test_an_answer_that_has_begun_gets_no_second_beginning_when_the_server_ends() -> None:
    client = HandMadeClient(method="POST")
    asyncio.run(cut_off(client, begins_and_works, lambda: len(client.got) == 2))
    assert (client.status, client.answer) == (200, b"so ")


def test_the_end_of_an_application_has_no_client() -> None:
    async def interrupted(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    client = HandMadeClient()
    asyncio.run(Stoppable(interrupted)({"type": "lifespan"}, client.receive, client.send))
    assert client.got == []


def test_a_bug_is_left_to_the_server() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(HandMadeClient().call(Stoppable(broken)))
