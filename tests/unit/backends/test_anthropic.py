import asyncio
from contextlib import aclosing

import httpx
import pytest
import respx
from msgspec.structs import replace

from proxy.backends.anthropic import KEY_HEADER, VERSION_HEADER, Anthropic
from proxy.backends.client import BackendModel, Description, Health
from proxy.backends.refusals import Refusal
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
    BackendSpokeNonsense,
    BackendUnavailable,
    ContextOverflow,
    InvalidRequest,
    UnknownModel,
)
from tests.fakes.backend import every
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.passages import relayed_by


def refused(status: int, kind: str, message: str = "no", retry_after: str = "") -> Exception:
    engine = Anthropic(BackendClient("http://host"))
    return engine.meaning(Refusal(status, {"type": kind, "message": message}, retry_after))


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [("7", 7), (" 7 ", 7), ("", 5), ("soon", 5), ("-1", 5), ("٣", 5)]
)
@pytest.mark.parametrize(
    ("status", "kind"), [(529, "overloaded_error"), (529, ""), (200, "overloaded_error")]
)
def test_an_overload_passes(status: int, kind: str, retry_after: str, seconds: int) -> None:
    error = refused(status, kind, retry_after=retry_after)
    assert isinstance(error, BackendUnavailable)
    assert error.retry_after == seconds
    assert not error.is_managed


def test_a_prompt_that_is_too_long_has_both_numbers() -> None:
    error = refused(
        400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
    )
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window) == (210_000, 200_000)


def test_all_else_is_a_refusal_with_its_status() -> None:
    error = refused(429, "rate_limit_error", "tokens per minute", "9")
    assert isinstance(error, BackendRefused)
    assert (error.status, error.kind, error.retry_after) == (429, "rate_limit_error", "9")


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
    """An API with two models, which answers as a test wrote it."""

    def __init__(self, answer: httpx.Response | None = None) -> None:
        self.routes = respx.MockRouter(assert_all_called=False)
        said = answer or httpx.Response(200, content=STARTED + ENDED)
        self.chat = self.routes.post("http://host/v1/messages").mock(return_value=said)
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

    def events(self, asked: UpstreamRequest | None = None) -> list[ReplyEvent]:
        async def collect() -> list[ReplyEvent]:
            headers = {"authorization": "Bearer client", "x-request-id": "r"}
            async with aclosing(self.backend.stream(asked or upstream_request(), headers)) as reply:
                return await every(reply)

        return asyncio.run(collect())

    @property
    def body(self) -> JsonObject:
        value = json.parse(self.chat.calls.last.request.content)
        assert isinstance(value, dict)
        return value


def upstream_request(model: str = "claude", **fields: JsonValue) -> UpstreamRequest:
    asked: JsonObject = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    request = replace(decode_request(json.dump(asked)), model=model)
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def failing(answer: httpx.Response) -> Exception:
    with pytest.raises((BackendFailed, InvalidRequest)) as raised:
        Server(answer).events()
    return raised.value


def test_a_question_is_put_and_its_reply_streamed() -> None:
    server = Server()
    assert server.events() == HELLO
    assert server.body == {
        "model": "claude",
        "max_tokens": 64_000,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_the_operators_key_goes_out_and_no_clients() -> None:
    server = Server()
    server.events()
    for call in (server.chat.calls.last, server.listed.calls.last):
        assert call.request.headers["x-api-key"] == "sk-ant-ours"
        assert call.request.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in call.request.headers
    assert server.chat.calls.last.request.headers["x-request-id"] == "r"
    assert server.backend.name == "http://host"


def test_without_a_key_of_the_operators_none_goes_out() -> None:
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


def test_models_are_looked_at_once_and_again_by_whoever_wants_to_know() -> None:
    server = Server()
    server.events()
    server.events()
    assert server.listed.call_count == 1
    assert str(server.listed.calls.last.request.url).endswith("?limit=1000")
    asyncio.run(server.backend.describe("claude"))
    assert server.listed.call_count == 2


def test_of_a_model_that_nobody_lists_little_is_known() -> None:
    server = Server()
    server.listed.mock(return_value=httpx.Response(500, json=failure("api_error")))
    assert server.events() == HELLO
    assert server.events() == HELLO
    assert server.body["max_tokens"] == 4096
    assert server.listed.call_count == 1


def test_a_model_has_to_be_named_unless_there_is_only_one() -> None:
    server = Server()
    with pytest.raises(InvalidRequest, match="Name a model") as raised:
        server.events(upstream_request(""))
    assert raised.value.param == "model"
    alone = Server()
    alone.entries = [CLAUDE]
    assert alone.events(upstream_request("")) == HELLO
    assert alone.body["model"] == "claude"


@pytest.mark.parametrize(("status", "kind"), [(404, "other"), (400, "not_found_error")])
def test_only_one_refusal_is_about_the_model(status: int, kind: str) -> None:
    assert isinstance(failing(httpx.Response(status, json=failure(kind, "no"))), BackendRefused)


def test_a_model_that_there_is_not_is_named_with_those_there_are() -> None:
    error = failing(httpx.Response(404, json=failure("not_found_error", "model: claude")))
    assert isinstance(error, UnknownModel)
    assert error.known == ("claude", "other")


def test_an_overflow_has_both_numbers() -> None:
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    error = failing(httpx.Response(400, json=failure("invalid_request_error", message)))
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window) == (210_000, 200_000)


