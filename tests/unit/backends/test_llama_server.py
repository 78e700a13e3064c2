import asyncio
import dataclasses
from contextlib import aclosing

import httpx
import pytest
import respx
from msgspec.structs import replace

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from proxy.backends.client import BackendModel, Description, Health
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
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
from tests.fakes.raw_backend import raw_backend
from tests.fakes.upstream_requests import HELLO, chunk, stream, upstream_request
from tests.patience import PATIENCE_SECONDS

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


def events(backend: LlamaServer, asked: UpstreamRequest | None = None) -> list[ReplyEvent]:
    async def collect() -> list[ReplyEvent]:
        async with aclosing(backend.stream(asked or upstream_request(), {})) as reply:
            return await every(reply)

    return asyncio.run(collect())


def sent(asked: UpstreamRequest) -> JsonObject:
    backend, route = answering(httpx.Response(200, content=HELLO))
    assert events(backend, asked) == [STARTED, TextDelta("Hello"), ReplyFinished("stop")]
    body = json.parse(route.calls.last.request.content)
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize(
    ("tool_choice", "said"),
    [
        (ToolUse.AUTO, "auto"),
        (ToolUse.NONE, "none"),
        (ToolUse.REQUIRED, "auto"),
        (NamedTool("get_weather"), "auto"),
    ],
)
def test_the_server_never_hears_of_a_tool_choice_that_it_cannot_keep(
    tool_choice: ToolUse | NamedTool, said: str
) -> None:
    body = sent(upstream_request(tool_choice=tool_choice))

    assert body["tool_choice"] == said
    assert body["return_progress"] is True
    assert body["stream"] is True


def test_a_raw_attempt_keeps_the_tools_in_the_prompt_and_the_parser_out() -> None:
    body = sent(upstream_request(parsing=Parsing.OURS))

    assert body["tool_choice"] == "none"
    assert body["tools"] == sent(upstream_request())["tools"]
    assert "response_format" not in body


def test_a_constrained_attempt_allows_nothing_but_the_schema() -> None:
    body = sent(upstream_request(parsing=Parsing.OURS, schema=SCHEMA))

    assert body["tool_choice"] == "none"
    assert body["tools"] == sent(upstream_request())["tools"]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "tool_call", "schema": SCHEMA, "strict": True},
    }


def test_a_state_that_cannot_be_rolled_back_is_not_built_on() -> None:
    assert sent(replace(upstream_request(), resets_cache=True))["cache_prompt"] is False
    assert "cache_prompt" not in sent(upstream_request())


def test_without_tools_there_is_no_tool_choice() -> None:
    assert "tool_choice" not in sent(upstream_request(has_tools=False))


def test_a_question_is_counted_as_it_would_be_asked() -> None:
    odd: JsonObject = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "any", "properties": {"x": True}}},
    }
    asked = replace(
        upstream_request(parsing=Parsing.OURS, schema=SCHEMA),
        tools=(Tool("look", {"type": "any"}, json.dump(odd)),),
    )
    routes = respx.MockRouter()
    count = routes.post("http://host/v1/chat/completions/input_tokens")
    count.respond(json={"input_tokens": 12})
    ask = routes.post("http://host/v1/chat/completions").respond(content=HELLO)
    backend = server(routes)

    assert asyncio.run(backend.count(asked, {})) == 12
    events(backend, asked)
    assert count.calls.last.request.content == ask.calls.last.request.content


def test_single_texts_are_counted_too() -> None:
    routes = respx.MockRouter()
    routes.post("http://host/tokenize").respond(json={"tokens": [5, 6, -1, 7, -1]})

    assert asyncio.run(server(routes).count_texts(["Hi", "x"], {})) == (2, 1)


def error_body(message: str, code: int = 500) -> JsonObject:
    return {"error": {"code": code, "message": message, "type": "server_error"}}


