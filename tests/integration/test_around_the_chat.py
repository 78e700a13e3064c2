"""API keys, routes, models, health and CORS: every endpoint except chat completions."""

import logging

import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.loopback import own_address
from tests.fakes.running_proxy import CHAT, request, temper, temper_at
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import says

KEY = "the-key"
LOCKED = ServerOptions(access=Access({"us": KEY}))
ROUTES = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models",
    "/v1/models/{model_id}", "/props", "/health", "/readyz",
)  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": KEY},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer wrong", "x-api-key": "wrong"},
        {"x-api-key": "wrong"},
        {"cookie": f"key={KEY}"},
    ],
)
@pytest.mark.parametrize(
    "path", [CHAT, "/v1/models", "/v1/embeddings", "/props", "/nowhere", "/openapi.json"]
)
async def test_a_request_without_a_valid_api_key_gets_401(
    headers: dict[str, str], path: str
) -> None:
    async with temper(serving=LOCKED) as proxy:
        response = await proxy.client.post(path, content=b"{", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"].startswith("req_")
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert KEY not in response.text


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer  {KEY}"}, {"x-api-key": KEY}],
)
async def test_a_request_with_a_valid_api_key_is_answered(
    *, headers: dict[str, str], stream: bool
) -> None:
    async with temper(says("Hi."), serving=LOCKED) as proxy:
        answer = await proxy.ask(request(tools=None), stream=stream, headers=headers)
    assert answer.text == "Hi."


@pytest.mark.parametrize("path", ["/health", "/healthz", "/readyz"])
async def test_health_endpoints_need_no_api_key(path: str) -> None:
    async with temper(serving=LOCKED) as proxy:
        assert (await proxy.client.get(path)).status_code == 200
        response = await proxy.client.head(path)  # as many monitors do
        assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/chat",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/V1/chat/completions",
        "/v1/chat/completions/../../slots",
        "/v1/%2e%2e/slots",
        "/slots",
        "/tools",
        "/completions",
        "/v1/embeddings/",
        "/models/load",
        "/cors-proxy",
        "/redoc",
        "/a%0d%0ab",
        "/%ff%00",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_unknown_paths_are_a_404_with_the_list_of_routes(path: str, method: str) -> None:
    async with temper() as proxy:
        response = await proxy.client.request(method, proxy.server.url + path)
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "not_found")
    assert all(route in error["message"] for route in ROUTES)
    assert proxy.backend.upstream_requests == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("PUT", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/x", "GET"),
        ("POST", "/health", "GET"),
        ("POST", "/props", "GET"),
        ("GET", "/v1/embeddings", "POST"),
        ("GET", "/v1/completions", "POST"),
    ],
)
async def test_wrong_method_is_a_405_with_the_allowed_method(
    method: str, path: str, allowed: str
) -> None:
    async with temper() as proxy:
        response = await proxy.client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    assert response.json()["error"]["code"] == "method_not_allowed"
    assert "access-control-allow-origin" not in response.headers


MODEL: JsonObject = {"id": "org/tiny:q4", "object": "x", "created": 5, "meta": {"n_ctx": 2048}}


async def test_the_models_of_the_backend_are_listed_and_retrieved_with_capabilities() -> None:
    async with temper() as proxy:
        proxy.backend.models = {"object": "list", "data": [MODEL]}
        listed = (await proxy.client.get("/v1/models")).json()
        shown = (await proxy.client.get("/v1/models/org/tiny:q4")).json()
    expected = {"capabilities": ["tools"], **MODEL, "object": "model", "owned_by": "temper"}
    assert listed == {"object": "list", "data": [expected]}
    assert shown == expected


async def test_unknown_model_error_names_the_known_models() -> None:
    async with temper() as proxy:
        proxy.backend.models = {"object": "list", "data": [MODEL]}
        response = await proxy.client.get("/v1/models/other")
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "org/tiny:q4" in error["message"]


