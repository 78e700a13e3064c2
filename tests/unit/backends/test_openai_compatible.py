import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from itertools import pairwise, repeat

import httpx
import pytest
import respx
from msgspec.structs import replace

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from benchmarks.faults.toxics import chunk as framed
from proxy import bounds
from proxy.backends.client import Backend, BackendModel, Description, Health, ReplyEvents
from proxy.backends.openai_compatible import AdaptiveEngine, ChatReplyDecoder, OpenAICompatible
from proxy.backends.probing import PROBES, write_probe
from proxy.backends.transport import END_SECONDS, LINGER, BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import NamedTool, Tool, ToolUse
from proxy.dialects.lenient_json import as_list, as_object, as_text
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart
from proxy.dialects.sse import EventDecoder
from proxy.errors import (
    BackendFailed,
    BackendRefused,
    BackendReplyInvalid,
    BackendUnavailable,
    ContextOverflow,
    TemperError,
    UnknownModel,
)
from proxy.guardrails.schemas.rewriting import call_schema
from tests.fakes.backend import every
from tests.fakes.engine_answers import TRANSFORMERS, VLLM, recorded
from tests.fakes.engine_errors import OVERFLOWS, Overflow
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.raw_backend import raw_backend
from tests.fakes.upstream_requests import HELLO, chunk, stream, upstream_request
from tests.timeouts import TIMEOUT_SECONDS

URL = "http://host/v1/chat/completions"
STARTED = ReplyStarted("chatcmpl-1", 1700000000, "m")
SCHEMA: JsonObject = {"type": "object"}


def engine(routes: respx.MockRouter) -> OpenAICompatible:
    wire = httpx.MockTransport(routes.async_handler)
    return OpenAICompatible(BackendClient("http://host/v1/", pool=MockedPool(wire)))


def engine_with(*responses: httpx.Response) -> tuple[OpenAICompatible, respx.Route]:
    routes = respx.MockRouter(assert_all_called=False)
    route = routes.post(URL)
    route.side_effect = list(responses)
    return engine(routes), route


def events(backend: Backend, request: UpstreamRequest | None = None) -> list[ReplyEvent]:
    async def collect() -> list[ReplyEvent]:
        async with aclosing(backend.stream(request or upstream_request(), {})) as reply:
            return await every(reply)

    return asyncio.run(collect())


def events_of(body: bytes, content_type: str = "text/event-stream") -> list[ReplyEvent]:
    backend, _ = engine_with(
        httpx.Response(200, content=body, headers={"content-type": content_type})
    )
    return events(backend)


def failure(response: httpx.Response) -> TemperError:
    backend, _ = engine_with(response)
    with pytest.raises(TemperError) as caught:
        events(backend)
    return caught.value


def test_a_stream_is_decoded_to_events_that_end_with_reply_finished() -> None:
    assert events_of(HELLO) == [STARTED, TextDelta("Hello"), ReplyFinished("stop")]


WHOLE: JsonObject = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Wait.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "get_time", "arguments": "{}"},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
                    },
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "text/event-stream"])
def test_a_non_streamed_completion_is_decoded_to_the_events_of_a_stream(content_type: str) -> None:
    read = events_of(b"\n" + json.dump(WHOLE), content_type)

    assert read == [
        STARTED,
        TextDelta("Wait."),
        ToolCallStarted(0, "c1", "get_time"),
        ToolCallArgumentsDelta(0, "{}"),
        ToolCallStarted(1, "c2", "get_weather"),
        ToolCallArgumentsDelta(1, '{"city": "Rome"}'),
        UsageReported({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
        ReplyFinished("tool_calls"),
    ]


@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
def test_a_stream_with_a_wrong_content_type_is_decoded_as_a_stream(content_type: str) -> None:
    assert events_of(HELLO, content_type) == events_of(HELLO)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n\n",
        b"<html><body>It works!</body></html>",
        b"{",
        b"[]",
        b'{"id": 1}',
        b'{"choices": 5}',
        b'{"choices": [5]}',
        b'{"choices": [{"message": 5, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"tool_calls": [5]}, "finish_reason": "stop"}]}',
        b"data: {\n\n",
        b"data: 5\n\n",
        b'data: {"choices": 5}\n\n',
        b"data: [DONE]\n\n",
        stream(chunk({"content": "x"})).replace(b'"x"', b"5"),
    ],
)
def test_a_body_that_is_not_a_completion_is_an_error(body: bytes) -> None:
    assert type(failure(httpx.Response(200, content=body))) is BackendReplyInvalid


def test_a_truncated_stream_is_a_connection_failure() -> None:
    body = stream(chunk({"content": "Hel"}), done=False)

    assert type(failure(httpx.Response(200, content=body))) is BackendUnavailable


