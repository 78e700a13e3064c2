import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from proxy.api.limits import Limits, read_body
from proxy.errors import InvalidRequest, RequestTooLarge
from tests.fakes.asgi import HandMadeClient


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the id of the request."""
    del receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["state"]["request_id"].encode()})


def call(client: HandMadeClient, api_key: str | None = None) -> HandMadeClient:
    asyncio.run(client.call(Limits(echo, api_key)))
    return client


def test_a_plain_id_is_kept_and_echoed() -> None:
    client = call(HandMadeClient(headers={"x-request-id": "a-1.b:C_2"}))
    assert client.answer == b"a-1.b:C_2"
    assert client.answer_headers["x-request-id"] == "a-1.b:C_2"


@pytest.mark.parametrize("wished", ["", "a b", "a\nb", "é", "x" * 129])
def test_any_other_id_is_replaced(wished: str) -> None:
    client = call(HandMadeClient(headers={"x-request-id": wished}))
    assert client.answer.startswith(b"req_")


@pytest.mark.parametrize(
    "headers",
    [{"authorization": "Bearer key"}, {"authorization": "bearer key"}, {"x-api-key": "key"}],
)
def test_the_key_opens(headers: dict[str, str]) -> None:
    assert call(HandMadeClient(headers=headers), "key").status == 200


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "key"}, {"authorization": "Bearer k"}, {"x-api-key": "ké"}]
)
def test_nothing_else_opens(headers: dict[str, str]) -> None:
    client = call(HandMadeClient(headers=headers), "key")
    assert client.status == 401
    assert client.answer_headers["x-request-id"].startswith("req_")


def test_probes_need_no_key() -> None:
    assert call(HandMadeClient(path="/healthz"), "key").status == 200


def test_what_is_not_http_passes() -> None:
    passed: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        passed.append(scope["type"])

    client = HandMadeClient()
    asyncio.run(Limits(note, "key")({"type": "lifespan"}, client.receive, client.send))
    assert passed == ["lifespan"]


def read(client: HandMadeClient, limit: int) -> bytes:
    return asyncio.run(read_body(Request(client.scope, client.receive), limit))


def test_a_body_within_the_limit_is_read() -> None:
    assert read(HandMadeClient(b"12345"), 5) == b"12345"


@pytest.mark.parametrize("headers", [{}, {"content-length": "6"}, {"content-length": "nonsense"}])
def test_a_body_beyond_the_limit_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestTooLarge) as raised:
        read(HandMadeClient(b"123456", headers=headers), 5)
    assert raised.value.limit == 5


@pytest.mark.parametrize("encoding", ["gzip", "identity, br"])
def test_a_compressed_body_is_refused(encoding: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(HandMadeClient(b"12345", headers={"content-encoding": encoding}), 5)
    assert raised.value.param == "content-encoding"


def test_a_body_may_say_that_it_is_not_compressed() -> None:
    assert read(HandMadeClient(b"12345", headers={"content-encoding": "Identity"}), 5) == b"12345"
