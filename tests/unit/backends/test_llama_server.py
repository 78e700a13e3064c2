import asyncio
import dataclasses
from contextlib import aclosing

import httpx
import pytest
import respx
from msgspec.structs import replace

from proxy.backends.client import BackendModel, Description, Health
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
)
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.conversation.tools import NamedTool, Tool, ToolUse
from proxy.errors import BackendRefused, BackendTimedOut, BackendUnavailable, InvalidRequest
from tests.fakes.backend import every
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.passages import relayed_by
from tests.fakes.upstream_requests import HELLO, chunk, stream, upstream_request

STARTED = ReplyStarted("chatcmpl-1", 1700000000, "m")
SCHEMA: JsonObject = {"type": "object", "required": ["name"]}
MISMATCH = "The model produced output that does not match the expected peg-native format"
OLDER = "Failed to parse input at pos 12: <tool_call>"


def server(routes: respx.MockRouter, api_key: str = "") -> LlamaServer:
    wire = httpx.MockTransport(routes.async_handler)
    return LlamaServer(BackendClient("http://host", api_key, pool=MockedPool(wire)))


def answering(response: httpx.Response) -> tuple[LlamaServer, respx.Route]:
    routes = respx.MockRouter()
    route = routes.post("http://host/v1/chat/completions").mock(return_value=response)
    return server(routes), route


def events(backend: LlamaServer, request: UpstreamRequest | None = None) -> list[ReplyEvent]:
    async def collect() -> list[ReplyEvent]:
        async with aclosing(backend.stream(request or upstream_request(), {})) as reply:
            return await every(reply)

    return asyncio.run(collect())


def sent(request: UpstreamRequest) -> JsonObject:
    backend, route = answering(httpx.Response(200, content=HELLO))
    assert events(backend, request) == [STARTED, TextDelta("Hello"), ReplyFinished("stop")]
    body = json.parse(route.calls.last.request.content)
    assert isinstance(body, dict)
    return body


def test_a_request_is_counted_with_the_body_that_is_sent_for_a_chat() -> None:
    odd: JsonObject = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "any", "properties": {"x": True}}},
    }
    request = replace(
        upstream_request(parsing=Parsing.OURS, schema=SCHEMA),
        tools=(Tool("look", {"type": "any"}, json.dump(odd)),),
    )
    routes = respx.MockRouter()
    count = routes.post("http://host/v1/chat/completions/input_tokens")
    count.respond(json={"input_tokens": 12})
    ask = routes.post("http://host/v1/chat/completions").respond(content=HELLO)
    backend = server(routes)

    assert asyncio.run(backend.count(request, {})) == 12
    events(backend, request)
    assert count.calls.last.request.content == ask.calls.last.request.content


def error_body(message: str, code: int = 500) -> JsonObject:
    return {"error": {"code": code, "message": message, "type": "server_error"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Failed to parse messages: key 'arguments' not found", "messages"),
        ("Failed to parse tools: type must be string, but is null", "tools"),
        ("image input is not supported - hint: you may need to provide the mmproj", "messages"),
    ],
)
def test_a_500_response_that_blames_the_request_is_an_invalid_request(
    message: str, param: str
) -> None:
    error = {"error": {"code": 500, "message": message, "type": "server_error"}}
    backend, _ = answering(httpx.Response(500, json=error))
    with pytest.raises(InvalidRequest) as raised:
        events(backend)
    assert raised.value.param == param
    assert message in str(raised.value)


def loading_server(
    answers: list[httpx.Response | Exception], health: list[int], path: str = "/v1/chat/completions"
) -> LlamaServer:
    """Return a server with scripted answers and health statuses; it repeats the last status."""
    routes = respx.MockRouter()
    routes.post(f"http://host{path}").mock(side_effect=answers)
    states = iter([*health[:-1], *[health[-1]] * 100])
    routes.get("http://host/health").mock(side_effect=lambda _: httpx.Response(next(states)))
    wire = httpx.MockTransport(routes.async_handler)
    return LlamaServer(
        BackendClient("http://host", pool=MockedPool(wire)), load_wait=60, poll_seconds=0
    )


def test_requests_wait_for_a_loading_model() -> None:
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    hello = httpx.Response(200, content=HELLO)
    backend = loading_server([loading, loading, hello], [503, 503, 200])
    assert events(backend) == [STARTED, TextDelta("Hello"), ReplyFinished("stop")]