class BrokenStream(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield stream(chunk({"content": "Hel"}), done=False)
        raise httpx.ReadError("reset")


def test_a_request_is_not_resent_if_the_connection_breaks_within_the_reply() -> None:
    backend, route = engine_with(httpx.Response(200, stream=BrokenStream()))

    with pytest.raises(BackendUnavailable):
        events(backend)
    assert route.call_count == 1


BEGUN = stream(chunk({"role": "assistant", "content": None}), chunk({"content": "Hel"}), done=False)


@pytest.mark.parametrize(
    ("sent", "is_canceled"),
    [(BEGUN, False), (BEGUN, True), (b"", True)],
    ids=["closed within a reply", "canceled within a reply", "canceled before a reply"],
)
async def test_closing_the_stream_closes_the_connection(sent: bytes, *, is_canceled: bool) -> None:
    received, abandoned, read = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def begin(caller: Caller) -> None:
        await caller.request()
        received.set()
        if sent:
            await caller.send(STREAM_HEAD)
            await caller.send_chunk(sent)
        await caller.wait_for_disconnect()
        abandoned.set()

    async def read_on(reply: ReplyEvents) -> None:
        async with aclosing(reply):
            async for batch in reply:
                assert batch == [STARTED, TextDelta("Hel")]
                read.set()
                if not is_canceled:
                    return

    async with raw_backend(begin) as backend, asyncio.timeout(TIMEOUT_SECONDS):
        adapter = OpenAICompatible(BackendClient(backend.url))
        reader = asyncio.create_task(read_on(adapter.stream(upstream_request(), {})))
        await (read if sent else received).wait()
        if is_canceled:
            reader.cancel()
        await abandoned.wait()  # before the adapter is closed
        (outcome,) = await asyncio.gather(reader, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError) is is_canceled
        await adapter.close()


async def test_two_successive_requests_use_one_connection() -> None:
    async def reply_twice(caller: Caller) -> None:
        while await caller.request():
            await caller.send(STREAM_HEAD)
            await caller.send_chunk(HELLO)
            await caller.send_chunk(b"")

    async with raw_backend(reply_twice) as backend, asyncio.timeout(TIMEOUT_SECONDS):
        adapter = OpenAICompatible(BackendClient(backend.url))
        for _ in range(2):
            async with aclosing(adapter.stream(upstream_request(), {})) as reply:
                async for batch in reply:
                    if isinstance(batch[-1], ReplyFinished):
                        break
        await adapter.close()
        assert backend.connections == 1


OVERFLOW: JsonObject = {
    "code": 400,
    "message": "request (33009 tokens) exceeds the available context size (2048 tokens)",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 33009,
    "n_ctx": 2048,
}


def stream_of_error(error: JsonValue) -> httpx.Response:
    return httpx.Response(200, content=stream({"error": error}, done=False))


def stream_of_text_and_error(error: JsonValue) -> httpx.Response:
    body = stream(chunk({"content": "Hel"}), {"error": error}, done=False)
    return httpx.Response(200, content=body)


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(400, json={"error": OVERFLOW}),
        stream_of_error(OVERFLOW),
        stream_of_text_and_error(OVERFLOW),
        httpx.Response(200, json={"error": OVERFLOW}),
    ],
)
def test_a_context_overflow_is_the_same_error_in_a_refusal_and_in_a_stream(
    response: httpx.Response,
) -> None:
    error = failure(response)

    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window) == (33009, 2048)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 429, 500, 501, 502, 503, 504])
def test_a_refusal_keeps_its_status_its_error_fields_and_its_retry_after(status: int) -> None:
    error_body = {"error": {"message": "No.", "type": "some_error", "code": None}}
    error = failure(httpx.Response(status, json=error_body, headers={"retry-after": "7"}))

    assert isinstance(error, BackendRefused)
    assert (error.status, error.message, error.kind) == (status, "No.", "some_error")
    assert error.retry_after == "7"
    assert error.backend == "http://host"


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b"{", b"[]", b'{"error": 5}', b"\xff\xfe"]
)
def test_an_unparsable_refusal_keeps_its_status(body: bytes) -> None:
    error = failure(httpx.Response(502, content=body))

    assert isinstance(error, BackendRefused)
    assert error.status == 502


def test_a_long_error_body_is_read_up_to_a_limit() -> None:
    error = failure(httpx.Response(500, content=b"x" * (3 * bounds.DOCUMENT_BYTES)))

    assert isinstance(error, BackendRefused)
    assert len(error.message) <= bounds.DOCUMENT_BYTES


def test_text_before_an_error_is_delivered() -> None:
    backend, _ = engine_with(stream_of_text_and_error({"message": "Oh.", "code": 500}))
    received: list[ReplyEvent] = []

    async def listen() -> None:
        nonlocal received
        async with aclosing(backend.stream(upstream_request(), {})) as reply:
            async for batch in reply:
                received.extend(batch)

    with pytest.raises(BackendRefused, match="Oh"):
        asyncio.run(listen())
    assert received == [STARTED, TextDelta("Hel")]


def test_models_are_listed_with_their_entries() -> None:
    routes = respx.MockRouter()
    entry: JsonObject = {"id": "a", "owned_by": "me"}
    routes.get("http://host/v1/models").respond(json={"data": [entry, 5, {"id": 5}, {"id": "b"}]})

    models = asyncio.run(engine(routes).models())

    assert models == (BackendModel("a", entry), BackendModel("b", {"id": "b"}))


def test_the_field_created_of_a_model_stays_the_same_until_the_model_disappears() -> None:
    routes = respx.MockRouter()
    lists: list[list[JsonObject]] = [
        [{"id": "a", "created": 10}, {"id": "b"}],
        [{"id": "a", "created": 11}, {"id": "b", "created": 12}],
        [{"id": "b", "created": 13}],
        [{"id": "a", "created": 14}],
    ]
    answers = [httpx.Response(200, json={"data": [*entries]}) for entries in lists]
    routes.get("http://host/v1/models").mock(side_effect=answers)
    backend = engine(routes)

    async def models_document() -> list[dict[str, JsonValue]]:
        seen = [await backend.models() for _ in answers]
        return [{model.id: model.details.get("created") for model in models} for models in seen]

    first: list[dict[str, JsonValue]] = [{"a": 10, "b": None}, {"a": 10, "b": 12}]
    assert asyncio.run(models_document()) == [*first, {"b": 12}, {"a": 14}]


