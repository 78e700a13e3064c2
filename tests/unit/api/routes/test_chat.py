import asyncio
import logging

import pytest

from proxy.api.app import ServerOptions
from proxy.api.dialects import CHAT
from proxy.api.request_reader import BodyLimits, RequestReader
from proxy.api.routes.chat import Chat
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta
from proxy.errors import TemperError
from proxy.inference.plan import Policy
from proxy.serving.request_preparation import RequestPreparation
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.upstream_requests import WEATHER

BODY = json.dump({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
WITH_TOOLS = json.dump(
    {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER]}
)


def endpoint(backend: ScriptedBackend, limit: int = 1000, *, forwards: bool = False) -> Chat:
    preparation = RequestPreparation(ServerOptions().alone(backend), Policy())
    return Chat(CHAT, RequestReader(BodyLimits(limit), forwards), preparation, StreamTimeouts())


def call(
    body: bytes = BODY,
    headers: dict[str, str] | None = None,
    *,
    limit: int = 10_000,
    forwards: bool = False,
) -> tuple[HandMadeClient, ScriptedBackend]:
    client = HandMadeClient(body, "POST", headers=headers or {})
    prose: list[ReplyEvent | TemperError] = [TextDelta("Hello"), ReplyFinished("stop")]
    backend = ScriptedBackend([prose, prose])
    asyncio.run(client.ask(endpoint(backend, limit, forwards=forwards)))
    return client, backend


def test_a_request_is_answered() -> None:
    client, backend = call()
    assert client.status == 200
    assert b"Hello" in client.answer
    assert [sent["x-request-id"] for sent in backend.headers] == ["req_test"]


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"x" * 10_001, 413)])
def test_a_bad_request_asks_nobody(body: bytes, status: int) -> None:
    client, backend = call(body)
    assert client.status == status
    assert backend.upstream_requests == []


def test_a_bad_request_has_its_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    call(b"{")
    (record,) = caplog.records
    logged = record.__dict__["request"]
    assert (logged.id, logged.status, logged.attempts) == ("req_test", 400, ())


def test_a_client_that_leaves_before_it_has_asked_gets_nothing() -> None:
    client = HandMadeClient(method="POST", has_sent=True)
    client.leaves.set()
    backend = ScriptedBackend()
    asyncio.run(client.ask(endpoint(backend)))
    assert client.got == []
    assert backend.upstream_requests == []


@pytest.mark.parametrize(
    ("headers", "upstream_requests"),
    [
        ({}, 1),
        ({"x-temper-text-policy": " Respond "}, 2),
        ({"x-temper-text-policy": "respond", "x-temper-guardrails": "off"}, 1),
        ({"x-temper-text-policy": "respond", "x-temper-guardrails": "ON"}, 2),
    ],
)
def test_headers_override_the_policy(headers: dict[str, str], upstream_requests: int) -> None:
    client, backend = call(WITH_TOOLS, headers)
    assert client.status == 200
    assert len(backend.upstream_requests) == upstream_requests


@pytest.mark.parametrize("name", ["x-temper-text-policy", "x-temper-guardrails"])
def test_a_header_that_cannot_be_obeyed_is_refused(name: str) -> None:
    client, backend = call(WITH_TOOLS, {name: "poem"})
    assert client.status == 400
    assert backend.upstream_requests == []


def test_only_known_headers_travel_upstream() -> None:
    headers = {"authorization": "Bearer k", "traceparent": "t", "x-conversation-id": "1"}
    client, backend = call(headers=headers)
    prefix = client.answer_headers["x-temper-prefix"]
    own = {"x-request-id": "req_test", "x-temper-prefix": prefix}
    assert backend.headers == [{"traceparent": "t", **own}]
    forwarded = call(headers=headers, forwards=True)[1].headers
    assert forwarded[0]["authorization"] == "Bearer k"
