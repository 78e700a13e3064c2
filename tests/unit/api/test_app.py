import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from starlette.exceptions import HTTPException

from proxy.api.app import Serving, create_app
from proxy.conversation import json
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend


def call(client: HandMadeClient, serving: Serving | None = None) -> HandMadeClient:
    asyncio.run(client.call(create_app(ScriptedBackend(), serving or Serving())))
    return client


@pytest.mark.parametrize(
    ("client", "status"),
    [
        (HandMadeClient(path="/v1/models"), 200),
        (HandMadeClient(path="/v1/models/one"), 200),
        (HandMadeClient(path="/v1/models/two"), 404),
        (HandMadeClient(path="/healthz"), 200),
        (HandMadeClient(path="/nope"), 404),
        (HandMadeClient(path="/v1/chat/completions"), 405),
        (HandMadeClient(b"{", "POST", "/v1/chat/completions"), 400),
        (HandMadeClient(b"{", "POST", "/chat/completions"), 400),
    ],
)
def test_the_table_of_routes_is_closed(client: HandMadeClient, status: int) -> None:
    assert call(client).status == status
    assert isinstance(json.parse(client.answer), dict)


def test_a_key_guards_every_route_but_the_probes() -> None:
    serving = Serving(api_key="key")
    assert call(HandMadeClient(path="/v1/models"), serving).status == 401
    assert call(HandMadeClient(path="/healthz"), serving).status == 200


def test_other_failures_of_the_framework_have_the_same_body() -> None:
    app = create_app(ScriptedBackend(), Serving())

    async def teapot() -> None:
        raise HTTPException(418, "short and stout")

    app.add_api_route("/tea", teapot)
    client = HandMadeClient(path="/tea")
    asyncio.run(client.call(app))
    assert client.status == 418
    assert b'"message":"short and stout"' in client.answer


def test_what_runs_with_the_application_ends_with_it() -> None:
    moments: list[str] = []

    @asynccontextmanager
    async def running() -> AsyncGenerator[None, None]:
        moments.append("begun")
        yield
        moments.append("ended")

    async def live() -> None:
        for app in (
            create_app(ScriptedBackend(), Serving(), running),
            create_app(ScriptedBackend(), Serving()),
        ):
            async with app.router.lifespan_context(app):
                moments.append("serving")

    asyncio.run(live())
    assert moments == ["begun", "serving", "ended", "serving"]