@pytest.mark.parametrize(
    ("models_document", "description"),
    [
        ([{"id": "b", "root": "org/b"}], Description(("b", "org/b"))),
        ([{"id": "a"}, {"id": "asked", "root": "asked"}], Description(("asked",))),
        ([{"id": "a"}, {"id": "b"}], Description(("asked",))),
        (None, Description(("asked",), is_provisional=True)),
    ],
)
def test_a_model_is_named_by_its_list_entry_or_else_by_the_requested_name(
    models_document: JsonValue, description: Description
) -> None:
    routes = respx.MockRouter()
    routes.get("http://host/v1/models").respond(json={"data": models_document})
    assert asyncio.run(engine(routes).describe("asked")) == description


def test_an_unknown_engine_counts_no_tokens() -> None:
    routes = respx.MockRouter()
    backend = engine(routes)

    async def count() -> tuple[int | None, tuple[int, ...] | None]:
        return await backend.count(upstream_request(), {}), await backend.count_texts(["x"], {})

    assert asyncio.run(count()) == (None, None)
    assert not routes.calls


REPLY = [STARTED, TextDelta("Grüße 🌦"), ReplyFinished("stop")]
CHUNKS = (chunk({"role": "assistant"}), chunk({"content": "Grüße 🌦"}), chunk({}, "stop"))
COMPLETION: JsonObject = {
    **chunk({}),
    "choices": [{"message": {"content": "Grüße 🌦"}, "finish_reason": "stop"}],
}
BODIES = [
    stream(*CHUNKS),
    stream(*CHUNKS, done=False),
    b"\r\n\r\n" + stream(*CHUNKS).replace(b"\n", b"\r\n"),
    b": hello\n\n" + stream(*CHUNKS).removesuffix(b"\n\n"),
    json.dump(COMPLETION),
    b" \n" + json.dump(COMPLETION) + b"\n",
]


def read(pieces: Iterable[bytes]) -> list[ReplyPart]:
    decoder = ChatReplyDecoder()
    parts: list[ReplyPart] = []
    for piece in pieces:
        decoder.feed(piece, parts)
    decoder.finish(parts)
    return parts


@pytest.mark.parametrize("body", BODIES)
def test_a_reply_is_decoded_equally_wherever_its_bytes_are_split(body: bytes) -> None:
    chance = random.Random(1)
    assert read([body]) == REPLY
    assert read(bytes([byte]) for byte in body) == REPLY
    for cut in range(len(body)):
        assert read([body[:cut], body[cut:]]) == REPLY
    for _ in range(20):
        cuts = [0, *sorted(chance.choices(range(len(body)), k=9)), len(body)]
        assert read(body[a:b] for a, b in pairwise(cuts)) == REPLY


def test_parts_before_invalid_data_are_delivered() -> None:
    decoder, parts = ChatReplyDecoder(), list[ReplyPart]()
    with pytest.raises(ValueError, match="line 1"):
        decoder.feed(stream(CHUNKS[0], done=False) + b"data: {\n\n", parts)
    assert (parts, decoder.has_begun) == ([STARTED], True)


def test_the_error_for_an_invalid_reply_has_the_beginning_of_its_data() -> None:
    decoder, parts = ChatReplyDecoder(), list[ReplyPart]()
    for piece in (b" \n", b" <html>", b"<p>"):
        decoder.feed(piece, parts)
    assert (decoder.beginning, parts) == (b"<html>", [])


def test_data_after_done_does_not_change_the_reply() -> None:
    assert read([HELLO, b"data: garbage\n\n"]) == read([HELLO])


def _one_by_one(events: Iterable[bytes]) -> list[ReplyPart]:
    """Decode each event separately, without the fast paths, which must give the same result."""
    sse, decoder = EventDecoder(), ChunkDecoder()
    parts = [part for raw in events for item in sse.feed(raw) for part in decoder.feed(item.data)]
    return [*parts, *decoder.finish()]


def _call(name: str | None, arguments: str, number: int = 0) -> JsonObject:
    function: JsonObject = {"arguments": arguments}
    call: JsonObject = {"index": number, "function": function}
    if name is not None:
        function["name"], call["id"] = name, f"c{number}"
    return {"tool_calls": [call]}


TEXTS = (
    "a",
    ", ",
    '"',
    "\\",
    '","',
    "\\\\",
    "",
    "\n",
    "Grüße",
    "🌦",
    '\\","',
    "]",
    "x" * 40,
    '"}}]}\n\n',
)


