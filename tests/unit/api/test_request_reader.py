import asyncio
import threading

import pytest
from starlette.types import Message

from proxy.api.request_reader import (
    BodyLimits,
    RequestReader,
    client_of,
    note_status,
    queue_key_of,
    read_body,
    request_id,
)
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Request
from proxy.dialects.dialect import Client
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidRequest, NotJson, RequestTimedOut, RequestTooLarge
from proxy.observability.live_request import LiveRequest
from proxy.observability.record import CLIENT_LEFT
from tests.fakes.asgi import HandMadeClient


async def read(body: JsonObject) -> Request:
    client = HandMadeClient(json.dump(body), "POST")
    reader = RequestReader(BodyLimits())
    return await reader.read(client.connection, Client(), lambda raw, _: decode_request(raw))


def test_what_has_to_be_looked_up_is_decoded_beside_the_event_loop() -> None:
    async def thread_of(body: bytes) -> threading.Thread:
        client = HandMadeClient(body, "POST")
        reader = RequestReader(BodyLimits(), slow_marks=(b"earlier",))
        return await reader.read(client.connection, Client(), lambda *_: threading.current_thread())

    assert asyncio.run(thread_of(b'{"now":1}')) is threading.current_thread()
    assert asyncio.run(thread_of(b'{"earlier":1}')) is not threading.current_thread()


@pytest.mark.parametrize("forwards", [True, False])
def test_only_some_headers_travel(*, forwards: bool) -> None:
    sent = {"authorization": "Bearer k", "traceparent": "00-1", "cookie": "a=b"}
    scope = HandMadeClient(headers=sent).scope
    headers = RequestReader(BodyLimits(), forwards).upstream_headers(scope)
    own = {"authorization": "Bearer k"} if forwards else {}
    assert headers == {**own, "traceparent": "00-1", "x-request-id": "req_test"}


def test_the_sender_has_its_headers_and_the_owner_of_its_key() -> None:
    scope = HandMadeClient(headers={"x-api-key": "k", "x-a": "b"}).scope
    stranger = client_of(scope)
    assert (stranger.owner, stranger.headers["x-a"], stranger.request_id) == ("k", "b", "req_test")
    scope["state"]["owner"] = "alice"
    assert client_of(scope).owner == "alice"


def test_a_request_has_the_id_that_it_was_given() -> None:
    assert request_id(HandMadeClient().scope) == "req_test"


@pytest.mark.parametrize(
    ("headers", "owner", "who"),
    [
        ({"authorization": "Basic 1", "x-api-key": "k"}, "alice", "alice"),
        ({}, "alice", "alice"),
        ({"authorization": "Bearer k", "x-api-key": "other"}, "", "Bearer k"),
        ({"x-api-key": "k"}, "", "k"),
        ({}, "", "10.0.0.7"),
    ],
)
def test_who_asks_is_the_owner_of_the_key_or_else_whoever_it_seems_to_be(
    headers: dict[str, str], owner: str, who: str
) -> None:
    scope = HandMadeClient(headers=headers).scope
    scope.update(client=("10.0.0.7", 5), state={"owner": owner, "request_id": "r"})
    assert queue_key_of(client_of(scope), scope) == who


def test_nothing_is_known_of_who_comes_over_a_socket_without_addresses() -> None:
    scope = HandMadeClient().scope
    assert queue_key_of(client_of(scope), scope) == ""


@pytest.mark.parametrize("text", ["Hi", "x" * 2**21], ids=["small", "large"])
def test_a_body_is_read_the_same_however_large(text: str) -> None:
    said: JsonObject = {"role": "user", "content": text}
    assert asyncio.run(read({"model": "m", "messages": [said]})).messages[0].text == text
    with pytest.raises(InvalidRequest, match="messages"):
        asyncio.run(read({"model": "m", "messages": text}))


async def test_others_are_served_while_a_large_body_is_read() -> None:
    said: list[JsonValue] = [{"role": "user", "content": "Hello there."}] * 30_000
    served = 0
    reading = asyncio.create_task(read({"model": "m", "messages": said}))
    while not reading.done():
        await asyncio.sleep(0)
        served += 1
    await reading
    found = served
    assert found > 50


JSON = {"content-type": "application/json"}


def body_of(client: HandMadeClient, limit: int) -> bytes:
    client.headers = JSON | client.headers
    return asyncio.run(read_body(client.scope, client.receive, BodyLimits(limit, 0.01)))


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/X+JSON"])
def test_a_body_that_is_declared_to_be_json_is_read(media_type: str) -> None:
    assert body_of(HandMadeClient(b"{}", headers={"content-type": media_type}), 5) == b"{}"


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_what_browsers_send_unasked_is_refused(media_type: str) -> None:
    with pytest.raises(NotJson):
        body_of(HandMadeClient(b"{}", headers={"content-type": media_type}), 5)


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    scope = HandMadeClient(headers=JSON).scope
    with pytest.raises(RequestTimedOut) as raised:
        asyncio.run(read_body(scope, never, BodyLimits(5, 0.001)))
    assert raised.value.seconds == 0.001


def test_a_body_within_the_limit_is_read() -> None:
    assert body_of(HandMadeClient(b"12345"), 5) == b"12345"


@pytest.mark.parametrize("headers", [{}, {"content-length": "6"}, {"content-length": "nonsense"}])
def test_a_body_beyond_the_limit_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestTooLarge) as raised:
        body_of(HandMadeClient(b"123456", headers=headers), 5)
    assert raised.value.limit == 5


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip"])
def test_a_body_in_another_compression_is_refused(encoding: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        body_of(HandMadeClient(b"12345", headers={"content-encoding": encoding}), 5)
    assert raised.value.param == "content-encoding"


def test_a_body_may_say_that_it_is_not_compressed() -> None:
    assert (
        body_of(HandMadeClient(b"12345", headers={"content-encoding": "Identity"}), 5) == b"12345"
    )


@pytest.mark.parametrize(("is_cancelled", "status"), [(False, 201), (True, CLIENT_LEFT)])
async def test_the_status_counts_once_the_whole_answer_was_sent(
    *, is_cancelled: bool, status: int
) -> None:
    live, connection = LiveRequest("req_1"), HandMadeClient(b"", "POST").connection
    messages: list[Message] = [
        {"type": "http.response.start", "status": 201, "headers": []},
        {"type": "http.response.body", "body": b"", "more_body": True},
        {"type": "http.response.body", "body": b""},
    ]
    seen: list[int] = []
    for message in messages:
        connection.is_cancelled = is_cancelled and message is messages[-1]
        await connection.send(message)
        note_status(live, connection)
        seen.append(live.status)
    found = seen
    assert found == [CLIENT_LEFT, CLIENT_LEFT, status]


def test_a_status_that_was_noted_of_a_failure_stays() -> None:
    live, connection = LiveRequest("req_1"), HandMadeClient().connection
    live.status = 500
    asyncio.run(connection.respond(200, {}, b"{}"))
    note_status(live, connection)
    assert live.status == 500
