import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import get_args

import httpx
import pytest
import respx

from proxy.backends.client import Backend, Description, Health
from proxy.backends.detection import (
    DetectedBackend,
    EngineKind,
    FoundServer,
    detect_kind,
    find_running,
    likely_urls,
    ollama_url,
)
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyFinished
from proxy.errors import BackendFailed, BackendUnavailable
from tests.fakes.backend import ScriptedBackend
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.passages import PASSAGE, relayed_by
from tests.fakes.upstream_requests import upstream_request

LLAMA: JsonObject = {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp"}]}
OTHER: JsonObject = {"object": "list", "data": [{"id": "m", "owned_by": "someone"}]}
LOADING: JsonObject = {"error": {"code": 503, "type": "unavailable_error", "message": "Loading"}}


def routes_of(*answers: Mapping[str, JsonValue | httpx.Response]) -> respx.MockRouter:
    """Serve the documents of each host, by path, at http://host0, http://host1 and so on.

    A host responds to other paths with 404; other hosts are unreachable.
    """
    routes = respx.MockRouter(assert_all_called=False)
    for number, documents in enumerate(answers):
        for path, document in documents.items():
            answer = (
                document
                if isinstance(document, httpx.Response)
                else httpx.Response(200, json=document)
            )
            routes.get(f"http://host{number}{path}").mock(return_value=answer)
        routes.get(host=f"host{number}").respond(404, text="<html>Not here</html>")
    routes.route().mock(side_effect=httpx.ConnectError)
    return routes


def connect(routes: respx.MockRouter, url: str = "http://host0") -> BackendClient:
    return BackendClient(url, pool=MockedPool(httpx.MockTransport(routes.async_handler)))


@pytest.mark.parametrize(
    ("documents", "kind"),
    [
        ({"/v1/models": LLAMA}, "llama-server"),
        (
            {"/v1/models": httpx.Response(401, json={}, headers={"server": "llama.cpp"})},
            "llama-server",
        ),
        ({"/v1/models": httpx.Response(503, json=LOADING)}, "llama-server"),
        ({"/v1/models": OTHER, "/props": {"total_slots": 4}}, "llama-server"),
        ({"/props": {"default_generation_settings": {}}}, "llama-server"),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}, "openai"),
        ({"/v1/models": OTHER}, "openai"),
        ({"/v1/models": {"data": []}}, "openai"),
        ({"/v1/models": httpx.Response(401, json={"error": "key"})}, "openai"),
        ({"/v1/models": OTHER, "/api/version": {"version": "0.33.0"}}, "ollama"),
        ({"/api/version": {"version": "0.33.0"}}, "ollama"),
        ({}, None),
        ({"/v1/models": httpx.Response(200, text="<html>It works!</html>")}, None),
        ({"/v1/models": httpx.Response(200, json=[1])}, None),
        ({"/v1/models": httpx.Response(401, text="Log in")}, None),
        ({"/v1/models": httpx.Response(503, text="Down")}, None),
        ({"/api/version": {"version": 5}}, None),
    ],
)
def test_the_kind_of_an_engine_is_detected_from_its_responses(
    documents: dict[str, JsonValue | httpx.Response], kind: EngineKind | None
) -> None:
    assert asyncio.run(detect_kind(connect(routes_of(documents)))) == kind


def test_detect_kind_raises_an_error_for_an_unreachable_server() -> None:
    with pytest.raises(BackendFailed):
        asyncio.run(detect_kind(connect(routes_of())))


URLS = ("http://host0", "http://host1", "http://host2")
STRANGER: JsonObject = {}
OLLAMA: JsonObject = {"/api/version": {"version": "0.33.0"}}


@pytest.mark.parametrize(
    ("answers", "server"),
    [
        (({"/v1/models": LLAMA}, {"/v1/models": LLAMA}), FoundServer(URLS[0], "llama-server")),
        ((STRANGER, {"/v1/models": LLAMA}, OLLAMA), FoundServer(URLS[1], "llama-server")),
        ((STRANGER, STRANGER, OLLAMA), FoundServer(URLS[2], "ollama")),
        ((STRANGER,), None),
        ((), None),
    ],
)
def test_find_running_returns_the_first_address_with_a_server(
    answers: tuple[dict[str, JsonValue | httpx.Response], ...], server: FoundServer | None
) -> None:
    routes = routes_of(*answers)
    assert asyncio.run(find_running(URLS, lambda url: connect(routes, url), 1.0)) == server


