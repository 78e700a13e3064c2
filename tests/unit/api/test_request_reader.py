import asyncio
import threading
from base64 import b64encode

import pytest
from starlette.types import Message

from proxy.api.documents import DocumentTexts
from proxy.api.request_reader import (
    BodyLimits,
    RequestReader,
    client_of,
    note_status,
    queue_key_of,
    read_body,
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

JSON = {"content-type": "application/json"}


async def read(body: JsonObject) -> Request:
    client, reader = HandMadeClient(json.dump(body), "POST"), RequestReader(BodyLimits())
    return await reader.read(client.connection, Client(), lambda raw, _: decode_request(raw))


@pytest.mark.parametrize(
    ("body", "is_slow"),
    [
        (b'{"now":1}', False),
        (b'{"earlier":1}', True),
        (b'{"data":"%b"}' % b64encode(b"%PDF-"), True),
        (b"x" * (2**20 + 1), True),
    ],
    ids=["plain", "stored", "document", "huge"],
)
async def test_bodies_that_take_long_to_decode_are_decoded_in_a_thread(
    body: bytes, *, is_slow: bool
) -> None:
    client = HandMadeClient(body, "POST")
    reader = RequestReader(BodyLimits(), documents=DocumentTexts(), slow_marks=(b"earlier",))
    thread = await reader.read(client.connection, Client(), lambda *_: threading.current_thread())
    assert (thread is not threading.current_thread()) is is_slow


@pytest.mark.parametrize("forwards", [True, False])
def test_traceparent_and_request_id_are_always_forwarded_but_authorization_only_if_enabled(
    *, forwards: bool
) -> None:
    sent = {"authorization": "Bearer k", "traceparent": "00-1", "cookie": "a=b"}
    scope = HandMadeClient(headers=sent).scope
    headers = RequestReader(BodyLimits(), forwards).upstream_headers(scope)
    key = {"authorization": "Bearer k"} if forwards else {}
    assert headers == {**key, "traceparent": "00-1", "x-request-id": "req_test"}


@pytest.mark.parametrize(
    ("headers", "owner", "client_owner", "queue_key"),
    [
        ({"authorization": "Basic 1", "x-api-key": "k"}, "alice", "alice", "alice"),
        ({}, "alice", "alice", "alice"),
        ({"authorization": "Bearer k", "x-api-key": "other"}, "", "Bearer k", "Bearer k"),
        ({"x-api-key": "k", "x-a": "b"}, "", "k", "k"),
        ({}, "", "", "10.0.0.7"),
    ],
)
def test_a_client_is_identified_by_its_key_or_its_address(
    headers: dict[str, str], owner: str, client_owner: str, queue_key: str
) -> None:
    scope = HandMadeClient(headers=headers).scope
    scope.update(client=("10.0.0.7", 5), state={"owner": owner, "request_id": "r"})
    client = client_of(scope)
    assert (client.owner, client.request_id, client.headers) == (client_owner, "r", headers)
    assert queue_key_of(client, scope) == queue_key
    del scope["client"]  # a Unix socket
    assert queue_key_of(client, scope) == client_owner


@pytest.mark.parametrize("text", ["Hi", "x" * 2**21], ids=["small", "large"])
async def test_a_body_of_any_size_is_decoded(text: str) -> None:
    message: JsonObject = {"role": "user", "content": text}
    assert (await read({"model": "m", "messages": [message]})).messages[0].text == text
    with pytest.raises(InvalidRequest, match="messages"):
        await read({"model": "m", "messages": text})


async def test_other_tasks_run_while_a_large_body_is_decoded() -> None:
    messages: list[JsonValue] = [{"role": "user", "content": "Hello there."}] * 30_000
    turns = 0
    task = asyncio.create_task(read({"model": "m", "messages": messages}))
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    assert turns > 50


@pytest.mark.parametrize(
    ("body", "headers", "error"),
    [
        (b"12345", {}, None),
        (b"{}", {"content-type": "application/json; charset=utf-8"}, None),
        (b"{}", {"content-type": "Application/X+JSON"}, None),
        (b"12345", {"content-encoding": "Identity"}, None),
        (b"{}", {"content-type": ""}, NotJson),
        (b"{}", {"content-type": "text/plain"}, NotJson),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, NotJson),
        (b"123456", {}, RequestTooLarge),
        (b"123456", {"content-length": "6"}, RequestTooLarge),
        (b"123456", {"content-length": "nonsense"}, RequestTooLarge),
        (b"12345", {"content-encoding": "br"}, InvalidRequest),
        (b"12345", {"content-encoding": "gzip, gzip"}, InvalidRequest),
    ],
)
async def test_a_body_is_refused_if_its_content_type_coding_or_size_is_wrong(
    body: bytes, headers: dict[str, str], error: type[InvalidRequest] | None
) -> None:
    client, limits = HandMadeClient(body, headers=JSON | headers), BodyLimits(5, 0.01)
    task = read_body(client.scope, client.receive, limits)
    if error is None:
        assert await task == body
        return
    with pytest.raises(error) as raised:
        await task
    if isinstance(raised.value, RequestTooLarge):
        assert raised.value.limit == 5
    if error is InvalidRequest:
        assert raised.value.param == "content-encoding"


async def test_an_incomplete_body_times_out() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    scope = HandMadeClient(headers=JSON).scope
    with pytest.raises(RequestTimedOut) as raised:
        await read_body(scope, never, BodyLimits(5, 0.001))
    assert raised.value.seconds == 0.001


@pytest.mark.parametrize(("is_cancelled", "status"), [(False, 201), (True, CLIENT_LEFT)])
async def test_until_the_last_byte_is_sent_the_recorded_status_says_that_the_client_left(
    *, is_cancelled: bool, status: int
) -> None:
    live, connection = LiveRequest("req_1"), HandMadeClient(b"", "POST").connection
    messages: list[Message] = [
        {"type": "http.response.start", "status": 201, "headers": []},
        {"type": "http.response.body", "body": b"", "more_body": True},
        {"type": "http.response.body", "body": b""},
    ]
    recorded: list[int] = []
    for message in messages:
        connection.is_cancelled = is_cancelled and message is messages[-1]
        await connection.send(message)
        note_status(live, connection)
        recorded.append(live.status)
    assert recorded == [CLIENT_LEFT, CLIENT_LEFT, status]


async def test_a_recorded_error_status_is_not_overwritten() -> None:
    live, connection = LiveRequest("req_1"), HandMadeClient().connection
    live.status = 500
    await connection.respond(200, {}, b"{}")
    note_status(live, connection)
    assert live.status == 500
