import asyncio
import dataclasses
import logging
from contextlib import aclosing

import httpx
import pytest
import respx
from msgspec.structs import replace

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from proxy.backends.capabilities import Capability, is_unreadable, suspected_features
from proxy.backends.client import BackendModel, Description, Health
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.transport import BackendClient, Timeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
    UsageReported,
)
from proxy.conversation.requests import Parsing, ThinkingOptions, UpstreamRequest
from proxy.conversation.tools import ToolUse
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import (
    BackendFailed,
    BackendRefused,
    BackendReplyInvalid,
    BackendUnavailable,
    ContextOverflow,
    InvalidRequest,
    UnknownModel,
)
from tests.fakes.backend import every
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.passages import PASSAGE, relayed_by
from tests.fakes.raw_backend import raw_backend
from tests.fakes.upstream_requests import upstream_request

PARSER = "The model produced output that does not match the expected peg-native format"


def refusal(status: int, message: str) -> BackendRefused:
    return BackendRefused("http://host", status, message)


def lacks_tools(refused: BackendRefused) -> bool:
    return any(
        capability is Capability.TOOLS
        for capability, _ in suspected_features(refused, upstream_request())
    )


def test_a_refusal_of_tools_is_recognized_by_its_status_and_message() -> None:
    assert lacks_tools(refusal(400, "registry.ollama.ai/library/gemma:2b does not support tools"))
    assert not lacks_tools(refusal(400, '"gemma:2b" does not support chat'))
    assert not lacks_tools(refusal(429, "does not support tools"))


@pytest.mark.parametrize(
    "message",
    [
        f"llama-server chat error: map[code:500 message:{PARSER} type:server_error]",
        "Failed to parse input at pos 12: <tool_call>",
        'llama-server returned invalid tool call arguments for "look": unexpected end',
        "error parsing tool call: raw='{', err=unexpected end of JSON input",
    ],
)
def test_a_parser_error_is_an_unreadable_reply(message: str) -> None:
    assert is_unreadable(refusal(500, message))
    assert not is_unreadable(refusal(400, message))


def test_a_crash_of_the_runner_is_not_an_unreadable_reply() -> None:
    assert not is_unreadable(refusal(500, "model runner has unexpectedly stopped"))


