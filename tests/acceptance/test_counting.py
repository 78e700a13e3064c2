"""Token counts and the window of a real llama-server, compared with its real behavior.

`prompt_tokens` of a reply is the reference: the number of tokens that the server has read.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

import httpx
import pytest

from proxy.backends.counting import COUNT, TokenCounter
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, UsageReported
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import ContextOverflow
from proxy.processes.process import RunningServer
from tests.fakes.backend import every
from tests.fakes.histories import call, called, result, said
from tests.fakes.llama import CONTEXT_TOKENS
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.running_proxy import plain_transport
from tests.fakes.scripts import TOOLS
from tests.timeouts import TIMEOUT_SECONDS

ODD_TOOL: JsonObject = {
    "type": "function",
    "function": {"name": "odd", "parameters": {"type": "any", "properties": {"x": True}}},
}
ROUND = (
    said("system", "Be kind. 日本 😅"),
    said("user", "Wie spät ist es?"),
    called(call("a", "get_time"), call("b", "get_weather", '{"city":"Köln"}'), content="Moment."),
    result("a", '{"time": "12:00"}'),
    result("b", "sunny\n" * 20),
    said("user", [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]),
)
TEXTS = (
    "Hello",
    "",
    "日本 😅",
    "<tool_call>\n{}\n</tool_call>",
    "<|im_end|>",
    " in the ",
    "x" * 5000,
)


@asynccontextmanager
async def connected(server: RunningServer) -> AsyncGenerator[LlamaServer, None]:
    connection = BackendClient(server.base_url, server.api_key)
    backend = LlamaServer(connection)
    try:
        yield backend
    finally:
        await backend.close()


def asking(
    *messages: JsonObject, tools: Sequence[JsonObject] = (), **more: JsonValue
) -> UpstreamRequest:
    body: JsonObject = {"messages": list(messages), "max_tokens": 1, **more}
    if tools:
        body["tools"] = list(tools)
    request = decode_request(json.dump(body))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def of_size(tokens: int, last: str = "") -> UpstreamRequest:
    """Return a prompt of a known size: a letter is one token of this model."""
    return asking(said("user", "x" * (tokens - len(TEMPLATE_TOKENS)) + last))


TEMPLATE_TOKENS = (
    "<|im_start|>",
    "u",
    "s",
    "er",
    "\n",
    "<|im_end|>",
    "\n",
    "<|im_start|>",
    *"assistant\n",
)


async def reply(backend: LlamaServer, upstream_request: UpstreamRequest) -> list[ReplyEvent]:
    async with aclosing(backend.stream(upstream_request, {})) as events:
        return await every(events)


def usage_of(events: list[ReplyEvent]) -> UsageReported:
    (usage,) = (event for event in events if isinstance(event, UsageReported))
    return usage


@pytest.mark.parametrize(
    "upstream_request",
    [
        asking(said("user", "Hi")),
        asking(*ROUND),
        asking(*ROUND, tools=TOOLS),
        asking(*ROUND[:2], tools=[*TOOLS, ODD_TOOL]),
        asking(*ROUND, tools=TOOLS, chat_template_kwargs={"enable_thinking": False}),
    ],
    ids=["words", "history", "tools", "refused schema", "no thoughts"],
)
async def test_the_token_count_of_a_prompt_equals_the_prompt_tokens_in_its_usage(
    llama_server: RunningServer, upstream_request: UpstreamRequest
) -> None:
    async with connected(llama_server) as backend:
        counted = await backend.count(upstream_request, {})
        usage = usage_of(await reply(backend, upstream_request))
    assert counted == usage.usage["prompt_tokens"]
    timings = usage.timings
    assert timings is not None
    cached, processed = timings["cache_n"], timings["prompt_n"]
    assert isinstance(cached, int)
    assert isinstance(processed, int)
    assert cached + processed == counted
    assert usage.usage["prompt_tokens_details"] == {"cached_tokens": cached}


async def test_the_token_count_equals_the_usage_and_does_not_depend_on_the_parser(
    llama_server: RunningServer,
) -> None:
    plain = asking(*ROUND, tools=TOOLS)
    raw = UpstreamRequest(
        plain.request, plain.messages, plain.tools, plain.tool_choice, Parsing.OURS
    )
    fewer = UpstreamRequest(plain.request, plain.messages[:2], plain.tools[:1], plain.tool_choice)
    async with connected(llama_server) as backend:
        counts = [await backend.count(each, {}) for each in (plain, raw, fewer)]
        sent = usage_of(await reply(backend, fewer)).usage["prompt_tokens"]
    assert counts == [counts[0], counts[0], sent]


class WithoutCounting(httpx.AsyncBaseTransport):
    """An HTTP transport to a llama-server build that has no endpoint for token counting."""

    def __init__(self) -> None:
        self._pool = plain_transport()
        self.paths: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        if request.url.path == COUNT:
            return httpx.Response(404, json={"error": {"code": 404}})
        return await self._pool.handle_async_request(request)

    async def aclose(self) -> None:
        await self._pool.aclose()


async def test_without_the_counting_endpoint_the_rendered_prompt_is_tokenized(
    llama_server: RunningServer,
) -> None:
    wire = WithoutCounting()
    older = LlamaServer(
        BackendClient(llama_server.base_url, llama_server.api_key, pool=MockedPool(wire))
    )
    upstream_requests = [asking(*ROUND, tools=TOOLS), asking(said("user", "Hi"))]
    async with connected(llama_server) as backend:
        exact = [await backend.count(each, {}) for each in upstream_requests]
        rendered = [await older.count(each, {}) for each in upstream_requests]
    await wire.aclose()
    assert rendered == exact
    assert wire.paths == [COUNT, *["/apply-template", "/tokenize"] * 2]


async def test_texts_counted_together_equal_their_separate_counts(
    llama_server: RunningServer,
) -> None:
    async with connected(llama_server) as backend:
        together = await backend.count_texts(TEXTS, {})
        alone = [await backend.count_texts([text], {}) for text in TEXTS]
        long = await backend.count_texts(["x" * 300_000, "x"], {})
    assert together == tuple(count for counts in alone for count in counts or ())
    assert together is not None
    assert together[0:2] == (5, 0)
    assert together[4] == 1
    assert long == (300_000, 1)


async def test_token_counting_fails_without_the_api_key(llama_server: RunningServer) -> None:
    connection = BackendClient(llama_server.base_url)
    counter = TokenCounter(connection)
    keyed = {"authorization": f"Bearer {llama_server.api_key}"}
    assert await counter.count_texts(["x"], {}) is None
    assert await counter.count_texts(["x"], keyed) == (1,)
    await connection.close()


async def test_the_context_window_is_that_of_one_slot(llama_server: RunningServer) -> None:
    async with connected(llama_server) as backend:
        described = await backend.describe("scripted")
    assert described.window == CONTEXT_TOKENS


async def test_a_prompt_as_long_as_the_window_overflows_but_one_token_less_is_accepted(
    llama_server: RunningServer,
) -> None:
    async with connected(llama_server) as backend:
        fits, full = of_size(CONTEXT_TOKENS - 1), of_size(CONTEXT_TOKENS)
        assert await backend.count(full, {}) == CONTEXT_TOKENS
        usage = usage_of(await reply(backend, fits))
        with pytest.raises(ContextOverflow) as caught:
            await reply(backend, full)
    assert usage.usage["prompt_tokens"] == CONTEXT_TOKENS - 1
    assert (caught.value.prompt_tokens, caught.value.window) == (CONTEXT_TOKENS, CONTEXT_TOKENS)


async def test_the_overflow_error_contains_the_counted_prompt_tokens_and_the_window(
    llama_server: RunningServer,
) -> None:
    upstream_request = asking(*ROUND, said("user", "word " * 9000), tools=TOOLS)
    async with connected(llama_server) as backend:
        counted = await backend.count(upstream_request, {})
        with pytest.raises(ContextOverflow) as caught:
            await reply(backend, upstream_request)
    assert (caught.value.prompt_tokens, caught.value.window) == (counted, CONTEXT_TOKENS)


async def test_a_reply_that_fills_the_window_ends_with_finish_reason_length(
    llama_server: RunningServer,
) -> None:
    room = 40
    request = of_size(CONTEXT_TOKENS - room, " [[forever]]").request
    fields = {name: raw for name, raw in request.fields.items() if name != "max_tokens"}
    endless = decode_request(json.join_object(dict(fields)))
    upstream_request = UpstreamRequest(endless, endless.messages, (), endless.tool_choice)
    async with connected(llama_server) as backend:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            events = await reply(backend, upstream_request)
    assert events[-1] == ReplyFinished("length")
    assert usage_of(events).usage["total_tokens"] == CONTEXT_TOKENS
