"""The adapter of an engine with its own protocol, and its maximum length."""

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from tests.fakes.running_proxy import RunningProxy, in_front_of, request
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.toy_engine import ToyEngine

HELLO = b'model m-1\nsay "Hel"\nsay "lo"\ncost 3 2\nend\n'
CALL = b'call get_weather {"city": "Paris", "days": 2}\nend\n'


class ToyServer:
    """Answers with given lines; `bodies` are the request bodies."""

    def __init__(self, lines: bytes) -> None:
        self.lines = lines
        self.bodies: list[JsonValue] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, is_open = b"", True
        while is_open:
            message = await receive()
            body += message.get("body", b"")
            is_open = message.get("more_body", False)
        if scope["path"] == "/talk":
            self.bodies.append(json.parse(body))
        answer = self.lines if scope["path"] == "/talk" else b'{"names":[{"name":"m-1"}]}'
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def served(server: ToyServer) -> AsyncGenerator[RunningProxy]:
    async with listening(server) as upstream:
        engine = ToyEngine(BackendClient(upstream.url))
        async with in_front_of(engine, None, ScriptedBackend()) as proxy:
            yield proxy


async def test_a_reply_of_a_toy_engine_is_an_answer() -> None:
    server = ToyServer(HELLO)
    async with served(server) as proxy:
        answer = await proxy.ask(request(temperature=0.5, max_tokens=9))
        streamed = await proxy.ask(request(), stream=True)
        models = await proxy.client.get("/v1/models")
    assert (answer.text, streamed.text) == ("Hello", "Hello")
    assert models.json()["data"][0]["id"] == "m-1"
    (first, _) = server.bodies
    assert isinstance(first, dict)
    assert (first["temperature"], first["length"], first["name"]) == (0.5, 9, "m")
    assert first["said"] == [["user", "How is the weather in Paris?"]]


async def test_tool_calls_of_a_toy_engine_are_read() -> None:
    async with served(ToyServer(CALL)) as proxy:
        answer = await proxy.ask(request())
    assert answer.called == [("get_weather", {"city": "Paris", "days": 2})]


async def test_an_option_that_the_toy_engine_lacks_is_a_400() -> None:
    async with served(ToyServer(HELLO)) as proxy:
        answer = await proxy.ask(request(logit_bias={"1": 1}))
    assert answer.status == 400
    assert "A toy knows no such field" in answer.body.decode()


@pytest.mark.parametrize("lines", [b'say "Hel"\nfail it broke\n', b'say "Hel"\n', b"what\n"])
async def test_a_malformed_reply_of_the_toy_engine_is_a_5xx_status(lines: bytes) -> None:
    async with served(ToyServer(lines)) as proxy:
        assert (await proxy.ask(request())).status >= 500


def test_toy_engine_is_at_most_a_hundred_and_twenty_lines() -> None:
    source = Path(inspect.getfile(ToyEngine)).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 120
