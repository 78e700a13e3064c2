import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain

import httpx
import pytest
import respx

from proxy import bounds
from proxy.backends.counting import (
    COUNT,
    COUNT_MESSAGES,
    GATEWAY_COUNT,
    TEMPLATE,
    TOKENIZE,
    CountTimeouts,
    TokenCounter,
)
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.mocked_pool import MockedPool
from tests.timeouts import TIMEOUT_SECONDS

HOST = "http://host"
BODY = b'{"messages":[{"role":"user","content":"Hi"}]}'


def counter(routes: respx.MockRouter, timeouts: CountTimeouts | None = None) -> TokenCounter:
    wire = httpx.MockTransport(routes.async_handler)
    return TokenCounter(BackendClient(HOST, pool=MockedPool(wire)), timeouts)


def prompts(counting: TokenCounter, body: bytes = BODY, times: int = 1) -> list[int | None]:
    async def ask() -> list[int | None]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return [await counting.count_prompt(body, {}) for _ in range(times)]

    return asyncio.run(ask())


def texts(counting: TokenCounter, *counted: str) -> tuple[int, ...] | None:
    async def ask() -> tuple[int, ...] | None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await counting.count_texts(counted, {})

    return asyncio.run(ask())


def tokenize(request: httpx.Request) -> httpx.Response:
    """Respond like llama-server; each byte of a text becomes a token, a number of seven digits."""
    body = json.parse(request.content)
    assert isinstance(body, dict)
    content = body["content"]
    pieces = content if isinstance(content, list) else [content]
    tokens: list[JsonValue] = list(chain.from_iterable(map(tokens_of, pieces)))
    return httpx.Response(200, json={"tokens": tokens})


def tokens_of(piece: JsonValue) -> list[JsonValue]:
    return [1_000_000 + byte for byte in piece.encode()] if isinstance(piece, str) else [piece]


def test_a_prompt_for_the_messages_api_is_counted() -> None:
    routes = respx.MockRouter()
    route = routes.post(HOST + COUNT_MESSAGES).respond(json={"input_tokens": 12})
    counting = counter(routes)
    assert asyncio.run(counting.count_messages(BODY, {})) == 12
    assert route.calls.last.request.content == BODY
    route.respond(429)
    assert asyncio.run(counting.count_messages(BODY, {})) is None


def test_the_token_count_is_requested_with_the_body_of_the_chat() -> None:
    routes = respx.MockRouter()
    route = routes.post(HOST + COUNT).respond(json={"input_tokens": 646, "object": "x"})
    counting = counter(routes)

    headers = {"authorization": "Bearer client", "x-conversation-id": "7"}
    assert asyncio.run(counting.count_prompt(BODY, headers)) == 646
    sent = route.calls.last.request
    assert sent.content == BODY
    assert sent.headers["authorization"] == "Bearer client"
    assert "x-conversation-id" not in sent.headers


@pytest.mark.parametrize("status", [404, 405, 501])
def test_without_a_count_endpoint_the_prompt_is_rendered_and_tokenized(
    status: int,
) -> None:
    routes = respx.MockRouter()
    count = routes.post(HOST + COUNT).respond(status, json={"error": {"code": status}})
    render = routes.post(HOST + TEMPLATE).respond(json={"prompt": "<s>Hi</s>"})
    tokens = routes.post(HOST + TOKENIZE)
    tokens.side_effect = tokenize
    counting = counter(routes)

    assert prompts(counting, times=2) == [9, 9]
    assert (count.call_count, render.call_count) == (1, 2)
    assert render.calls.last.request.content == BODY
    assert json.parse(tokens.calls.last.request.content) == {
        "content": "<s>Hi</s>",
        "add_special": True,
        "parse_special": True,
    }


def test_a_missing_count_endpoint_is_requested_only_once() -> None:
    routes = respx.MockRouter(assert_all_called=False)
    missing = [routes.post(HOST + path).respond(404) for path in (COUNT, TEMPLATE, TOKENIZE)]
    counting = counter(routes)

    assert prompts(counting, times=3) == [None] * 3
    assert [route.call_count for route in missing] == [1, 1, 0]


def test_a_missing_count_endpoint_is_requested_again_after_a_pause() -> None:
    routes = respx.MockRouter()
    answers = [httpx.Response(404), httpx.Response(200, json={"input_tokens": 3})]
    routes.post(HOST + COUNT).side_effect = answers

    assert prompts(counter(routes, CountTimeouts(missing=0)), times=2) == [None, 3]


@pytest.mark.parametrize("kind", ["image_url", "input_audio"])
def test_a_prompt_with_media_is_not_counted_as_text(kind: str) -> None:
    part: JsonObject = {"type": kind, kind: {"url": "data:"}}
    body = json.dump({"messages": [{"role": "user", "content": [part]}]})
    routes = respx.MockRouter(assert_all_called=False)
    routes.post(HOST + COUNT).respond(404)
    render = routes.post(HOST + TEMPLATE).respond(json={"prompt": "<media>"})

    assert prompts(counter(routes), body) == [None]
    assert not render.called


@pytest.mark.parametrize(
    "failure",
    [
        httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}}),
        httpx.Response(400, json={"error": {"type": "invalid_request_error", "code": 400}}),
        httpx.Response(500, json={"input_tokens": 5}),
        httpx.Response(200, text="no JSON"),
        httpx.Response(200, json=[5]),
        httpx.Response(200, json={"input_tokens": True}),
        httpx.Response(200, json={"tokens": 5}),
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
    ],
)
def test_a_failed_count_is_none_and_the_next_count_is_requested(
    failure: httpx.Response | Exception,
) -> None:
    routes = respx.MockRouter()
    good = httpx.Response(200, json={"input_tokens": 3})
    routes.post(HOST + COUNT).side_effect = [failure, good]

    assert prompts(counter(routes), times=2) == [None, 3]


