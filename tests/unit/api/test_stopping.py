import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from proxy.api.stopping import Stoppable
from tests.fakes.asgi import HandMadeClient
from tests.fakes.gated_endpoint import GatedEndpoint
from tests.patience import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_whoever_has_seen_nothing_is_told_that_the_server_stops() -> None:
    begun = asyncio.Event()

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        begun.set()
        await asyncio.Event().wait()

    asking = HandMadeClient()
    calling = asyncio.create_task(asking.call(Stoppable(silent)))
    await begun.wait()
    calling.cancel()
    await calling
    assert asking.status == 503
    assert asking.answer_headers["retry-after"]
    assert b"server_stopping" in asking.answer


async def test_an_answer_that_has_begun_gets_no_second_beginning() -> None:
    endpoint, asking = GatedEndpoint(), HandMadeClient()
    calling = asyncio.create_task(asking.call(Stoppable(endpoint)))
    await until(lambda: endpoint.sent == 1)
    calling.cancel()
    await calling
    assert (asking.status, asking.answer) == (200, b"{")


async def test_the_end_of_an_application_has_no_client() -> None:
    sent: list[object] = []

    async def interrupted(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    async def send(message: object) -> None:
        sent.append(message)

    await Stoppable(interrupted)({"type": "lifespan"}, HandMadeClient().receive, send)
    assert sent == []


async def test_whatever_else_fails_is_left_to_the_server() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await HandMadeClient().call(Stoppable(broken))
