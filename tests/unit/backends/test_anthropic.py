import asyncio
from contextlib import aclosing

import httpx
import pytest
import respx
from msgspec.structs import replace

from proxy.backends.anthropic import KEY_HEADER, VERSION_HEADER, Anthropic
from proxy.backends.client import BackendModel, Description, Health
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    UsageReported,
)
from proxy.conversation.requests import UpstreamRequest
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

USAGE: JsonObject = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 0},
}
HELLO = [
    ReplyStarted("msg_1", model="claude"),
    TextDelta("Hello"),
    UsageReported(USAGE),
    ReplyFinished("stop"),
]
CLAUDE: JsonObject = {
    "id": "claude",
    "type": "model",
    "max_input_tokens": 200_000,
    "max_tokens": 64_000,
    "capabilities": {"image_input": {"supported": True}},
}
OTHER: JsonObject = {"id": "other", "type": "model"}


def stream(*events: JsonObject) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (f"{event['type']}".encode(), json.dump(event))
        for event in events
    )


STARTED = stream(
    {
        "type": "message_start",
        "message": {"id": "msg_1", "model": "claude", "usage": {"input_tokens": 3}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
)
ENDED = stream(
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)


def failure(kind: str, message: str = "no") -> JsonObject:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}


class Server:
    """A fake API with two models and scripted responses."""

    def __init__(self, answer: httpx.Response | None = None) -> None:
        self.routes = respx.MockRouter(assert_all_called=False)
        reply = answer or httpx.Response(200, content=STARTED + ENDED)
        self.chat = self.routes.post("http://host/v1/messages").mock(return_value=reply)
        self.listed = self.routes.get("http://host/v1/models").mock(
            side_effect=lambda _: httpx.Response(200, json={"data": self.entries})
        )
        self.count = self.routes.post("http://host/v1/messages/count_tokens").respond(
            json={"input_tokens": 12}
        )
        self.entries: list[JsonValue] = [CLAUDE, OTHER]
        connection = BackendClient(
            "http://host",
            "sk-ant-ours",
            headers=VERSION_HEADER,
            pool=MockedPool(httpx.MockTransport(self.routes.async_handler)),
            key_header=KEY_HEADER,
        )
        self.backend = Anthropic(connection)

    def events(self, request: UpstreamRequest | None = None) -> list[ReplyEvent]:
        async def collect() -> list[ReplyEvent]:
            headers = {"authorization": "Bearer client", "x-request-id": "r"}
            async with aclosing(
                self.backend.stream(request or upstream_request(), headers)
            ) as reply:
                return await every(reply)

        return asyncio.run(collect())

    @property
    def body(self) -> JsonObject:
        value = json.parse(self.chat.calls.last.request.content)
        assert isinstance(value, dict)
        return value


def upstream_request(model: str = "claude", **fields: JsonValue) -> UpstreamRequest:
    body: JsonObject = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    request = replace(decode_request(json.dump(body)), model=model)
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def failure_of(answer: httpx.Response) -> Exception:
    with pytest.raises((BackendFailed, InvalidRequest)) as raised:
        Server(answer).events()
    return raised.value


def test_a_chat_is_sent_as_a_messages_request_and_its_stream_is_decoded() -> None:
    server = Server()
    assert server.events() == HELLO
    assert server.body == {
        "model": "claude",
        "max_tokens": 64_000,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_the_operator_key_is_sent_but_not_the_key_of_the_client() -> None:
    server = Server()
    server.events()
    for call in (server.chat.calls.last, server.listed.calls.last):
        assert call.request.headers["x-api-key"] == "sk-ant-ours"
        assert call.request.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in call.request.headers
    assert server.chat.calls.last.request.headers["x-request-id"] == "r"
    assert server.backend.name == "http://host"


def test_without_an_operator_key_no_key_is_sent() -> None:
    routes = respx.MockRouter()
    route = routes.get("http://host/v1/models").respond(json={"data": []})
    chat = routes.post("http://host/v1/messages").respond(content=STARTED + ENDED)
    wire = httpx.MockTransport(routes.async_handler)
    backend = Anthropic(BackendClient("http://host", pool=MockedPool(wire), key_header=KEY_HEADER))

    async def ask() -> None:
        headers = {"authorization": "Bearer client", "x-api-key": "client"}
        async with aclosing(backend.stream(upstream_request(), headers)) as reply:
            assert await every(reply) == HELLO

    asyncio.run(ask())
    sent = {*route.calls.last.request.headers, *chat.calls.last.request.headers}
    assert sent.isdisjoint({"authorization", "x-api-key"})


def test_the_list_of_models_is_fetched_once_for_chats_but_again_by_each_call_of_describe() -> None:
    server = Server()
    server.events()
    server.events()
    assert server.listed.call_count == 1
    assert str(server.listed.calls.last.request.url).endswith("?limit=1000")
    asyncio.run(server.backend.describe("claude"))
    assert server.listed.call_count == 2


def test_max_tokens_is_4096_if_the_models_cannot_be_listed() -> None:
    server = Server()
    server.listed.mock(return_value=httpx.Response(500, json=failure("api_error")))
    assert server.events() == HELLO
    assert server.events() == HELLO
    assert server.body["max_tokens"] == 4096
    assert server.listed.call_count == 1


def test_the_model_name_may_be_omitted_if_there_is_only_one_model() -> None:
    server = Server()
    with pytest.raises(InvalidRequest, match="model name is required") as raised:
        server.events(upstream_request(""))
    assert raised.value.param == "model"
    alone = Server()
    alone.entries = [CLAUDE]
    assert alone.events(upstream_request("")) == HELLO
    assert alone.body["model"] == "claude"


def test_the_error_for_an_unknown_model_lists_the_known_models() -> None:
    error = failure_of(httpx.Response(404, json=failure("not_found_error", "model: claude")))
    assert isinstance(error, UnknownModel)
    assert error.known == ("claude", "other")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (STARTED, BackendUnavailable),
        (b"", BackendReplyInvalid),
        (b"data: <html>\n\n", BackendReplyInvalid),
        (STARTED + b"data: []\n\n", BackendReplyInvalid),
    ],
)
def test_a_truncated_or_invalid_stream_is_an_error_of_the_backend(
    content: bytes, kind: type[Exception]
) -> None:
    assert isinstance(failure_of(httpx.Response(200, content=content)), kind)