def test_an_overload_tells_when_to_come_back() -> None:
    answer = httpx.Response(529, json=failure("overloaded_error"), headers={"retry-after": "7"})
    error = failing(answer)
    assert isinstance(error, BackendUnavailable)
    assert error.retry_after == 7


def test_an_error_in_the_middle_is_what_it_would_be_before() -> None:
    error = failing(httpx.Response(200, content=STARTED + stream(failure("rate_limit_error"))))
    assert isinstance(error, BackendRefused)
    assert (error.status, error.kind) == (429, "rate_limit_error")
    overload = failing(httpx.Response(200, content=STARTED + stream(failure("overloaded_error"))))
    assert isinstance(overload, BackendUnavailable)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (STARTED, BackendUnavailable),
        (b"", BackendSpokeNonsense),
        (b"data: <html>\n\n", BackendSpokeNonsense),
        (STARTED + b"data: []\n\n", BackendSpokeNonsense),
    ],
)
def test_what_is_no_reply_is_the_backends_fault(content: bytes, kind: type[Exception]) -> None:
    assert isinstance(failing(httpx.Response(200, content=content)), kind)


def test_prompts_are_counted_and_texts_are_not() -> None:
    server = Server()
    assert asyncio.run(server.backend.count(upstream_request(), {})) == 12
    assert asyncio.run(server.backend.count_texts(["Hi"], {})) is None
    assert "max_tokens" not in f"{server.count.calls.last.request.content!r}"


def test_what_cannot_be_asked_cannot_be_counted_and_raises_nothing() -> None:
    server = Server()
    assert asyncio.run(server.backend.count(upstream_request(seed=1), {})) is None
    assert server.count.call_count == 0


def test_a_list_of_models_is_what_it_says() -> None:
    server = Server()
    assert asyncio.run(server.backend.models()) == (
        BackendModel("claude", CLAUDE),
        BackendModel("other", OTHER),
    )
    server.listed.mock(return_value=httpx.Response(200, json={"models": []}))
    with pytest.raises(BackendSpokeNonsense, match="listed no models"):
        asyncio.run(server.backend.models())


def test_a_model_is_described_by_its_entry() -> None:
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


def test_of_an_api_that_lists_nothing_the_description_is_provisional() -> None:
    server = Server()
    server.listed.mock(side_effect=httpx.ConnectError("no"))
    assert asyncio.run(server.backend.describe("claude")) == Description(
        ("claude",), is_provisional=True, takes_tools=True
    )


def test_its_health_is_that_of_its_list() -> None:
    server = Server()
    assert asyncio.run(server.backend.health()) is Health.READY
    server.listed.mock(side_effect=httpx.ConnectError("no"))
    assert asyncio.run(server.backend.health()) is Health.UNREACHABLE
    asyncio.run(server.backend.close())


def test_what_is_passed_on_is_refused_by_the_api_itself() -> None:
    server = Server()
    server.routes.post("http://host/v1/embeddings").respond(404, json=failure("not_found_error"))
    with pytest.raises(BackendRefused) as raised:
        asyncio.run(relayed_by(server.backend))
    assert raised.value.status == 404