@pytest.mark.parametrize("seed", range(40))
def test_consecutive_similar_chunks_give_the_same_events_as_chunks_decoded_one_by_one(
    seed: int,
) -> None:
    chance = random.Random(seed)
    kinds: tuple[Callable[[str], JsonObject], ...] = (
        lambda text: {"content": text},
        lambda text: {"reasoning_content": text},
        lambda text: _call(None, text),
        lambda text: _call(None, text, 1),
        lambda text: {"content": text, "refusal": None},
    )
    deltas: list[JsonObject] = [{"role": "assistant"}, _call("f", ""), _call("g", "", 1)]
    for _ in range(chance.randint(1, 12)):
        kind = chance.choice(kinds)
        deltas += [kind(chance.choice(TEXTS)) for _ in range(chance.choice((1, 2, 9)))]
    chunks = [{**chunk(delta), "created": 1 + index // 20} for index, delta in enumerate(deltas)]
    body = stream(*chunks, {**chunk({}, "stop"), "usage": {"total_tokens": 3}})
    if seed % 4 == 0:
        body = body.replace(b"\n\n", b"\n: a comment\n\n", seed)
    expected = _one_by_one([body])
    assert read([body]) == expected
    for width in (1, 7, 100, 1_000):
        assert read(body[at : at + width] for at in range(0, len(body), width)) == expected


@pytest.mark.parametrize("count", [1, 4, 5, 6, 30])
@pytest.mark.parametrize("start", [(), ({"role": "assistant"},)])
def test_a_reply_of_equal_chunks_gives_the_same_events_as_chunks_decoded_one_by_one(
    start: tuple[JsonObject, ...], count: int
) -> None:
    body = stream(
        *map(chunk, start), *[chunk({"content": "x"})] * count
    )  # no chunk has a finish reason
    expected = _one_by_one([body])
    assert expected[-1] == ReplyFinished("stop")
    for width in (len(body), 1_000):
        assert read(body[at : at + width] for at in range(0, len(body), width)) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"\\",  # escapes the following quote
        b'","',
        b'a" , "b',
        b"\xff",
        b"\\ud800",
        b"\x01",
        b'"}}]}\n\ndata: {',
    ],
)
def test_unusual_text_among_similar_chunks_is_decoded_as_in_a_single_chunk(text: bytes) -> None:
    good = stream(*CHUNKS[:1], *[chunk({"content": "~"})] * 3, done=False)
    before, _, after = good.rpartition(b"~")
    body = before + text + after + HELLO
    assert _outcome(lambda: read([body])) == _outcome(lambda: _one_by_one([body]))


def _outcome(reading: Callable[[], list[ReplyPart]]) -> list[ReplyPart] | str:
    try:
        return reading()
    except ValueError as error:
        return str(error)


def test_an_event_longer_than_the_limit_is_refused() -> None:
    pieces = [stream(*CHUNKS[:2], done=False), *repeat(b"x" * 60_000, 200)]
    with pytest.raises(ValueError, match="longer than 8000000 bytes"):
        read(pieces)


def test_read_for_sink_reads_only_complete_events_that_resemble_the_earlier_events() -> None:
    decoder, parts = ChatReplyDecoder(), list[ReplyPart]()
    row = stream(chunk({"content": "a"}), chunk({"content": "b"}), done=False)
    assert decoder.read_for_sink(row) is None
    decoder.feed(stream(*CHUNKS[:2], done=False), parts)
    assert decoder.read_for_sink(row) == [TextDelta("a"), TextDelta("b")]
    for piece in (b"", row[:-1], row + b"data: [DONE]\n\n", stream(CHUNKS[2])):
        assert decoder.read_for_sink(piece) is None
    decoder.feed(row[:-1], parts)
    assert decoder.read_for_sink(row) is None
    decoder.feed(b"\n", parts)
    decoder.feed(b": half\r", parts)
    assert decoder.read_for_sink(row) is None
    decoder.feed(b"\n", parts)
    assert decoder.read_for_sink(row) == [TextDelta("a"), TextDelta("b")]


CHAT = "http://host/v1/chat/completions"
MODELS = "http://host/v1/models"
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_OBJECT = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
HI = httpx.Response(200, content=HELLO)


class FakeEngine:
    """A fake engine that sends `answers` to chats, and `documents` by path to GET requests."""

    def __init__(self, *answers: httpx.Response, **documents: JsonValue) -> None:
        self.routes = respx.MockRouter(assert_all_called=False)
        self.chat = self.routes.post(CHAT)
        self.chat.side_effect = list(answers)
        counted = {"count": 21, "max_model_len": 4096, "tokens": [1]}
        self.tokenize = self.routes.post("http://host/tokenize").respond(json=counted)
        self.gateway = self.routes.post("http://host/utils/token_counter").respond(404)
        for path, value in documents.items():
            self.routes.get(f"http://host/{path.replace('_', '/')}").respond(json=value)
        self.routes.route().respond(404)

    def engine(self, clock: Callable[[], float] = lambda: 0.0) -> AdaptiveEngine:
        wire = httpx.MockTransport(self.routes.async_handler)
        return AdaptiveEngine(BackendClient("http://host", pool=MockedPool(wire)), clock=clock)

    @property
    def bodies(self) -> list[JsonObject]:
        bodies = [json.parse(call.request.content) for call in self.chat.calls]
        return [body for body in bodies if isinstance(body, dict)]


async def replied(engine: AdaptiveEngine, request: UpstreamRequest) -> list[ReplyEvent]:
    async with aclosing(engine.stream(request, {})) as reply:
        return await every(reply)


def models_document(owner: str, **others: JsonValue) -> JsonObject:
    return {"object": "list", "data": [{"id": "m", "owned_by": owner, **others}]}


async def test_a_refused_feature_is_dropped_in_later_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = FakeEngine(httpx.Response(400, json={"object": "error", "message": NO_PARSER}), HI, HI)
    engine = wire.engine()
    with caplog.at_level(logging.WARNING):
        events = await replied(engine, upstream_request())
        await replied(engine, upstream_request())
    assert events[-1] == ReplyFinished("stop")
    assert [body.get("tool_choice") for body in wire.bodies] == [None, "none", "none"]
    assert caplog.text.count("--tool-call-parser NAME") == 1