def test_likely_urls_lists_the_ports_of_llama_server_first() -> None:
    assert list(likely_urls()) == [
        "http://127.0.0.1:9931",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:11434",
        "http://127.0.0.1:1234",
        "http://127.0.0.1:8000",
    ]
    assert [*likely_urls("box:5")][2] == "http://box:5"


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
def test_the_variable_ollama_host_is_parsed_as_in_ollama(host: str, url: str) -> None:
    assert ollama_url(host) == url


LLAMA_SERVER: JsonObject = {"data": [{"id": "m", "owned_by": "llamacpp"}]}
VLLM: JsonObject = {"data": [{"id": "m", "owned_by": "vllm"}]}


class FakeAddress:
    """An address whose server can be replaced, with a scripted adapter for each engine."""

    def __init__(self, served: JsonObject | type[httpx.HTTPError]) -> None:
        self.served = served
        self.made: list[EngineKind] = []
        end = ReplyFinished("stop")
        self.adapters = {
            kind: ScriptedBackend([[end], [end]], counts=[7], name=kind)
            for kind in get_args(EngineKind)
        }
        transport = httpx.MockTransport(self.answer)
        connection = BackendClient("http://host", pool=MockedPool(transport))
        self.backend = DetectedBackend(connection, self.adapter_for)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if not isinstance(self.served, dict):
            raise self.served("no")
        is_list = request.url.path == "/v1/models"
        return httpx.Response(200, json=self.served) if is_list else httpx.Response(404)

    def adapter_for(self, kind: EngineKind) -> Backend:
        self.made.append(kind)
        return self.adapters[kind]

    async def ask(self) -> None:
        async with aclosing(self.backend.stream(upstream_request(), {})) as reply:
            async for _ in reply:
                pass


@pytest.mark.parametrize(
    ("served", "kind"), [(LLAMA_SERVER, "llama-server"), (VLLM, "openai"), ({}, "openai")]
)
async def test_the_first_request_detects_the_engine(served: JsonObject, kind: EngineKind) -> None:
    address = FakeAddress(served)
    await address.ask()
    await address.ask()
    assert address.made == [kind]
    assert len(address.adapters[kind].upstream_requests) == 2
    assert address.backend.name == "http://host"


@pytest.mark.parametrize(("served", "warnings"), [(LLAMA_SERVER, 0), (VLLM, 0), ({}, 1)])
async def test_an_unknown_engine_is_logged_once(
    served: JsonObject, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = FakeAddress(served)
    await address.ask()
    await address.backend.describe("m")
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(messages) == warnings
    assert all("http://host: unknown engine" in item for item in messages)


async def test_an_unreachable_server_has_a_provisional_description() -> None:
    address = FakeAddress(httpx.ConnectError)
    assert await address.backend.describe("m") == Description(("m",), is_provisional=True)
    assert await address.backend.health() is Health.UNREACHABLE
    assert await address.backend.count(upstream_request(), {}) is None
    assert await address.backend.count_texts(["a"], {}) is None
    with pytest.raises(BackendUnavailable):
        await address.ask()
    address.served = LLAMA_SERVER
    await address.ask()
    assert address.made == ["llama-server"]
    assert await address.backend.health() is Health.READY
    assert await address.backend.count(upstream_request(), {}) == 7
    assert await address.backend.count_texts(["a b"], {}) == (2,)
    assert [model.id for model in await address.backend.models()] == ["one"]


async def test_a_server_that_times_out_during_detection_still_receives_chats() -> None:
    address = FakeAddress(httpx.ReadTimeout)
    await address.ask()
    address.served = LLAMA_SERVER
    await address.ask()
    assert address.made == ["openai", "llama-server"]


async def test_describe_detects_that_another_engine_runs_at_the_address() -> None:
    address = FakeAddress(LLAMA_SERVER)
    await address.backend.describe("m")
    address.served = VLLM
    await address.backend.describe("m")
    address.served = {}
    await address.backend.describe("m")
    await address.ask()
    assert address.made == ["llama-server", "openai"]
    assert len(address.adapters["openai"].upstream_requests) == 1


async def test_a_short_outage_does_not_change_the_engine() -> None:
    address = FakeAddress(LLAMA_SERVER)
    await address.backend.describe("m")
    address.served = httpx.ConnectError
    await address.backend.describe("m")
    await address.backend.close()
    assert address.made == ["llama-server"]


async def test_forwarded_requests_go_to_the_detected_engine() -> None:
    address = FakeAddress(LLAMA_SERVER)
    address.adapters["llama-server"].pieces = [b"[", b"]"]
    assert await relayed_by(address.backend) == b"[]"
    bodies = [passage.body() for passage in address.adapters["llama-server"].passages]
    assert bodies == [PASSAGE.body()]
