import asyncio

import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from proxy.api.routes.responses import responses_router
from proxy.conversation import json
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.state.memory_responses import MemoryStore
from tests.fakes.asgi import HandMadeClient

INPUT = b'{"id":"msg_1","role":"user","content":"Hi"}'


def kept() -> ResponseStore:
    store = MemoryStore(lambda: 0.0)
    store.keep("alice", StoredResponse("resp_1", [INPUT], [], b'{"id":"resp_1"}'))
    return store


def call(
    path: str,
    method: str = "GET",
    owner: str = "alice",
    store: ResponseStore | None = None,
    headers: dict[str, str] | None = None,
) -> HandMadeClient:
    app = FastAPI()
    app.include_router(responses_router(store))
    client = HandMadeClient(method=method, path=path, headers=headers or {})

    async def owned(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["owner"] = owner
        await app(scope, receive, send)

    asyncio.run(client.call(owned))
    return client


def test_a_response_is_shown_to_the_key_that_asked_for_it_only() -> None:
    store = kept()
    assert call("/v1/responses/resp_1", store=store).answer == b'{"id":"resp_1"}'
    assert call("/v1/responses/resp_1", owner="bob", store=store).status == 404
    assert call("/v1/responses/resp_1").status == 404


def test_a_response_is_listed_with_its_input_and_forgotten() -> None:
    store = kept()
    page = json.parse(call("/v1/responses/resp_1/input_items", store=store).answer)
    assert isinstance(page, dict)
    assert page["first_id"] == "msg_1"
    gone = call("/v1/responses/resp_1", "DELETE", store=store)
    assert b'"deleted":true' in gone.answer
    assert call("/v1/responses/resp_1", store=store).status == 404


@pytest.mark.parametrize(
    ("path", "method", "status", "words"),
    [
        ("/v1/responses/resp_1/cancel", "POST", 400, b"Only background responses"),
        ("/v1/responses/compact", "POST", 404, b"previous_response_id"),
        ("/v1/conversations", "POST", 404, b"previous_response_id"),
        ("/v1/responses", "GET", 405, b"Use POST"),
    ],
)
def test_what_is_not_offered_says_what_is(
    path: str, method: str, status: int, words: bytes
) -> None:
    client = call(path, method)
    assert client.status == status
    assert words in client.answer


def test_a_probe_for_a_web_socket_is_told_once() -> None:
    client = call("/v1/responses", headers={"upgrade": "websocket"})
    assert (client.status, client.answer_headers["upgrade"]) == (426, "HTTP/1.1")
