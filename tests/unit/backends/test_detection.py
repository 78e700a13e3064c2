import asyncio
from collections.abc import Mapping

import httpx
import pytest
import respx

from proxy.backends.detection import (
    Found,
    Kind,
    find_running,
    kind_at,
    likely_urls,
    ollama_url,
)
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import BackendFailed

LLAMA: JsonObject = {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp"}]}
OTHER: JsonObject = {"object": "list", "data": [{"id": "m", "owned_by": "someone"}]}
LOADING: JsonObject = {"error": {"code": 503, "type": "unavailable_error", "message": "Loading"}}


def routes_of(*answers: Mapping[str, JsonValue | httpx.Response]) -> respx.MockRouter:
    """Serve documents at http://host0, http://host1 ...; everything else is missing."""
    routes = respx.MockRouter(assert_all_called=False)
    for number, documents in enumerate(answers):
        for path, said in documents.items():
            answer = said if isinstance(said, httpx.Response) else httpx.Response(200, json=said)
            routes.get(f"http://host{number}{path}").mock(return_value=answer)
        routes.get(host=f"host{number}").respond(404, text="<html>Not here</html>")
    routes.route().mock(side_effect=httpx.ConnectError)
    return routes


def connect(routes: respx.MockRouter, url: str = "http://host0") -> BackendClient:
    return BackendClient(url, transport=httpx.MockTransport(routes.async_handler))


@pytest.mark.parametrize(
    ("documents", "kind"),
    [
        ({"/v1/models": LLAMA}, Kind.LLAMA_SERVER),
        (
            {"/v1/models": httpx.Response(401, json={}, headers={"server": "llama.cpp"})},
            Kind.LLAMA_SERVER,
        ),
        ({"/v1/models": httpx.Response(503, json=LOADING)}, Kind.LLAMA_SERVER),
        ({"/v1/models": OTHER, "/props": {"total_slots": 4}}, Kind.LLAMA_SERVER),
        ({"/props": {"default_generation_settings": {}}}, Kind.LLAMA_SERVER),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}, Kind.OPENAI),
        ({"/v1/models": OTHER}, Kind.OPENAI),
        ({"/v1/models": {"data": []}}, Kind.OPENAI),
        ({"/v1/models": httpx.Response(401, json={"error": "key"})}, Kind.OPENAI),
        ({"/v1/models": OTHER, "/api/version": {"version": "0.33.0"}}, Kind.OLLAMA),
        ({"/api/version": {"version": "0.33.0"}}, Kind.OLLAMA),
        ({}, None),
        ({"/v1/models": httpx.Response(200, text="<html>It works!</html>")}, None),
        ({"/v1/models": httpx.Response(200, json=[1])}, None),
        ({"/v1/models": httpx.Response(401, text="Log in")}, None),
        ({"/v1/models": httpx.Response(503, text="Down")}, None),
        ({"/api/version": {"version": 5}}, None),
    ],
)
def test_a_server_is_recognised_by_what_only_its_kind_says(
    documents: dict[str, JsonValue | httpx.Response], kind: Kind | None
) -> None:
    assert asyncio.run(kind_at(connect(routes_of(documents)))) is kind


def test_where_nothing_answers_there_is_no_kind() -> None:
    with pytest.raises(BackendFailed):
        asyncio.run(kind_at(connect(routes_of())))


URLS = ("http://host0", "http://host1", "http://host2")
STRANGER: JsonObject = {}
OLLAMA: JsonObject = {"/api/version": {"version": "0.33.0"}}


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (({"/v1/models": LLAMA}, {"/v1/models": LLAMA}), Found(URLS[0], Kind.LLAMA_SERVER)),
        ((STRANGER, {"/v1/models": LLAMA}, OLLAMA), Found(URLS[1], Kind.LLAMA_SERVER)),
        ((STRANGER, STRANGER, OLLAMA), Found(URLS[2], Kind.OLLAMA)),
        ((STRANGER,), None),
        ((), None),
    ],
)
def test_the_first_address_in_order_that_has_a_server_is_used(
    answers: tuple[dict[str, JsonValue | httpx.Response], ...], found: Found | None
) -> None:
    routes = routes_of(*answers)
    assert asyncio.run(find_running(URLS, lambda url: connect(routes, url), 1.0)) == found


def test_llama_servers_ports_come_before_ollamas() -> None:
    assert list(likely_urls()) == [
        "http://127.0.0.1:9931",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:11434",
    ]
    assert [*likely_urls("box:5")][-1] == "http://box:5"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("  ", "http://127.0.0.1:11434"),
        ('"1.2.3.4"', "http://1.2.3.4:11434"),
        ("example.com", "http://example.com:11434"),
        ("example.com:1234", "http://example.com:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("http://example.com", "http://example.com:80"),
        ("https://example.com", "https://example.com:443"),
        ("https://example.com:9", "https://example.com:9"),
        ("https://example.com/ollama", "https://example.com:443/ollama"),
        ("example.com/ollama/", "http://example.com:11434/ollama"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:1234", "http://[::1]:1234"),
        ("[::]:1234", "http://[::1]:1234"),
        ("example.com:99999", "http://example.com:11434"),
        ("example.com:x", "http://example.com:11434"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert ollama_url(host) == url
