import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from proxy.api.fast_routes import FastRoutes, LateEndpoint
from tests.fakes.asgi import HandMadeClient


class Named:
    """An application that answers with its name."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self._name})


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [("POST", "/chat", b"chat"), ("GET", "/chat", b"app"), ("POST", "/other", b"app")],
)
def test_only_a_post_to_an_endpoint_takes_it(method: str, path: str, answer: bytes) -> None:
    client = HandMadeClient(method=method, path=path)
    asyncio.run(client.call(FastRoutes(Named(b"app"), {"/chat": Named(b"chat")})))
    assert client.answer == answer


def test_what_is_no_request_goes_on() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    client = HandMadeClient()
    asyncio.run(FastRoutes(app, {})({"type": "lifespan"}, client.receive, client.send))
    assert seen == ["lifespan"]


def test_an_endpoint_is_made_once_when_it_is_asked_for() -> None:
    made: list[Named] = []

    def make() -> Named:
        made.append(Named(b"late"))
        return made[-1]

    endpoint = LateEndpoint(make)
    assert made == []
    for _ in range(2):
        client = HandMadeClient()
        asyncio.run(client.call(endpoint))
        assert client.answer == b"late"
    assert len(made) == 1