def test_prompts_are_counted_but_separate_texts_are_not() -> None:
    server = Server()
    assert asyncio.run(server.backend.count(upstream_request(), {})) == 12
    assert asyncio.run(server.backend.count_texts(["Hi"], {})) is None
    assert "max_tokens" not in f"{server.count.calls.last.request.content!r}"


def test_a_request_with_an_unsupported_field_is_not_counted() -> None:
    server = Server()
    assert asyncio.run(server.backend.count(upstream_request(seed=1), {})) is None
    assert server.count.call_count == 0


def test_models_are_listed_and_an_invalid_list_is_an_error() -> None:
    server = Server()
    assert asyncio.run(server.backend.models()) == (
        BackendModel("claude", CLAUDE),
        BackendModel("other", OTHER),
    )
    server.listed.mock(return_value=httpx.Response(200, json={"models": []}))
    with pytest.raises(BackendReplyInvalid, match="sent an invalid list of models"):
        asyncio.run(server.backend.models())


def test_a_model_is_described_by_its_entry_in_the_list_of_models() -> None:
    server = Server()
    known = Description(
        ("claude",), window=200_000, takes_tools=True, senses=("vision",), engine="Anthropic"
    )
    assert asyncio.run(server.backend.describe("claude")) == known
    for name in ("other", "unlisted"):
        bare = Description((name,), takes_tools=True, engine="Anthropic")
        assert asyncio.run(server.backend.describe(name)) == bare
    server.entries = [{**CLAUDE, "max_input_tokens": True, "capabilities": {"image_input": 1}}]
    assert asyncio.run(server.backend.describe("x")) == Description(
        ("claude",), takes_tools=True, engine="Anthropic"
    )


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("7", 7), (" 7 ", 7), ("", 5), ("soon", 5), ("-1", 5), ("9" * 5_000, 5)],
)
@pytest.mark.parametrize("kind", ["overloaded_error", ""])
def test_a_529_response_means_unavailable_for_its_retry_after_or_else_for_5_seconds(
    kind: str, retry_after: str, seconds: int
) -> None:
    headers = {"retry-after": retry_after}
    error = failure_of(httpx.Response(529, json=failure(kind), headers=headers))
    assert isinstance(error, BackendUnavailable)
    assert (error.retry_after, error.is_managed) == (seconds, False)


TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("answer", "error", "fields"),
    [
        (
            httpx.Response(400, json=failure("invalid_request_error", TOO_LONG)),
            ContextOverflow,
            {"prompt_tokens": 210_000, "window": 200_000},
        ),
        (
            httpx.Response(429, json=failure("rate_limit_error"), headers={"retry-after": "9"}),
            BackendRefused,
            {"status": 429, "kind": "rate_limit_error", "retry_after": "9"},
        ),
        (httpx.Response(404, json=failure("other")), BackendRefused, {"status": 404}),
        (httpx.Response(400, json=failure("not_found_error")), BackendRefused, {"status": 400}),
        (
            httpx.Response(200, content=STARTED + stream(failure("rate_limit_error"))),
            BackendRefused,
            {"status": 429, "kind": "rate_limit_error"},
        ),
        (
            httpx.Response(200, content=STARTED + stream(failure("overloaded_error"))),
            BackendUnavailable,
            {"retry_after": 5},
        ),
    ],
)
def test_an_error_response_and_an_error_event_are_mapped_to_the_same_exceptions(
    answer: httpx.Response, error: type[Exception], fields: dict[str, object]
) -> None:
    raised = failure_of(answer)
    assert type(raised) is error
    assert {name: getattr(raised, name) for name in fields} == fields


def test_health_is_unreachable_if_the_list_of_models_cannot_be_fetched() -> None:
    server = Server()
    assert asyncio.run(server.backend.health()) is Health.READY
    server.listed.mock(side_effect=httpx.ConnectError("no"))
    assert asyncio.run(server.backend.health()) is Health.UNREACHABLE
    assert asyncio.run(server.backend.describe("claude")) == Description(
        ("claude",), is_provisional=True, takes_tools=True
    )