@pytest.mark.parametrize(("others", "names"), [((), ("tool_parser",)), (({"id": "b"},), ())])
async def test_if_there_is_one_model_a_feature_refused_under_any_name_is_reported_for_it(
    others: tuple[JsonObject, ...], names: tuple[str, ...]
) -> None:
    models: JsonValue = {"data": [{"id": "a", "owned_by": "vllm"}, *others]}
    refusal = httpx.Response(400, json={"error": NO_PARSER})
    wire = FakeEngine(refusal, HI, v1_models=models)
    engine = wire.engine()
    before = await engine.describe("a")
    await replied(engine, upstream_request())
    after = await engine.describe("a")
    assert (before.engine, before.lacks) == ("vLLM", ("bound_arguments",))
    assert (after.engine, after.lacks) == ("vLLM", ("bound_arguments", *names))


async def test_a_feature_refused_by_one_model_is_still_sent_to_another_model() -> None:
    wire = FakeEngine(httpx.Response(400, json={"error": NO_OBJECT}), HI, HI)
    named = upstream_request(tool_choice=NamedTool("get_weather"))
    engine = wire.engine()
    await replied(engine, named)
    await replied(engine, replace(named, request=replace(named.request, model="other")))
    refused, substituted, other = [body["tool_choice"] for body in wire.bodies]
    assert substituted == "required"
    assert other == refused


async def test_a_refused_feature_is_sent_again_after_an_hour() -> None:
    wire = FakeEngine(httpx.Response(400, json={"error": NO_PARSER}), HI, HI)
    now = 0.0
    engine = wire.engine(lambda: now)
    await replied(engine, upstream_request())
    now = 3600.0
    await replied(engine, upstream_request())
    assert "tool_choice" not in wire.bodies[-1]


def failure_of(response: httpx.Response, **documents: JsonValue) -> TemperError:
    with pytest.raises(TemperError) as caught:
        asyncio.run(replied(FakeEngine(response, **documents).engine(), upstream_request()))
    return caught.value


@pytest.mark.parametrize(
    ("models_document", "message"),
    [
        ({"data": [{"id": "x"}, {"id": "y"}]}, "does not exist. Available: x, y."),
        ({"data": [{"id": "m"}]}, "no such model"),
        ({}, "no such model"),
    ],
)
def test_the_error_for_a_missing_model_lists_the_available_models(
    models_document: JsonObject, message: str
) -> None:
    refusal = httpx.Response(404, json={"error": {"message": "no such model"}})
    error = failure_of(refusal, v1_models=models_document)
    assert message in str(error)
    assert isinstance(error, UnknownModel) is ("Available" in message)


@pytest.mark.parametrize("overflow", OVERFLOWS, ids=[item.engine for item in OVERFLOWS])
def test_a_context_overflow_has_the_token_counts_that_the_engine_reports(
    overflow: Overflow,
) -> None:
    error = failure_of(httpx.Response(overflow.status, json=overflow.body))

    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window) == (overflow.prompt, overflow.window)
    assert overflow.message in str(error)


@pytest.mark.parametrize("overflow", OVERFLOWS, ids=[item.engine for item in OVERFLOWS])
def test_a_context_overflow_in_a_stream_is_recognized(overflow: Overflow) -> None:
    body: JsonValue = overflow.body
    if "error" not in overflow.body:
        body = {"error": overflow.body}
    error = failure_of(httpx.Response(200, content=stream(body, done=False)))

    assert isinstance(error, ContextOverflow)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, {"error": "Model unloaded."}, "Model unloaded."),
        (422, {"detail": "Field required"}, "Field required"),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "bad"}]}, '"msg":"bad"'),
        (404, {"object": "error", "message": "No model", "code": 404}, "No model"),
        (401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}, "API key"),
        (429, {"error": {"message": "Rate limit: 6000 tokens per minute"}}, "Rate limit"),
        (500, {"message": "boom"}, "boom"),
    ],
)
def test_the_message_is_read_from_every_form_of_error_body(
    status: int, body: JsonObject, message: str
) -> None:
    error = failure_of(httpx.Response(status, json=body))

    assert isinstance(error, BackendRefused)
    assert error.status == status
    assert message in error.message
    assert "http://host" in str(error)


def test_the_param_of_an_error_is_kept() -> None:
    body = {"error": {"message": "No.", "param": "messages.0.role", "type": "x"}}
    error = failure_of(httpx.Response(400, json=body))

    assert isinstance(error, BackendRefused)
    assert error.param == "messages.0.role"


@pytest.mark.parametrize(
    ("wire", "description"),
    [
        (
            FakeEngine(v1_models=models_document("vllm", root="org/m", max_model_len=4096)),
            Description(("m", "org/m"), window=4096),
        ),
        (
            FakeEngine(v1_models=models_document("sglang", root="m", max_model_len=8192)),
            Description(("m",), window=8192),
        ),
        (
            FakeEngine(
                v1_models=models_document("organization_owner"),
                api_v0_models={
                    "data": [
                        {
                            "id": "m",
                            "arch": "qwen2",
                            "state": "loaded",
                            "max_context_length": 32768,
                            "loaded_context_length": 4096,
                        }
                    ]
                },
            ),
            Description(("m",), "qwen2", window=4096),
        ),
        (FakeEngine(v1_models=models_document("organization_owner")), Description(("m",))),
        (
            FakeEngine(v1_models=models_document("me", context_length=9)),
            Description(("m",), window=9),
        ),
        (FakeEngine(v1_models={"data": []}), Description(("m",))),
        (FakeEngine(), Description(("m",), is_provisional=True)),
    ],
)
def test_the_context_window_is_read_from_the_field_that_each_engine_uses(
    wire: FakeEngine, description: Description
) -> None:
    described = asyncio.run(wire.engine().describe("m"))
    assert dataclasses.replace(described, engine="", lacks=()) == description


