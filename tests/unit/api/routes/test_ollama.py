"""Ollama's API: authentication, other methods, and refusals."""

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.backends.ollama import Ollama
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.right_ollama import FOREVER, RightOllama
from tests.fakes.running_proxy import in_front_of, temper
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import says
from tests.fakes.tool_loops import MODEL

CHAT = "/api/chat"
LINES = "application/x-ndjson"
HI: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
OPEN = {"content-type": "application/x-www-form-urlencoded"}  # curl's default


def error_in(answer: httpx.Response) -> str:
    body = json.parse(answer.content)
    assert isinstance(body, dict)
    assert body.keys() == {"error"}
    return f"{body['error']}"


async def test_json_with_the_default_content_type_of_curl_is_accepted() -> None:
    async with temper(says("Hello.")) as proxy:
        answer = await proxy.client.post(CHAT, content=json.dump(HI), headers=OPEN)
        assert (answer.status_code, answer.headers["content-type"]) == (200, LINES)


@pytest.mark.parametrize("header", ["origin", "referer", "sec-fetch-site"])
@pytest.mark.parametrize("path", [CHAT, "/api/embed", "/api/show", "/api/pull"])
async def test_a_browser_request_without_the_json_content_type_gets_415(
    path: str, header: str
) -> None:
    async with temper() as proxy:
        headers = {**OPEN, header: "https://elsewhere.example"}
        answer = await proxy.client.post(path, content=json.dump(HI), headers=headers)
    assert answer.status_code == 415
    assert "application/json" in error_in(answer)


async def test_a_second_request_with_the_same_idempotency_key_gets_the_first_response() -> None:
    headers = {"idempotency-key": "k"}
    async with temper(says("Hello.")) as proxy:
        first = await proxy.client.post(CHAT, json=HI, headers=headers)
        second = await proxy.client.post(CHAT, json=HI, headers=headers)
    assert first.content == second.content
    assert second.headers["idempotent-replayed"] == "true"


BODIES: tuple[tuple[str, bytes], ...] = (
    (CHAT, b""),
    (CHAT, b"[]"),
    (CHAT, b"{"),
    (CHAT, b'{"model":1}'),
    (CHAT, b'{"model":"m","messages":[[]]}'),
    (CHAT, b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"options":{"top_k":"x"}}'),
    ("/api/generate", b'{"model":"m","prompt":5}'),
    ("/api/generate", b'{"model":"m","prompt":"a","suffix":"b"}'),
    ("/api/show", b"{}"),
    ("/api/show", b"[]"),
    ("/api/embed", b"{}"),
    ("/api/embed", b'{"model":"m"}'),
    ("/api/embeddings", b"null"),
    ("/api/pull", b"7"),
    ("/api/blobs/sha256:1", b"blob"),
)


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_an_invalid_body_gets_400(path: str, body: bytes) -> None:
    async with temper() as proxy:
        answer = await proxy.client.post(path, content=body)
    assert answer.status_code == 400
    assert error_in(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", CHAT, 405), ("POST", "/api/tags", 405), ("GET", "/api/nowhere", 404)],
)
async def test_unsupported_methods_get_405_and_unknown_paths_404(
    method: str, path: str, status: int
) -> None:
    async with temper() as proxy:
        answer = await proxy.client.request(method, path)
    assert (answer.status_code, bool(error_in(answer))) == (status, True)


async def test_embed_accepts_the_old_field_name_instead_of_model() -> None:
    answer = b'{"data":[{"index":0,"embedding":[1.0]}],"usage":{"prompt_tokens":4}}'
    async with temper(Script((answer,), headers={"content-type": "application/json"})) as proxy:
        response = await proxy.client.post("/api/embed", json={"name": "m:latest", "input": "a"})
        (put,) = proxy.backend.upstream_requests
    assert (response.status_code, put.raw["model"]) == (200, b'"m"')


async def test_an_upstream_status_500_gives_the_client_502(*, stream: bool) -> None:
    async with temper(Script((b"data: {",), status=500)) as proxy:
        answer = await proxy.client.post(CHAT, json={**HI, "stream": stream})
    assert (answer.status_code, bool(error_in(answer))) == (502, True)


@pytest.mark.parametrize(
    ("path", "request_body", "response_body"),
    [
        (
            "/api/embed",
            {"input": ["a", "b"]},
            {"model": "m:latest", "embeddings": [[1.0], [0.5]], "prompt_eval_count": 4},
        ),
        ("/api/embeddings", {"prompt": "a"}, {"embedding": [1.0]}),
    ],
)
async def test_ollama_embeddings_are_translated_to_and_from_openai_embeddings(
    path: str, request_body: JsonObject, response_body: JsonObject
) -> None:
    data = b'[{"index":1,"embedding":[0.5]},{"index":0,"embedding":[1.0]}]'
    answer = b'{"data":%b,"usage":{"prompt_tokens":4}}' % data
    json_type = {"content-type": "application/json"}
    async with temper(Script((answer,), headers=json_type)) as proxy:
        response = await proxy.client.post(path, json={"model": "m:latest", **request_body})
        (put,) = proxy.backend.upstream_requests
    assert {**response_body, **response.json()} == response.json()
    assert (put.raw["model"], put.raw["encoding_format"]) == (b'"m"', b'"float"')


async def test_an_upstream_response_without_embeddings_gives_502() -> None:
    async with temper(Script((b"{}",), headers={"content-type": "application/json"})) as proxy:
        response = await proxy.client.post("/api/embed", json={"model": "m", "input": "a"})
    assert (response.status_code, "an invalid response" in error_in(response)) == (502, True)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/pull"), ("POST", "/api/create"), ("DELETE", "/api/delete")]
)
async def test_requests_that_manage_models_get_400_with_a_remedy_if_the_backend_is_not_ollama(
    method: str, path: str
) -> None:
    async with temper() as proxy:
        answer = await proxy.client.request(method, path, json={"model": "m"})
    assert answer.status_code == 400
    assert "temper pull" in error_in(answer)


async def test_only_the_key_of_an_operator_may_pull_models() -> None:
    keys = {"ann": "a", "bob": "b"}
    serving = ServerOptions(access=Access(keys), operators=frozenset(("ann",)))
    mock = RightOllama()
    async with listening(mock.app) as url:
        engine = Ollama(BackendClient(url.url))
        async with in_front_of(engine, serving, ScriptedBackend()) as proxy:
            statuses = {}
            for name, key in keys.items():
                headers = {"authorization": f"Bearer {key}"}
                body = {"model": "new", "stream": False}
                answer = await proxy.client.post("/api/pull", json=body, headers=headers)
                statuses[name] = answer.status_code
    assert statuses == {"ann": 200, "bob": 403}
    assert [name for name, _ in mock.managed] == ["pull"]


async def test_the_upstream_request_is_canceled_if_the_client_disconnects() -> None:
    mock = RightOllama()
    body: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": FOREVER}]}
    async with listening(mock.app) as url:
        engine = Ollama(BackendClient(url.url))
        async with in_front_of(engine, None, ScriptedBackend()) as proxy:
            async with proxy.client.stream("POST", CHAT, json=body) as answer:
                await anext(answer.aiter_lines())
            await mock.disconnected.wait()