STARTED = ReplyStarted(model="m")
USAGE = UsageReported({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
HELLO = [STARTED, TextDelta("Hello"), USAGE, ReplyFinished("stop")]
SCHEMA: JsonObject = {"type": "object", "required": ["name"]}
NO_TOOLS = httpx.Response(400, json={"error": "m does not support tools"})


def lines(*chunks: JsonObject) -> bytes:
    return b"".join(json.dump(chunk) + b"\n" for chunk in chunks)


def line(text: str, *, done: bool = False) -> JsonObject:
    return {"model": "m", "message": {"role": "assistant", "content": text}, "done": done}


SAID = lines(line("Hello"), line("", done=True))


class Server:
    """A fake Ollama with one model and scripted responses."""

    def __init__(self, *answers: httpx.Response, overrides: OllamaOverrides | None = None) -> None:
        self.routes = respx.MockRouter(assert_all_called=False)
        self.shown: JsonObject | None = {"capabilities": ["completion", "tools"]}
        self.running: JsonObject = {"models": []}
        replies = answers or (httpx.Response(200, content=SAID),)
        self.chat = self.routes.post("http://host/api/chat").mock(side_effect=list(replies))
        self.routes.post("http://host/api/show").mock(side_effect=self._show)
        self.routes.get("http://host/api/ps").mock(
            side_effect=lambda _: httpx.Response(200, json=self.running)
        )
        self.tags = self.routes.get("http://host/api/tags").mock(
            return_value=httpx.Response(200, json={"models": [{"name": "m:latest"}]})
        )
        self.version = self.routes.get("http://host/api/version").mock(
            return_value=httpx.Response(200, json={"version": "0.33.0"})
        )
        self.unload = self.routes.post("http://host/api/generate").mock(
            return_value=httpx.Response(200, json={"done": True})
        )
        wire = httpx.MockTransport(self.routes.async_handler)
        self.backend = Ollama(BackendClient("http://host", pool=MockedPool(wire)), overrides)

    def _show(self, _: httpx.Request) -> httpx.Response:
        if self.shown is None:
            return httpx.Response(404, json={"error": "model not found"})
        return httpx.Response(200, content=json.dump(self.shown))

    def events(self, request: UpstreamRequest | None = None) -> list[ReplyEvent]:
        async def collect() -> list[ReplyEvent]:
            async with aclosing(self.backend.stream(request or upstream_request(), {})) as reply:
                return await every(reply)

        return asyncio.run(collect())

    @property
    def bodies(self) -> list[JsonObject]:
        values = [json.parse(call.request.content) for call in self.chat.calls]
        assert all(isinstance(value, dict) for value in values)
        return [value for value in values if isinstance(value, dict)]


def sent(request: UpstreamRequest, *, shown: JsonObject | None = None) -> JsonObject:
    server = Server()
    server.shown = shown or server.shown
    assert server.events(request) == HELLO
    (body,) = server.bodies
    return body


def request_with(*, content: JsonValue = "Hi", **fields: JsonValue) -> UpstreamRequest:
    body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    request = decode_request(json.dump(body))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def failure_of(answer: httpx.Response, request: UpstreamRequest | None = None) -> Exception:
    with pytest.raises((BackendFailed, InvalidRequest)) as raised:
        Server(answer).events(request)
    return raised.value


@pytest.mark.parametrize(
    ("shown", "think"),
    [
        ({"capabilities": ["completion", "thinking"]}, True),
        ({"capabilities": ["completion"]}, None),
        ({"model_info": {}}, True),
        ({"model_info": {"general.architecture": "gptoss"}}, "low"),
    ],
)
def test_the_model_decides_if_the_think_field_is_true_an_effort_or_omitted(
    shown: JsonObject, think: JsonValue
) -> None:
    request = upstream_request()
    wanted = ThinkingOptions(is_on=True, effort="low")
    request = replace(request, request=replace(request.request, thinking=wanted))
    assert sent(request, shown=shown).get("think") == think


def test_the_configured_model_is_requested_whatever_name_the_client_sends() -> None:
    server = Server(overrides=OllamaOverrides("qwen3:8b", 8192, "10m"))
    assert server.events() == HELLO
    (body,) = server.bodies
    assert (body["model"], body["keep_alive"]) == ("qwen3:8b", "10m")
    assert body["options"] == {"seed": 7, "num_ctx": 8192}


def test_a_request_without_a_model_name_is_refused() -> None:
    nameless = replace(upstream_request(), request=replace(upstream_request().request, model=""))
    with pytest.raises(InvalidRequest, match="ollama list") as raised:
        Server().events(nameless)
    assert raised.value.param == "model"


def test_requests_after_a_refusal_of_tools_contain_no_tools() -> None:
    answer = httpx.Response(200, content=SAID)
    server = Server(NO_TOOLS, answer, answer)
    server.shown = {}
    assert server.events() == HELLO
    assert server.events() == HELLO
    assert ["tools" in body for body in server.bodies] == [True, False, False]


def test_images_are_refused_for_models_without_vision() -> None:
    part: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    server = Server()
    with pytest.raises(InvalidRequest, match="does not accept images") as raised:
        server.events(request_with(content=[part]))
    assert raised.value.param == "messages.0.content.0"
    assert server.bodies == []
    seeing: JsonObject = {"capabilities": ["completion", "vision"]}
    for shown in (seeing, {}):
        (message,) = [*sent_messages(request_with(content=[part]), shown)]
        assert message["images"] == ["aGk="]


def sent_messages(request: UpstreamRequest, shown: JsonObject) -> list[JsonObject]:
    server = Server()
    server.shown = shown
    server.events(request)
    messages = server.bodies[0]["messages"]
    assert isinstance(messages, list)
    return [message for message in messages if isinstance(message, dict)]


def test_the_error_for_a_model_that_was_not_pulled_says_how_to_pull_it() -> None:
    server = Server(httpx.Response(404, json={"error": "model 'm' not found"}))
    server.shown = None
    with pytest.raises(UnknownModel, match=r"Available: m:latest\. Pull it first: ollama pull m$"):
        server.events()


def test_a_not_found_error_is_unchanged_if_the_models_cannot_be_listed() -> None:
    server = Server(httpx.Response(404, json={"error": "model 'm' not found"}))
    server.tags.mock(return_value=httpx.Response(500, json={"error": "no"}))
    with pytest.raises(BackendRefused, match="not found"):
        server.events()


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_reply_with_a_parser_error_is_unreadable(*, has_begun: bool) -> None:
    error: JsonObject = {"error": "error parsing tool call: raw='{'"}
    if has_begun:
        answer = httpx.Response(200, content=lines(line("Hello"), error))
    else:
        answer = httpx.Response(500, json=error)
    expected = [STARTED, TextDelta("Hello")] if has_begun else []
    assert Server(answer).events() == [
        *expected,
        ReplyUnreadable("error parsing tool call: raw='{'"),
    ]


def test_a_last_line_without_a_newline_counts_as_complete() -> None:
    assert Server(httpx.Response(200, content=SAID.rstrip())).events() == HELLO


async def test_the_pause_before_a_call_may_be_longer_than_the_idle_timeout() -> None:
    """Ollama sends nothing while the model writes a call, so a pause may last `first_byte`."""
    started = asyncio.Event()

    async def pause(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD)
        await caller.send_chunk(lines(line("Hello")))
        await started.wait()
        await caller.send_chunk(lines(line("", done=True)))
        await caller.send_chunk(b"")

    async with raw_backend(_refuse, _refuse, pause) as server:
        backend = Ollama(BackendClient(server.url, timeouts=Timeouts(first_byte=5, idle=0)))
        events: list[ReplyEvent] = []
        async with aclosing(backend.stream(upstream_request(), {})) as reply:
            async for batch in reply:
                events += batch
                started.set()
        await backend.close()
    assert events == HELLO


async def _refuse(caller: Caller) -> None:
    await caller.request()
    await caller.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")


def test_token_counting_returns_none() -> None:
    backend = Server().backend
    assert asyncio.run(backend.count(upstream_request(), {})) is None
    assert asyncio.run(backend.count_texts(["Hi"], {})) is None


def test_the_configured_model_is_listed_or_else_all_pulled_models() -> None:
    entry: JsonObject = {"name": "m:latest"}
    assert asyncio.run(Server().backend.models()) == (BackendModel("m:latest", entry),)
    chosen = Server(overrides=OllamaOverrides("m:latest")).backend
    assert asyncio.run(chosen.models()) == (BackendModel("m:latest", entry),)
    missing = Server(overrides=OllamaOverrides("other")).backend
    assert asyncio.run(missing.models()) == (BackendModel("other", {}),)


def described(server: Server, model: str = "m") -> Description:
    return asyncio.run(server.backend.describe(model))


def test_a_model_is_described_from_the_show_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.shown = {
        "capabilities": ["completion", "tools"],
        "model_info": {"general.architecture": "qwen3"},
        "template": "{{ .Tools }}",
    }
    server.running = {"models": [{"name": "m:latest", "context_length": 4096}]}
    known = Description(
        ("m",),
        "qwen3",
        window=4096,
        takes_tools=True,
        identity="m:latest",
        engine="Ollama",
        build="0.33.0",
    )
    with caplog.at_level(logging.WARNING):
        assert [described(server), described(server)] == [known, known]
    (record,) = caplog.records
    assert "ollama.context_tokens" in record.getMessage()


def test_a_description_without_a_window_is_provisional() -> None:
    server = Server()
    known = Description(("m",), is_provisional=True, takes_tools=True, identity="m:latest")
    assert described(server) == dataclasses.replace(known, engine="Ollama", build="0.33.0")
    server.shown = {}
    assert described(server).takes_tools is None


def test_a_model_that_ollama_does_not_have_is_described_from_the_settings() -> None:
    server = Server(overrides=OllamaOverrides("qwen3:8b", 8192))
    server.shown = None
    description = described(server)
    assert (description.names, description.window, description.is_provisional) == (
        ("qwen3:8b",),
        8192,
        True,
    )
    assert description.identity == "qwen3:8b"


async def test_the_method_unload_unloads_the_models_that_were_loaded_for_temper() -> None:
    server = Server()
    async with aclosing(server.backend.stream(upstream_request(), {})) as reply:
        async for _ in reply:
            pass
    await server.backend.unload()
    await server.backend.close()
    assert server.unload.call_count == 1


def test_embeddings_and_completions_use_the_openai_endpoint_of_ollama() -> None:
    server = Server(overrides=OllamaOverrides("m"))
    route = server.routes.post("http://host/v1/embeddings").respond(content=b'{"data":[]}')
    passage = replace(PASSAGE, model="gpt-4", fields={"input": b'"a"', "model": b'"gpt-4"'})
    assert asyncio.run(relayed_by(server.backend, passage)) == b'{"data":[]}'
    assert route.calls.last.request.content == b'{"input":"a","model":"m"}'
    with pytest.raises(InvalidRequest, match="model name is required"):
        asyncio.run(relayed_by(Server().backend, replace(PASSAGE, model="")))


INNER: JsonObject = {
    "code": 400,
    "message": "request (9000 tokens) exceeds the available context size (4096 tokens)",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9000,
    "n_ctx": 4096,
}
LONGER = "the prompt is longer than the context length currently available to the model; ..."
NO_THINKING = '"m" does not support thinking'
NO_EFFORT = 'think value "high" is not supported for this model'


def refusal_response(status: int, error: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"error": error}, headers=headers)


@pytest.mark.parametrize(
    ("answer", "chat_request", "error", "fields"),
    [
        (NO_TOOLS, upstream_request(has_tools=False), BackendRefused, {"status": 400}),
        *(
            (
                refusal_response(400, message),
                request_with(**sent_fields),
                InvalidRequest,
                {"param": next(iter(sent_fields), None)},
            )
            for message in (NO_THINKING, NO_EFFORT)
            for sent_fields in (dict[str, JsonValue](reasoning_effort="high"), {})
        ),
        (refusal_response(500, NO_THINKING), None, BackendRefused, {"status": 500}),
        (
            refusal_response(400, json.dump_text({"error": INNER})),
            None,
            ContextOverflow,
            {"prompt_tokens": 9000, "window": 4096},
        ),
        (
            refusal_response(400, LONGER),
            None,
            ContextOverflow,
            {"prompt_tokens": None, "window": None},
        ),
        (
            httpx.Response(503, json={"error": "server busy"}, headers={"retry-after": "7"}),
            None,
            BackendRefused,
            {"status": 503, "retry_after": "7"},
        ),
        (
            httpx.Response(200, content=lines(line("Hello"), {"error": "runner died"})),
            None,
            BackendRefused,
            {"status": 500, "message": "runner died"},
        ),
        (httpx.Response(200, content=lines(line("Hello"))), None, BackendUnavailable, {}),
        (httpx.Response(200, content=b""), None, BackendReplyInvalid, {}),
        (httpx.Response(200, content=b"<html>\n"), None, BackendReplyInvalid, {}),
        (
            httpx.Response(200, content=lines(line("Hello")) + b"[]\n"),
            None,
            BackendReplyInvalid,
            {},
        ),
    ],
)
def test_an_ollama_failure_is_mapped_to_its_error(
    answer: httpx.Response,
    chat_request: UpstreamRequest | None,
    error: type[Exception],
    fields: dict[str, object],
) -> None:
    raised = failure_of(answer, chat_request)
    assert type(raised) is error
    assert {name: getattr(raised, name) for name in fields} == fields


RAW = upstream_request(parsing=Parsing.OURS)
FORMED = replace(
    RAW,
    request=replace(
        RAW.request,
        fields={**RAW.request.fields, "response_format": b'{"type": "json_object"}'},
    ),
)
PLAIN: JsonObject = {"capabilities": ["completion"]}


@pytest.mark.parametrize(
    ("chat_request", "shown", "location"),
    [
        (upstream_request(), None, "tools"),
        (RAW, None, "messages"),
        (upstream_request(parsing=Parsing.OURS, schema=SCHEMA), None, "tools"),
        (FORMED, None, "tools"),
        (replace(FORMED, omits=frozenset({"response_format"})), None, "messages"),
        (upstream_request(), PLAIN, "messages"),
        (upstream_request(tool_choice=ToolUse.NONE), PLAIN, "nowhere"),
    ],
    ids=[
        "native",
        "raw",
        "schema",
        "response_format",
        "response_format omitted",
        "a model without tools",
        "tool_choice none",
    ],
)
def test_tools_are_sent_natively_or_described_in_the_prompt(
    chat_request: UpstreamRequest, shown: JsonObject | None, location: str
) -> None:
    body = sent(chat_request, shown=shown)
    assert (body["model"], body["stream"]) == ("m", True)
    assert ("tools" in body) is (location == "tools")
    assert ("get_weather" in str(body["messages"])) is (location == "messages")


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (httpx.Response(200, json={"version": "0.33.0"}), Health.READY),
        (httpx.Response(500), Health.UNREACHABLE),
        (httpx.ConnectError("no"), Health.UNREACHABLE),
    ],
)
def test_health_is_read_from_the_version_endpoint(
    answer: httpx.Response | httpx.TransportError, health: Health
) -> None:
    server = Server()
    server.version.mock(side_effect=[answer])
    assert asyncio.run(server.backend.health()) is health