async def test_lm_studio_receives_neither_max_completion_tokens_nor_an_object_as_tool_choice() -> (
    None
):
    wire = FakeEngine(HI, v1_models=models_document("organization_owner"))
    named = upstream_request(tool_choice=NamedTool("get_weather"))
    fields = {**named.request.fields, "max_completion_tokens": b"9"}
    named = replace(named, request=replace(named.request, fields=fields, max_tokens=9))
    engine = wire.engine()
    await engine.describe("m")
    await replied(engine, named)
    name = engine.kind.name
    assert name == "LM Studio"
    assert wire.bodies[0]["tool_choice"] == "required"
    assert wire.bodies[0]["max_tokens"] == 9
    assert "max_completion_tokens" not in wire.bodies[0]


@pytest.mark.parametrize(("owner", "count"), [("vllm", 21), ("sglang", None)])
async def test_a_prompt_is_counted_if_the_engine_has_a_tokenize_endpoint(
    owner: str, count: int | None
) -> None:
    wire = FakeEngine(v1_models=models_document(owner))
    engine = wire.engine()
    await engine.describe("m")
    counts = await engine.count(upstream_request(), {}), await engine.count_texts(["a"], {})
    assert counts == (count, None if count is None else (count,))
    if count:
        body = json.parse(wire.tokenize.calls[0].request.content)
        assert isinstance(body, dict)
        assert {"messages", "tools"} <= body.keys()


async def test_a_litellm_proxy_counts_tokens_if_its_provider_counts_them() -> None:
    wire = FakeEngine(v1_models=models_document("openai"), health_liveliness="I'm alive!")
    counted = {"total_tokens": 17, "tokenizer_type": "openai_api", "count_source": "provider"}
    count = wire.gateway.respond(json=counted)
    engine = wire.engine()
    await engine.describe("m")
    assert [await engine.count(upstream_request(), {}) for _ in range(2)] == [17, 17]
    assert count.calls[0].request.url.params["call_endpoint"] == "true"
    other = FakeEngine(v1_models=models_document("openai"))
    assert await other.engine().count(upstream_request(), {}) is None


async def test_the_configured_headers_are_sent_with_every_request() -> None:
    wire = FakeEngine(HI, v1_models=models_document("vllm"))
    transport = httpx.MockTransport(wire.routes.async_handler)
    extra = {"X-Team": "blue"}
    engine = AdaptiveEngine(BackendClient("http://host", headers=extra, pool=MockedPool(transport)))
    await engine.models()
    await replied(engine, upstream_request())
    await engine.close()
    assert [call.request.headers["x-team"] for call in wire.routes.calls] == ["blue", "blue"]


def enum_request(schema: JsonObject | None = None) -> UpstreamRequest:
    """Return the last attempt of a request that must call a tool whose schema has an enum."""
    body = as_object(PROBES["required"].body)
    tools = as_list(body["tools"])
    function = as_object(as_object(tools[0])["function"])
    tool = Tool("pick", as_object(function["parameters"]), json.dump(tools[0]))
    return replace(upstream_request(schema=schema or call_schema([tool])), tools=(tool,))


@dataclasses.dataclass
class ProbedEngine:
    """Responds to probes like a real engine, and with "Hi" to every other request."""

    name: str
    owner: str = "somebody"
    refuses: tuple[str, httpx.Response] = ("nothing", HI)
    requests: list[JsonObject] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = recorded(self.name)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=models_document(self.owner))
        body = json.parse(request.content)
        assert isinstance(body, dict)
        self.requests.append(body)
        for name, probe in PROBES.items():
            if request.content == write_probe(probe, "m"):
                return self.answers[name]
        form, refusal = self.refuses
        return refusal if form_of(body) == form else HI

    def engine(self) -> AdaptiveEngine:
        wire = httpx.MockTransport(self.answer)
        return AdaptiveEngine(BackendClient("http://host", pool=MockedPool(wire)))


async def run_requests(probed: ProbedEngine, *schemas: JsonObject | None) -> AdaptiveEngine:
    engine = probed.engine()
    await engine.models()
    for schema in schemas:
        await replied(engine, enum_request(schema))
    return engine


def test_the_last_attempt_has_strict_tools_if_a_probe_shows_that_vllm_honors_them() -> None:
    probed = ProbedEngine(VLLM, "vllm")
    engine = asyncio.run(run_requests(probed, None, None))
    probe, first, second = probed.requests
    assert probe["tool_choice"] == "required"
    assert first == second
    assert first["tool_choice"] == "required"
    function = as_object(as_object(as_list(first["tools"])[0])["function"])
    assert function["strict"] is True
    assert engine.learned.honours("m") == {"strict": True}


def test_the_remainder_of_a_partly_sent_call_is_constrained_by_a_structural_tag() -> None:
    """Strict tools cannot express that a part of the call was already sent to the client."""
    probed = ProbedEngine(VLLM, "vllm")
    asyncio.run(run_requests(probed, {"type": "object", "required": ["name"]}))
    assert probed.requests[-1]["tool_choice"] == "none"
    assert form_of(probed.requests[-1]) == "structural_tag"


