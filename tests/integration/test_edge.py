"""Everything around the chat: keys, ids, routes, models and health."""

import asyncio

import httpx
import pytest

from proxy.api.app import Serving, create_app
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import Connection
from proxy.conversation import json
from tests.fakes.http_chat import ask, request, says, temper
from tests.fakes.scripted_server import ScriptedServer
from tests.fakes.serving import running

KEY = "a key of one's own"
BEARER = {"authorization": f"Bearer {KEY}"}


def fetch(
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    upstream: ScriptedServer | None = None,
    serving: Serving | None = None,
) -> httpx.Response:
    async def run() -> httpx.Response:
        async with temper(upstream or ScriptedServer(), serving) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(run())


def test_models_are_those_of_the_backend() -> None:
    (model,) = fetch("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["owned_by"]) == ("one", "model", "llamacpp")
    assert fetch("/v1/models/one").json() == model


def test_an_unknown_model_is_a_404_that_lists_the_known_ones() -> None:
    response = fetch("/v1/models/two")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "Available: one" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("health", "ready", "llama"),
    [(200, (200, "ready"), 200), (503, (503, "loading"), 503), (500, (503, "unreachable"), 503)],
)
def test_probes_tell_the_process_from_the_backend(
    health: int, ready: tuple[int, str], llama: int
) -> None:
    assert fetch("/healthz", upstream=ScriptedServer(health=health)).status_code == 200
    response = fetch("/readyz", upstream=ScriptedServer(health=health))
    assert (response.status_code, response.json()["status"]) == ready
    assert fetch("/health", upstream=ScriptedServer(health=health)).status_code == llama


def test_a_loading_model_is_told_as_llama_server_does() -> None:
    error = fetch("/health", upstream=ScriptedServer(health=503)).json()["error"]
    assert error["message"] == "Loading model"


def test_models_of_a_backend_that_is_down_are_a_502() -> None:
    async def run() -> httpx.Response:
        app = create_app(LlamaServer(Connection("http://127.0.0.1:1")), Serving())
        async with running(app) as url, httpx.AsyncClient() as client:
            return await client.get(f"{url}/v1/models")

    assert asyncio.run(run()).status_code == 502


@pytest.mark.parametrize(
    "path",
    ["/", "/nope", "//v1/models", "/v1/../slots", "/%2e%2e/slots", "/slots", "/tools", "/props"],
)
def test_there_is_nothing_but_the_listed_routes(path: str) -> None:
    response = fetch(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
    assert "/v1/chat/completions" in response.json()["error"]["message"]


def test_a_wrong_method_names_the_right_one() -> None:
    response = fetch("/v1/chat/completions")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert "POST" in response.json()["error"]["message"]
    assert fetch("/v1/models", method="DELETE").status_code == 405


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}, {"x-api-key": ""}],
)
def test_without_the_key_nobody_is_served(headers: dict[str, str]) -> None:
    response = fetch("/v1/models", headers=headers, serving=Serving(api_key=KEY))
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["type"] == "authentication_error"
    assert KEY not in response.text


@pytest.mark.parametrize("headers", [BEARER, {"x-api-key": KEY}])
def test_with_the_key_one_is_served(headers: dict[str, str]) -> None:
    serving = Serving(api_key=KEY)
    assert fetch("/v1/models", headers=headers, serving=serving).status_code == 200


def test_probes_need_no_key() -> None:
    assert fetch("/healthz", serving=Serving(api_key=KEY)).status_code == 200


def authorization_upstream(serving: Serving, api_key: str = "") -> str | None:
    async def run() -> str | None:
        upstream = ScriptedServer(says("Hi."))
        async with temper(upstream, serving, api_key=api_key) as client:
            await ask(client, request(tools=None), headers={**BEARER, "x-conversation-id": "1"})
        assert "x-conversation-id" not in upstream.seen[0].headers
        return upstream.seen[0].headers.get("authorization")

    return asyncio.run(run())


def test_tempers_own_key_never_travels_on() -> None:
    assert authorization_upstream(Serving(api_key=KEY)) is None
    assert authorization_upstream(Serving(api_key=KEY), "other") == "Bearer other"


def test_a_clients_key_travels_on_where_neither_side_has_one() -> None:
    assert authorization_upstream(Serving(forwards_authorization=True)) == f"Bearer {KEY}"
    serving = Serving(forwards_authorization=True)
    assert authorization_upstream(serving, "other") == "Bearer other"


def test_a_plain_request_id_is_echoed_and_travels_on() -> None:
    async def run() -> tuple[str, str, str]:
        upstream = ScriptedServer(says("Hi."), says("Hi."))
        async with temper(upstream) as client:
            body = request(tools=None)
            first = await ask(client, body, headers={"x-request-id": "my-id.1"})
            second = await ask(client, body, headers={"x-request-id": "not plain"})
        echoed = first.headers["x-request-id"]
        return echoed, upstream.seen[0].headers["x-request-id"], second.headers["x-request-id"]

    echoed, sent, made = asyncio.run(run())
    assert echoed == sent == "my-id.1"
    assert made.startswith("req_")


def test_the_openapi_document_describes_the_chat() -> None:
    document = json.parse(fetch("/openapi.json").content)
    assert isinstance(document, dict)
    assert "/v1/chat/completions" in str(document["paths"])
    assert "ChatCompletionRequest" in str(document["components"])