def test_a_server_that_disappears_while_loading_is_unavailable() -> None:
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    backend = loading_server([loading, httpx.ConnectError("refused")], [503, 500])
    with pytest.raises(BackendUnavailable) as caught:
        events(backend)
    assert not caught.value.loading


PROPS = "http://host/props"
MODELS = "http://host/v1/models"
LISTED: JsonObject = {"data": [{"id": "listed", "root": "org/listed-7b"}]}


@pytest.mark.parametrize(
    ("properties", "description"),
    [
        (
            {"model_alias": "a", "model_path": "/models/b.gguf", "chat_template": "{{ t }}"},
            Description(("a", "/models/b.gguf"), "", "{{ t }}"),
        ),
        (
            {
                "model_alias": "a",
                "total_slots": 4,
                "default_generation_settings": {"n_ctx": 8192, "params": {}},
            },
            Description(("a",), slots=4, window=8192),
        ),
        ({"model_alias": "a", "default_generation_settings": {"n_ctx": 0}}, Description(("a",))),
        (
            {"model_alias": "", "model_path": None, "chat_template": 5, "total_slots": 0},
            Description(("asked",)),
        ),
        ({}, Description(("asked",))),
        (
            {"default_generation_settings": 5, "modalities": [1], "total_slots": 1},
            Description(("asked",), slots=1),
        ),
        (
            {"default_generation_settings": {"n_ctx": "x"}, "total_slots": "y"},
            Description(("asked",)),
        ),
        ({"default_generation_settings": {"n_ctx": 1}}, Description(("asked",), window=1)),
        (
            {"model_alias": "a", "modalities": {"vision": False, "audio": True}},
            Description(("a",), senses=("audio",), rejects_images=True),
        ),
        (
            {"model_alias": "a", "modalities": {"vision": True}},
            Description(("a",), senses=("vision",)),
        ),
    ],
)
def test_a_model_is_described_by_the_response_of_props(
    properties: JsonObject, description: Description
) -> None:
    routes = respx.MockRouter()
    routes.get(PROPS).respond(json=properties)
    described = asyncio.run(server(routes).describe("asked"))
    assert described == dataclasses.replace(description, engine="llama.cpp")


async def test_the_latest_list_of_models_is_used_while_the_server_does_not_respond() -> None:
    routes = respx.MockRouter()
    listing = httpx.Response(200, json={"data": [{"id": "m"}]})
    routes.get("http://host/v1/models").mock(side_effect=[TimeoutError, listing, TimeoutError])
    backend = server(routes)
    with pytest.raises(BackendTimedOut):
        await backend.models()
    before = await backend.models()
    assert before == (BackendModel("m", {"id": "m"}),)
    assert await backend.models() == before


@pytest.mark.parametrize(
    ("props", "description"),
    [
        (httpx.Response(404), Description(("listed", "org/listed-7b"))),
        (
            httpx.Response(503, json={"error": {"type": "unavailable_error"}}),
            Description(("listed", "org/listed-7b"), is_provisional=True),
        ),
        (httpx.Response(200, text="no JSON"), Description(("asked",), is_provisional=True)),
    ],
)
def test_a_server_without_props_is_described_by_its_model_list(
    props: httpx.Response, description: Description
) -> None:
    routes = respx.MockRouter(assert_all_called=False)
    routes.get(PROPS).mock(return_value=props)
    routes.get(MODELS).respond(json=LISTED)
    assert asyncio.run(server(routes).describe("asked")) == description


def test_the_models_and_props_endpoints_are_requested_with_the_key() -> None:
    keyed = {"authorization": "Bearer k"}
    routes = respx.MockRouter()
    routes.get(MODELS, headers=keyed).respond(json=LISTED)
    routes.get(PROPS, headers=keyed).respond(json={"model_alias": "a", "total_slots": 2})
    backend = server(routes, "k")
    assert [model.id for model in asyncio.run(backend.models())] == ["listed"]
    assert asyncio.run(backend.describe("m")).slots == 2


def test_an_unreachable_server_has_a_provisional_description() -> None:
    routes = respx.MockRouter()
    routes.get(PROPS).mock(side_effect=httpx.ConnectError("refused"))
    description = asyncio.run(server(routes).describe("asked"))
    assert description == Description(("asked",), is_provisional=True)