OPEN: JsonObject = {"type": "object", "required": ["name"]}


def form_of(request: JsonObject) -> str:
    """Return the kind of the constraint, e.g. "json_schema", or "" without a constraint."""
    schema = as_object(request.get("response_format")).get("type")
    return next(iter(as_object(request.get("structured_outputs"))), as_text(schema))


def test_a_json_schema_is_sent_if_the_probe_of_structural_tags_is_refused() -> None:
    probed = ProbedEngine(VLLM, "vllm")
    probed.answers["structural_tag"] = httpx.Response(400, json={"error": "no such type"})
    engine = asyncio.run(run_requests(probed, OPEN, OPEN))
    assert [form_of(request) for request in probed.requests[2:]] == ["json_schema"] * 2
    assert engine.learned.honours("m") == {"strict": True, "structural_tag": False}


def test_a_json_schema_is_sent_after_a_structural_tag_was_refused() -> None:
    probed = ProbedEngine(VLLM, "vllm")
    # the message of version 0.32
    refusal_text = (
        "Invalid structured_outputs structural_tag specification. (parameter=structured_outputs)"
    )
    probed.refuses = (
        "structural_tag",
        httpx.Response(400, json={"error": {"message": refusal_text}}),
    )
    asyncio.run(run_requests(probed, OPEN, OPEN))
    forms = [form_of(request) for request in probed.requests[2:]]
    assert forms == ["structural_tag", "json_schema", "json_schema"]


def test_an_engine_that_ignores_constraints_is_probed_once() -> None:
    probed = ProbedEngine(TRANSFORMERS, "local")
    engine = asyncio.run(run_requests(probed, None, None))
    assert len(probed.requests) == 3 + 2
    assert probed.requests[-1]["tool_choice"] == "required"
    assert "response_format" not in probed.requests[-1]
    described = asyncio.run(engine.describe("m"))
    assert described.lacks == ("bound_arguments", "bound_text", "strict_tools")
    assert described.honours == {
        "required_arguments": False,
        "strict": False,
        "schema_beside_tools": False,
    }


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_failed_probe_is_not_stored_and_is_sent_again(status: int) -> None:
    probed = ProbedEngine(VLLM, "vllm")
    probed.answers["strict"] = httpx.Response(status, json={"error": "busy"})
    engine = asyncio.run(run_requests(probed, None, None))
    assert [len(as_list(request.get("messages"))) for request in probed.requests] == [1] * 4
    assert engine.learned.honours("m") == {}


def test_a_request_without_a_schema_sends_no_probe() -> None:
    probed = ProbedEngine(VLLM, "vllm")
    asyncio.run(replied(probed.engine(), upstream_request()))
    assert len(probed.requests) == 1


PINNED = """{"detail":"Server is pinned to '/opt/e-model'; requested 'default'."}"""


async def test_the_name_of_the_only_model_is_read_from_a_refusal() -> None:
    """The responses are those of transformers serve 5.24 while its cache is empty."""
    requests: list[JsonObject] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            return httpx.Response(200, json={"status": "ok"})
        if request.method == "GET":
            return httpx.Response(500, text="Internal Server Error")
        body = json.parse(request.content)
        assert isinstance(body, dict)
        requests.append(body)
        is_named = body["model"] == "/opt/e-model"
        return HI if is_named else httpx.Response(400, content=PINNED.encode())

    engine = AdaptiveEngine(
        BackendClient("http://host", pool=MockedPool(httpx.MockTransport(answer)))
    )
    assert await engine.health() is Health.READY
    with pytest.raises(BackendFailed):
        await engine.models()
    assert (await replied(engine, upstream_request()))[-1] == ReplyFinished("stop")
    await replied(engine, upstream_request())
    assert [item.id for item in await engine.models()] == ["/opt/e-model"]
    assert [request["model"] for request in requests] == ["m", "/opt/e-model", "/opt/e-model"]


def test_a_second_refusal_is_an_error_although_the_only_model_was_named() -> None:
    wire = httpx.MockTransport(lambda _: httpx.Response(400, content=PINNED.encode()))
    engine = AdaptiveEngine(BackendClient("http://host", pool=MockedPool(wire)))
    with pytest.raises(BackendRefused):
        asyncio.run(replied(engine, upstream_request()))


async def test_vllm_gets_one_tokenize_request_for_each_text() -> None:
    requests: list[JsonObject] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=models_document("vllm"))
        body = json.parse(request.content)
        assert isinstance(body, dict)
        requests.append(body)
        prompt = body["prompt"]
        assert isinstance(prompt, str)
        if prompt == "unknown":
            return httpx.Response(404)
        # the response of version 0.32
        document = {"count": len(prompt), "max_model_len": 2048, "tokens": [71], "token_strs": None}
        return httpx.Response(200, json=document)

    engine = AdaptiveEngine(
        BackendClient("http://host", pool=MockedPool(httpx.MockTransport(answer)))
    )
    assert await engine.count_texts(["a"], {}) is None
    await engine.models()
    texts = ["x" * size for size in range(1, 8)]
    assert await engine.count_texts(texts, {}) == tuple(range(1, 8))
    assert all(item["add_special_tokens"] is False for item in requests)
    assert await engine.count_texts(["unknown", *texts], {}) is None


ENDED = (chunk({"content": "Hi"}), chunk({}, "stop"))
USED: JsonObject = {"id": "r", "choices": [], "usage": {"prompt_tokens": 3}}