@pytest.mark.parametrize("message", [MISMATCH, OLDER])
def test_a_reply_that_the_servers_parser_cannot_read_is_unreadable(message: str) -> None:
    backend, _ = answering(httpx.Response(500, json=error_body(message)))

    assert events(backend) == [ReplyUnreadable(message)]


@pytest.mark.parametrize("message", [MISMATCH, OLDER])
def test_a_reply_that_becomes_unreadable_ends_there(message: str) -> None:
    body = stream(chunk({"content": "Let"}), error_body(message), done=False)
    backend, _ = answering(httpx.Response(200, content=body))

    assert events(backend) == [STARTED, TextDelta("Let"), ReplyUnreadable(message)]


@pytest.mark.parametrize(
    ("status", "message"), [(500, "Context size has been exceeded."), (400, MISMATCH), (503, OLDER)]
)
def test_any_other_failure_is_a_refusal(status: int, message: str) -> None:
    backend, _ = answering(httpx.Response(status, json=error_body(message, status)))

    with pytest.raises(BackendRefused) as caught:
        events(backend)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Failed to parse messages: key 'arguments' not found", "messages"),
        ("Failed to parse tools: type must be string, but is null", "tools"),
        ("image input is not supported - hint: you may need to provide the mmproj", "messages"),
    ],
)
def test_a_500_that_blames_the_request_is_the_clients_to_mend(message: str, param: str) -> None:
    error = {"error": {"code": 500, "message": message, "type": "server_error"}}
    backend, _ = answering(httpx.Response(500, json=error))
    with pytest.raises(InvalidRequest) as raised:
        events(backend)
    assert raised.value.param == param
    assert message in str(raised.value)


def test_a_server_that_is_loading_its_model_says_so() -> None:
    error: JsonObject = {"message": "Loading model", "type": "unavailable_error", "code": 503}
    backend, _ = answering(httpx.Response(503, json={"error": error}))

    with pytest.raises(BackendUnavailable) as caught:
        events(backend)
    assert caught.value.loading


def loading_server(
    answers: list[httpx.Response | Exception], health: list[int], path: str = "/v1/chat/completions"
) -> LlamaServer:
    """Make a server whose answers come one after the other; the last health stays."""
    routes = respx.MockRouter()
    routes.post(f"http://host{path}").mock(side_effect=answers)
    states = iter([*health[:-1], *[health[-1]] * 100])
    routes.get("http://host/health").mock(side_effect=lambda _: httpx.Response(next(states)))
    wire = httpx.MockTransport(routes.async_handler)
    return LlamaServer(
        BackendClient("http://host", pool=MockedPool(wire)), load_wait=60, poll_seconds=0
    )


def test_questions_wait_for_a_model_that_is_being_loaded() -> None:
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    hello = httpx.Response(200, content=HELLO)
    backend = loading_server([loading, loading, hello], [503, 503, 200])
    assert events(backend) == [STARTED, TextDelta("Hello"), ReplyFinished("stop")]


def test_a_server_that_goes_away_while_it_loads_is_unavailable() -> None:
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    backend = loading_server([loading, httpx.ConnectError("refused")], [503, 500])
    with pytest.raises(BackendUnavailable) as caught:
        events(backend)
    assert not caught.value.loading


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (200, Health.READY),
        (503, Health.LOADING),
        (401, Health.UNREACHABLE),
        (500, Health.UNREACHABLE),
    ],
)
def test_health_is_what_the_server_says_it_is(status: int, health: Health) -> None:
    routes = respx.MockRouter()
    routes.get("http://host/health").respond(status)

    assert asyncio.run(server(routes).health()) is health


def test_a_server_that_is_not_there_is_unreachable_and_no_error() -> None:
    routes = respx.MockRouter()
    routes.get("http://host/health").mock(side_effect=httpx.ConnectError)

    assert asyncio.run(server(routes).health()) is Health.UNREACHABLE


