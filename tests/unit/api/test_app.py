import asyncio

import pytest
from starlette.exceptions import HTTPException

from proxy.api.app import ServerOptions, create_app
from proxy.api.edge import Access
from proxy.conversation import json
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend


def call(client: HandMadeClient, serving: ServerOptions | None = None) -> HandMadeClient:
    serves = serving or ServerOptions()
    asyncio.run(client.call(create_app(serves.services_for(ScriptedBackend()), serves)))
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
def test_known_paths_are_served_and_all_errors_are_json(
    client: HandMadeClient, status: int
) -> None:
    assert call(client).status == status
    assert isinstance(json.parse(client.answer), dict)


def test_without_a_key_v1_models_gets_401_and_healthz_gets_200() -> None:
    serving = ServerOptions(access=Access({"us": "key"}))
    assert call(HandMadeClient(path="/v1/models"), serving).status == 401
    assert call(HandMadeClient(path="/healthz"), serving).status == 200


def test_an_http_exception_of_fastapi_is_sent_as_an_openai_error_body() -> None:
    app = create_app(ServerOptions().services_for(ScriptedBackend()), ServerOptions())

    async def teapot() -> None:
        raise HTTPException(418, "short and stout")

    app.app.add_api_route("/tea", teapot)
    client = HandMadeClient(path="/tea")
    asyncio.run(client.call(app))
    assert client.status == 418
    assert b'"message":"short and stout"' in client.answer


def test_an_internal_error_is_sent_without_its_message_and_raised_for_the_log() -> None:
    app = create_app(ServerOptions().services_for(ScriptedBackend()), ServerOptions())

    async def broken() -> None:
        raise ZeroDivisionError("secret")

    app.app.add_api_route("/broken", broken)
    client = HandMadeClient(path="/broken")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(client.call(app))
    assert client.status == 500
    assert b'"type":"server_error"' in client.answer
    assert b"secret" not in client.answer


def test_the_404_error_has_the_requested_path_even_with_an_invalid_host() -> None:
    client = call(HandMadeClient(path="//nope", headers={"host": "["}))
    assert client.status == 404
    assert b"There is no //nope." in client.answer