@pytest.mark.parametrize(
    ("rendered", "tokens"),
    [
        ({"prompt": None}, {"tokens": [1]}),
        ({}, {"tokens": [1]}),
        ({"prompt": "x"}, {"tokens": 1}),
        ({"prompt": "x"}, {}),
    ],
)
def test_a_count_is_none_if_the_rendered_prompt_or_its_tokens_are_invalid(
    rendered: JsonObject, tokens: JsonObject
) -> None:
    routes = respx.MockRouter(assert_all_called=False)
    routes.post(HOST + COUNT).respond(404)
    routes.post(HOST + TEMPLATE).respond(json=rendered)
    routes.post(HOST + TOKENIZE).respond(json=tokens)

    assert prompts(counter(routes)) == [None]


class Engine:
    """Responds with `answer`; counts the requests and records how many ran at the same time."""

    def __init__(self, answer: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> None:
        self.answer = answer
        self.requests = self.active = self.most = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            return await self.answer(request)
        finally:
            self.active -= 1

    def counter(self, timeouts: CountTimeouts) -> TokenCounter:
        return TokenCounter(
            BackendClient(HOST, pool=MockedPool(httpx.MockTransport(self))), timeouts
        )


async def never_respond(_: httpx.Request) -> httpx.Response:
    await asyncio.Event().wait()
    raise AssertionError


def test_no_counts_are_requested_for_some_time_after_a_timeout() -> None:
    engine = Engine(never_respond)
    counting = engine.counter(CountTimeouts(answer=0.001))

    assert prompts(counting, times=3) == [None] * 3
    assert texts(counting, "x") is None
    assert engine.requests == 1


def test_counts_are_requested_again_some_time_after_a_timeout() -> None:
    engine = Engine(never_respond)

    assert prompts(engine.counter(CountTimeouts(answer=0.001, silent=0)), times=2) == [None] * 2
    assert engine.requests == 2


def test_many_texts_are_counted_in_one_request() -> None:
    routes = respx.MockRouter()
    route = routes.post(HOST + TOKENIZE)
    route.side_effect = tokenize

    assert texts(counter(routes), "Hello", "", "日本", "x", "") == (5, 0, 6, 1, 0)
    assert route.call_count == 1


def test_no_request_is_sent_if_there_are_no_texts_to_count() -> None:
    assert texts(counter(respx.MockRouter())) == ()


def test_long_texts_are_counted_in_several_requests_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = bounds.MIB
    monkeypatch.setattr(bounds, "DOCUMENT_BYTES", most)
    routes = respx.MockRouter()
    route = routes.post(HOST + TOKENIZE)
    route.side_effect = tokenize
    lengths = (100_000, 200_000, 100_000, 20_000, 5, 100_000)

    counted = texts(counter(routes), *("é" * (length // 2) for length in lengths))
    assert counted == tuple(length // 2 * 2 for length in lengths)
    assert route.call_count == 4
    longest = max(len(call.response.content) for call in route.calls)
    assert longest > most


async def test_at_most_4_count_requests_run_at_the_same_time() -> None:
    together = asyncio.Barrier(4)

    async def answer(request: httpx.Request) -> httpx.Response:
        await together.wait()
        return tokenize(request)

    engine = Engine(answer)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        counting = engine.counter(CountTimeouts(answer=TIMEOUT_SECONDS))
        counts = await counting.count_texts(["x" * 100_000] * 8, {}), engine.most
    assert counts == ((100_000,) * 8, 4)


@pytest.mark.parametrize("failure", [httpx.Response(500), httpx.ConnectError("refused")])
def test_all_counts_are_none_if_one_text_cannot_be_counted(
    failure: httpx.Response | Exception,
) -> None:
    routes = respx.MockRouter()
    good = httpx.Response(200, json={"tokens": [*[5] * 9, -1]})
    routes.post(HOST + TOKENIZE).side_effect = [good, failure]

    assert texts(counter(routes), "x" * 100_000, "y" * 100_000) is None


@pytest.mark.parametrize("tokens", [[1, 2, 3], [1, -1, 2, -1, 3, -1], [], 5])
def test_texts_are_not_counted_if_the_number_of_separators_is_wrong(
    tokens: JsonValue,
) -> None:
    routes = respx.MockRouter()
    routes.post(HOST + TOKENIZE).respond(json={"tokens": tokens})

    assert texts(counter(routes), "x", "y") is None


LITELLM = {"total_tokens": 17, "request_model": "m", "model_used": "m", "tokenizer_type": "x"}


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        ({**LITELLM, "count_source": "provider"}, [17, 17]),
        ({**LITELLM, "tokenizer_type": "anthropic_api"}, [17, 17]),
        ({**LITELLM, "count_source": "local_estimate"}, [None, None]),
    ],
)
async def test_the_count_of_a_gateway_is_used_only_if_it_is_exact(
    answer: JsonObject, counted: list[int | None], respx_mock: respx.MockRouter
) -> None:
    route = respx_mock.post(HOST + GATEWAY_COUNT).respond(json=answer)
    counting = counter(respx_mock)
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    assert [await counting.count_at_gateway(body, {}) for _ in range(2)] == counted
    # after an estimate, no counts are requested for some time
    assert route.call_count == (1 if None in counted else 2)
    sent = json.parse(route.calls[0].request.content)
    assert sent == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