def test_models_and_properties_are_read_with_the_key() -> None:
    routes = respx.MockRouter()
    keyed = {"authorization": "Bearer k"}
    routes.get("http://host/v1/models", headers=keyed).respond(json={"data": [{"id": "m.gguf"}]})
    settings = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2}
    routes.get("http://host/props", headers=keyed).respond(json=settings)
    backend = server(routes, "k")

    assert asyncio.run(backend.models()) == (BackendModel("m.gguf", {"id": "m.gguf"}),)
    described = asyncio.run(backend.describe("m"))
    assert (described.window, described.slots) == (4096, 2)


PROPS = "http://host/props"
MODELS = "http://host/v1/models"
LISTED: JsonObject = {"data": [{"id": "listed", "root": "org/listed-7b"}]}


@pytest.mark.parametrize(
    ("found", "description"),
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
        (
            {"model_alias": "a", "modalities": {"vision": False, "audio": True}},
            Description(("a",), senses=("audio",), is_blind=True),
        ),
        (
            {"model_alias": "a", "modalities": {"vision": True}},
            Description(("a",), senses=("vision",)),
        ),
    ],
)
def test_the_model_is_described_by_its_names_and_its_template(
    found: JsonObject, description: Description
) -> None:
    routes = respx.MockRouter()
    routes.get(PROPS).respond(json=found)
    told = asyncio.run(server(routes).describe("asked"))
    assert told == dataclasses.replace(description, engine="llama.cpp")


async def test_the_models_it_listed_last_are_those_while_it_says_nothing() -> None:
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
def test_a_server_that_hides_its_properties_is_known_by_its_list_of_models(
    props: httpx.Response, description: Description
) -> None:
    routes = respx.MockRouter(assert_all_called=False)
    routes.get(PROPS).mock(return_value=props)
    routes.get(MODELS).respond(json=LISTED)
    assert asyncio.run(server(routes).describe("asked")) == description


def test_a_server_that_is_not_there_describes_nothing() -> None:
    routes = respx.MockRouter()
    routes.get(PROPS).mock(side_effect=httpx.ConnectError("refused"))
    known = asyncio.run(server(routes).describe("asked"))
    assert known == Description(("asked",), is_provisional=True)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"default_generation_settings": 5, "total_slots": 1},
        {"default_generation_settings": {"n_ctx": "x"}, "total_slots": 1},
        {"default_generation_settings": {"n_ctx": 1}},
        {"default_generation_settings": {"n_ctx": 0}, "total_slots": 1},
    ],
)
def test_properties_of_something_else_tell_nothing(found: JsonValue) -> None:
    routes = respx.MockRouter()
    routes.get("http://host/props").respond(json=found)

    described = asyncio.run(server(routes).describe("m"))
    assert None in (described.window, described.slots)


async def test_closing_the_iterator_closes_the_connection_at_once() -> None:
    abandoned = asyncio.Event()

    async def begin(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD)
        await caller.send_chunk(stream(chunk({"content": "Hel"}), done=False))
        await caller.hang_up_seen()
        abandoned.set()

    async with raw_backend(begin) as backend, asyncio.timeout(PATIENCE_SECONDS):
        adapter = LlamaServer(BackendClient(backend.url))
        reply = adapter.stream(upstream_request(), {})
        assert await anext(reply) == [STARTED, TextDelta("Hel")]
        await reply.aclose()
        await abandoned.wait()
        assert adapter.name == backend.url
        await adapter.close()


def test_what_is_passed_on_waits_for_a_model_that_is_being_loaded_too() -> None:
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    done = httpx.Response(200, content=b"{}")
    backend = loading_server([loading, done], [503, 200], "/v1/embeddings")
    assert asyncio.run(relayed_by(backend)) == b"{}"
    backend = loading_server([loading, httpx.ConnectError("no")], [500], "/v1/embeddings")
    with pytest.raises(BackendUnavailable):
        asyncio.run(relayed_by(backend))


def test_a_text_that_is_too_long_to_embed_is_the_clients_to_mend() -> None:
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
