import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from proxy.api.fronts import all_fronts
from proxy.api.limits import Access, BodyLimits, Limits, read_body
from proxy.errors import InvalidRequest, NotJson, RequestTimedOut, RequestTooLarge
from tests.fakes.asgi import HandMadeClient


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the id of the request, and tell whose it is."""
    del receive
    owner = scope["state"].get("owner", "nobody").encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"owner", owner)]})
    await send({"type": "http.response.body", "body": scope["state"]["request_id"].encode()})


def call(client: HandMadeClient, *keys: str, hosts: frozenset[str] | None = None) -> HandMadeClient:
    access = Access({f"owner of {key}": key for key in keys}, hosts)
    asyncio.run(client.call(Limits(echo, access, all_fronts())))
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
    assert (b"not valid" in client.answer) is bool(headers)
    assert client.answer_headers["x-request-id"].startswith("req_")


def test_probes_need_no_key() -> None:
    assert call(HandMadeClient(path="/healthz"), "key").status == 200


@pytest.mark.parametrize(("host", "status"), [("ours", 200), ("theirs", 403)])
def test_what_is_public_needs_a_name_of_ours_but_no_key(host: str, status: int) -> None:
    client = HandMadeClient(path="/page", headers={"host": host})
    access = Access({"us": "key"}, frozenset({"ours"}))
    limits = Limits(echo, access, all_fronts(), public_paths=frozenset({"/page"}))
    asyncio.run(client.call(limits))
    assert client.status == status
    if status == 200:
        assert client.answer_headers["owner"] == ""


def test_what_is_not_http_passes() -> None:
    passed: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        passed.append(scope["type"])

    client = HandMadeClient()
    asyncio.run(
        Limits(note, Access({"us": "key"}), all_fronts())(
            {"type": "lifespan"}, client.receive, client.send
        )
    )
    assert passed == ["lifespan"]


def test_several_keys_open_and_tell_whose_they_are() -> None:
    client = call(HandMadeClient(headers={"x-api-key": "second"}), "first", "second")
    assert client.answer_headers["owner"] == "owner of second"
    assert call(HandMadeClient()).answer_headers["owner"] == ""


NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8367", "127.0.0.1:1", "[::1]", "[::1]:8367", "::1"]
)
def test_a_server_answers_to_its_names(host: str) -> None:
    assert call(HandMadeClient(headers={"host": host}), hosts=NAMES).status == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8367", "localhost.evil.example", "127.0.0.1.nip.io"]
)
def test_a_server_does_not_answer_to_other_names(host: str) -> None:
    client = call(HandMadeClient(headers={"host": host}), hosts=NAMES)
    assert client.status == 403
    assert b"server.allowed_hosts" in client.answer


def test_probes_may_use_any_name() -> None:
    client = HandMadeClient(path="/healthz", headers={"host": "10.1.2.3"})
    assert call(client, hosts=NAMES).status == 200


JSON = {"content-type": "application/json"}


def read(client: HandMadeClient, limit: int) -> bytes:
    client.headers = JSON | client.headers
    return asyncio.run(read_body(Request(client.scope, client.receive), BodyLimits(limit, 0.01)))


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/X+JSON"])
def test_a_body_that_is_declared_to_be_json_is_read(media_type: str) -> None:
    assert read(HandMadeClient(b"{}", headers={"content-type": media_type}), 5) == b"{}"


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_what_browsers_send_unasked_is_refused(media_type: str) -> None:
    with pytest.raises(NotJson):
        read(HandMadeClient(b"{}", headers={"content-type": media_type}), 5)


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    request = Request(HandMadeClient(headers=JSON).scope, never)
    with pytest.raises(RequestTimedOut) as raised:
        asyncio.run(read_body(request, BodyLimits(5, 0.001)))
    assert raised.value.seconds == 0.001


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