async def stay_open(caller: Caller) -> None:
    await asyncio.sleep(TIMEOUT_SECONDS)


async def comment(caller: Caller) -> None:
    while True:
        await caller.send(framed(b": still here\n\n"))
        await asyncio.sleep(0.01)


async def report_usage(caller: Caller) -> None:
    await asyncio.sleep(0.3)
    await caller.send(framed(stream(USED, done=False)))
    await comment(caller)


@pytest.mark.parametrize("rest", [stay_open, comment, report_usage])
async def test_a_reply_ends_shortly_after_its_finish_reason_if_the_connection_stays_open(
    rest: Callable[[Caller], Awaitable[None]],
) -> None:
    """The engine sends no end mark and leaves the connection open."""

    async def reply(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD + framed(stream(*ENDED, done=False)))
        with suppress(OSError):
            await rest(caller)

    async with raw_backend(reply) as backend:
        engine = AdaptiveEngine(BackendClient(backend.url))
        began = time.monotonic()
        events = await replied(engine, upstream_request(has_tools=False))
        took = time.monotonic() - began
        await engine.close()
    assert events[-1] == ReplyFinished("stop")
    assert (UsageReported({"prompt_tokens": 3}) in events) is (rest is report_usage)
    assert took < END_SECONDS + 2 * LINGER + 1


async def test_text_after_a_finish_reason_is_still_read() -> None:
    async def reply(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD + framed(stream(*ENDED, done=False)))
        for _ in range(3):
            await asyncio.sleep(END_SECONDS / 2)
            await caller.send(framed(stream(chunk({"content": "!"}), done=False)))
        await caller.send(framed(stream()))

    async with raw_backend(reply) as backend:
        engine = AdaptiveEngine(BackendClient(backend.url))
        events = await replied(engine, upstream_request(has_tools=False))
        await engine.close()
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hi!!!"


async def test_an_engine_without_finish_reasons_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = stream(chunk({"content": "Hi"}))
    wire = FakeEngine(*[httpx.Response(200, content=body)] * 2)
    engine = wire.engine()
    for _ in range(2):
        assert (await replied(engine, upstream_request()))[-1] == ReplyFinished("stop")
    assert sum("without a finish reason" in message for message in caplog.messages) == 1


async def test_60_kb_of_comments_are_decoded_in_less_than_half_a_second() -> None:
    """Decoding blocks the event loop; an earlier decoder blocked it for up to 8 s."""
    decoder, worst = ChatReplyDecoder(), 0.0
    for _ in range(40):
        began = time.process_time()
        with suppress(ValueError):
            decoder.feed(b": x\n\n" * 12_000, [])
        worst = max(worst, time.process_time() - began)
    assert worst < 0.5


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        *((httpx.Response(status), Health.READY) for status in (200, 401, 404)),
        (httpx.Response(500), Health.UNREACHABLE),
        (httpx.Response(503), Health.LOADING),
        *((error("no"), Health.UNREACHABLE) for error in (httpx.ConnectError, httpx.ReadTimeout)),
    ],
)
def test_health_is_read_from_the_list_of_models(
    answer: httpx.Response | httpx.TransportError, health: Health
) -> None:
    routes = respx.MockRouter()
    routes.get(MODELS).mock(side_effect=[answer])
    assert asyncio.run(engine(routes).health()) is health


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        *((httpx.Response(200, text=body), BackendReplyInvalid) for body in ("", "[]", "{}")),
        (httpx.Response(200, json={"data": 5}), BackendReplyInvalid),
        (httpx.Response(401, json={"error": {"message": "Key?"}}), BackendRefused),
    ],
)
def test_an_invalid_list_of_models_is_an_error(
    answer: httpx.Response, error: type[BackendFailed]
) -> None:
    routes = respx.MockRouter()
    routes.get(MODELS).mock(return_value=answer)
    with pytest.raises(error):
        asyncio.run(engine(routes).models())


def failing_stream(message: str, code: int) -> httpx.Response:
    error: JsonObject = {"error": {"message": message, "code": code}}
    return httpx.Response(200, content=stream(chunk({"content": "Hel"}), error))


@pytest.mark.parametrize(
    ("answers", "has_tools", "requests"),
    [
        ([httpx.Response(400, json={"detail": "Bad schema"})] * 2, True, 1),
        ([httpx.Response(422, json={"detail": "Bad schema"})] * 2, True, 1),
        ([httpx.Response(400, json={"error": NO_PARSER})] * 3, True, 2),
        ([failing_stream(NO_PARSER, 400)], False, 1),
    ],
    ids=["no substitute", "no substitute for 422", "refused twice", "after the first event"],
)
def test_a_refusal_is_an_error_if_no_feature_can_be_dropped(
    answers: list[httpx.Response], requests: int, *, has_tools: bool
) -> None:
    wire = FakeEngine(*answers)
    with pytest.raises(BackendRefused):
        asyncio.run(replied(wire.engine(), upstream_request(has_tools=has_tools)))
    assert len(wire.bodies) == requests


def test_a_reply_with_a_grammar_failure_is_unreadable() -> None:
    """vLLM's grammar may fail within a reply; then the next attempt is sent without a grammar."""
    wire = FakeEngine(failing_stream("Failed to advance FSM for request 1", 500))
    events = asyncio.run(replied(wire.engine(), upstream_request(tool_choice=ToolUse.REQUIRED)))
    assert events[-1] == ReplyUnreadable("Failed to advance FSM for request 1")
    assert len(wire.bodies) == 1