def test_forwarded_requests_wait_for_a_loading_model() -> None:
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    done = httpx.Response(200, content=b"{}")
    backend = loading_server([loading, done], [503, 200], "/v1/embeddings")
    assert asyncio.run(relayed_by(backend)) == b"{}"
    backend = loading_server([loading, httpx.ConnectError("no")], [500], "/v1/embeddings")
    with pytest.raises(BackendUnavailable):
        asyncio.run(relayed_by(backend))


def test_a_text_too_long_to_embed_is_a_client_error() -> None:
    message = "input (3000 tokens) is too large to process. increase the physical batch size"
    refusals: list[httpx.Response | Exception] = [
        httpx.Response(500, json={"error": {"code": 500, "message": text, "type": "server_error"}})
        for text in (message, "oops")
    ]
    backend = loading_server(refusals, [200], "/v1/embeddings")
    with pytest.raises(InvalidRequest, match="3000 tokens") as raised:
        asyncio.run(relayed_by(backend))
    assert raised.value.param == "input"
    with pytest.raises(BackendRefused, match="oops"):
        asyncio.run(relayed_by(backend))


FORM: JsonObject = {
    "type": "json_schema",
    "json_schema": {"name": "tool_call", "schema": SCHEMA, "strict": True},
}


@pytest.mark.parametrize(
    ("chat_request", "fields"),
    [
        (upstream_request(), {"tool_choice": "auto"}),
        (upstream_request(tool_choice=ToolUse.NONE), {"tool_choice": "none"}),
        (upstream_request(tool_choice=ToolUse.REQUIRED), {"tool_choice": "auto"}),
        (upstream_request(tool_choice=NamedTool("get_weather")), {"tool_choice": "auto"}),
        (upstream_request(parsing=Parsing.OURS), {"tool_choice": "none"}),
        (
            upstream_request(parsing=Parsing.OURS, schema=SCHEMA),
            {"tool_choice": "none", "response_format": FORM},
        ),
        (upstream_request(has_tools=False), {}),
        (
            replace(upstream_request(), resets_cache=True),
            {"tool_choice": "auto", "cache_prompt": False},
        ),
    ],
)
def test_a_request_has_only_fields_that_the_server_honors(
    chat_request: UpstreamRequest, fields: JsonObject
) -> None:
    body = sent(chat_request)
    assert body["return_progress"] is body["stream"] is True
    names = ("tool_choice", "response_format", "cache_prompt")
    assert {name: body[name] for name in names if name in body} == fields
    tools = sent(upstream_request())["tools"] if chat_request.tools else None
    assert body.get("tools") == tools  # unchanged, so that the prompt cache stays valid


@pytest.mark.parametrize("message", [MISMATCH, OLDER])
def test_a_reply_that_the_server_cannot_parse_is_unreadable(message: str) -> None:
    backend, _ = answering(httpx.Response(500, json=error_body(message)))
    assert events(backend) == [ReplyUnreadable(message)]
    body = stream(chunk({"content": "Let"}), error_body(message), done=False)
    backend, _ = answering(httpx.Response(200, content=body))
    assert events(backend) == [STARTED, TextDelta("Let"), ReplyUnreadable(message)]


@pytest.mark.parametrize(
    ("status", "message"), [(500, "Context size has been exceeded."), (400, MISMATCH), (503, OLDER)]
)
def test_a_failure_that_is_not_a_parse_error_is_backend_refused(status: int, message: str) -> None:
    backend, _ = answering(httpx.Response(status, json=error_body(message, status)))
    with pytest.raises(BackendRefused) as caught:
        events(backend)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (httpx.Response(200), Health.READY),
        (httpx.Response(503), Health.LOADING),
        (httpx.Response(401), Health.UNREACHABLE),
        (httpx.Response(500), Health.UNREACHABLE),
        (httpx.ConnectError("refused"), Health.UNREACHABLE),
    ],
)
def test_health_is_read_from_the_health_endpoint(
    answer: httpx.Response | httpx.TransportError, health: Health
) -> None:
    routes = respx.MockRouter()
    routes.get("http://host/health").mock(side_effect=[answer])
    assert asyncio.run(server(routes).health()) is health