@pytest.mark.parametrize(
    ("upstream", "readiness", "status"),
    [(200, "ready", 200), (503, "loading", 503), (500, "unreachable", 503)],
)
async def test_readyz_and_health_report_the_state_of_the_backend(
    upstream: int, readiness: str, status: int
) -> None:
    async with temper() as proxy:
        proxy.backend.health = upstream
        alive = await proxy.client.get("/healthz")
        ready = await proxy.client.get("/readyz")
        health = await proxy.client.get("/health")
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()["status"]) == (status, readiness)
    assert health.status_code == status
    if status == 503:
        assert health.headers["retry-after"] == "5"
    if readiness == "loading":
        assert health.json()["error"]["message"] == "Loading model"


async def test_with_an_unreachable_backend_healthz_is_200_and_readyz_is_503() -> None:
    async with listening(ScriptedBackend(), own_address()) as gone:
        url = gone.url
    async with temper_at(url) as proxy:
        assert (await proxy.client.get("/healthz")).status_code == 200
        ready = await proxy.client.get("/readyz")
        health = await proxy.client.get("/health")
    assert (ready.status_code, ready.json()["status"]) == (503, "unreachable")
    assert health.status_code == 503
    assert health.json()["error"]["code"] == "backend_unavailable"


async def test_the_openapi_document_has_every_route() -> None:
    async with temper() as proxy:
        document = json.parse((await proxy.client.get("/openapi.json")).content)
    assert isinstance(document, dict)
    paths = document["paths"]
    assert isinstance(paths, dict)
    assert set(ROUTES) <= set(paths)


async def test_only_allowed_origins_get_cors_headers() -> None:
    preflight = {
        "origin": "https://chat.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    async with temper() as proxy:
        refused = await proxy.client.options(CHAT, headers=preflight)
        plain = await proxy.client.get("/v1/models", headers={"origin": preflight["origin"]})
    assert refused.status_code == 405
    assert not any(name.startswith("access-control") for name in (*refused.headers, *plain.headers))
    listed = ServerOptions(access=LOCKED.access, origins=(preflight["origin"],))
    async with temper(says("Hi."), serving=listed) as proxy:
        allowed = await proxy.client.options(CHAT, headers=preflight)
        other = {**preflight, "origin": "https://evil.example"}
        other_origin = await proxy.client.options(CHAT, headers=other)
        key = {"authorization": f"Bearer {KEY}", "origin": preflight["origin"]}
        answer = await proxy.ask(request(tools=None), headers=key)
    assert allowed.headers["access-control-allow-origin"] == preflight["origin"]
    assert "access-control-allow-credentials" not in allowed.headers
    assert "access-control-allow-origin" not in other_origin.headers
    assert answer.headers["access-control-allow-origin"] == preflight["origin"]
    assert answer.text == "Hi."


async def test_body_not_declared_as_json_is_rejected() -> None:
    async with temper() as proxy:
        headers = {"content-type": "text/plain"}
        response = await proxy.client.post(CHAT, content=b"{}", headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"
    assert proxy.backend.upstream_requests == []


async def test_overlong_model_name_is_rejected_on_every_route(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    name = "a/" * 10_000
    async with temper() as proxy:
        answer = await proxy.ask(request(model=name))
        assert answer.status == 400
        assert answer.error is not None
        assert answer.error["param"] == "model"
        body = json.dump({"model": name, "prompt": "Hi"})
        for response in (
            await proxy.client.post("/v1/completions", content=body),
            await proxy.client.get("/props", params={"model": name}),
            await proxy.client.get(f"/v1/models/{name}x"),
        ):
            assert response.status_code == 400
            assert response.json()["error"]["param"] == "model"
            assert len(response.content) < 500
        assert proxy.backend.upstream_requests == []
    records = [record for record in caplog.records if record.name.startswith("proxy")]
    assert records
    assert all(len(str(record.__dict__)) < 3_000 for record in records)
