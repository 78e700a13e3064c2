import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import httpx
import pytest
import respx

from proxy import bounds
from proxy.backends.capabilities import Lacks
from proxy.backends.client import PassthroughRequest
from proxy.backends.http_backend import HttpBackend, OutgoingRequest, PieceDecoder
from proxy.backends.openai_compatible import OpenAICompatible
from proxy.backends.transport import BackendClient
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.errors import (
    BackendRefused,
    BackendReplyInvalid,
    BackendUnavailable,
    ContextOverflow,
    TemperError,
)
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.upstream_requests import upstream_request

END = ReplyFinished("stop")


LONG = "x" * 20_000


class LetterDecoder:
    """A format of single letters: each letter is an event with this letter as its text.

    `.` is the end, `!` an error, `L` a long text, `_` a letter without an event; digits are
    invalid.
    """

    def feed(self, data: bytes, /) -> Iterator[str]:
        yield from data.decode()

    def finish(self) -> Iterator[str]:
        yield from ()


class LetterReader:
    def __init__(self) -> None:
        self._is_over = False

    def feed(self, piece: str, /) -> list[ReplyPart]:
        if piece.isdigit():
            raise ValueError(piece)
        if piece == "!":
            return [StreamedError({"message": "the secret-key is wrong", "code": 403})]
        if piece == "_":
            return []
        if piece == "L":
            return [TextDelta(LONG)]
        self._is_over = self._is_over or piece == "."
        return [END if piece == "." else TextDelta(piece)]

    def finish(self) -> list[ReplyPart]:
        if not self._is_over:
            raise ValueError("no end")
        return []


class LetterEngine(HttpBackend):
    async def prepare(self, upstream_request: UpstreamRequest, lacks: Lacks) -> OutgoingRequest:
        return OutgoingRequest("/", b"", upstream_request)

    def new_decoder(self) -> PieceDecoder[str]:
        return PieceDecoder(LetterDecoder(), LetterReader())


class Body(httpx.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def run_reply(*chunks: bytes) -> tuple[list[list[ReplyEvent]], TemperError | None]:
    """Return the batches of a reply that arrives in these chunks, and its error, if any."""

    async def collect() -> tuple[list[list[ReplyEvent]], TemperError | None]:
        wire = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body(*chunks)))
        connection = BackendClient("http://host", "secret-key", pool=MockedPool(wire))
        batches: list[list[ReplyEvent]] = []
        try:
            async with aclosing(LetterEngine(connection).stream(upstream_request(), {})) as coming:
                async for batch in coming:
                    batches.append([*batch])  # noqa: PERF401 - an error must not lose earlier batches
        except TemperError as error:
            return batches, error
        return batches, None

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        (bounds.DOCUMENT_BYTES - 2, "sent JSON that is not an object"),
        (bounds.DOCUMENT_BYTES - 1, f"sent more than {bounds.DOCUMENT_BYTES} bytes"),
    ],
)
def test_the_error_for_an_invalid_document_says_whether_it_was_too_long(
    size: int, problem: str
) -> None:
    document = b'"%s"' % (b"x" * size)
    wire = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body(document)))

    async def fetch() -> None:
        await LetterEngine(BackendClient("http://host", pool=MockedPool(wire))).fetch("/props")

    with pytest.raises(BackendReplyInvalid, match=problem):
        asyncio.run(fetch())


def test_the_events_of_a_chunk_are_one_batch_and_the_end_is_another() -> None:
    assert run_reply(b"ab", b"c", b"d.", b"e") == (
        [[TextDelta("a"), TextDelta("b")], [TextDelta("c")], [TextDelta("d")], [END]],
        None,
    )


def test_a_reply_without_text_is_one_batch_with_the_end() -> None:
    assert run_reply(b".") == ([[END]], None)


def test_an_error_within_a_reply_is_redacted_and_raised_after_the_text() -> None:
    batches, error = run_reply(b"ab!c")
    assert batches == [[TextDelta("a"), TextDelta("b")]]
    assert isinstance(error, BackendRefused)
    assert (error.status, error.message) == (403, "the [redacted] is wrong")


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([b"a"], BackendUnavailable),
        ([], BackendReplyInvalid),
        ([b"1"], BackendReplyInvalid),
        ([b"a", b"b1"], BackendReplyInvalid),
    ],
)
def test_an_interrupted_reply_and_an_invalid_reply_are_different_errors(
    chunks: list[bytes], kind: type[TemperError]
) -> None:
    assert isinstance(run_reply(*chunks)[1], kind)


PASSAGE = PassthroughRequest(
    "/v1/completions", "prompt", "m", {"model": b'"m"', "prompt": b'"a  b"', "n": b"1.0"}
)
HEADERS = {"x-request-id": "req_1", "x-conversation-id": "7"}
KEY = "canary-0123456789"


async def test_an_overflow_error_in_response_to_fetch_is_raised_as_backend_refused() -> None:
    error = {"error": {"message": "too long", "type": "exceed_context_size_error"}}
    wire = httpx.MockTransport(lambda _: httpx.Response(400, json=error))
    engine = LetterEngine(BackendClient("http://host", pool=MockedPool(wire)))
    with pytest.raises(BackendRefused, match="too long"):
        await engine.fetch("/props")


def relay(response: httpx.Response) -> tuple[list[bytes], respx.Route]:
    routes = respx.MockRouter()
    route = routes.post("http://host/v1/completions").mock(return_value=response)
    wire = httpx.MockTransport(routes.async_handler)

    async def collect() -> list[bytes]:
        connection = BackendClient("http://host", KEY, pool=MockedPool(wire))
        async with aclosing(OpenAICompatible(connection).relay(PASSAGE, HEADERS)) as pieces:
            return [piece async for piece in pieces]

    return asyncio.run(collect()), route


def relay_stream(*pieces: bytes) -> list[bytes]:
    async def arriving() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return relay(httpx.Response(200, content=arriving()))[0]


def test_a_passthrough_request_and_its_response_are_forwarded_unchanged() -> None:
    body, route = relay(httpx.Response(200, content=b'{ "choices" : [] }'))
    assert body == [b'{ "choices" : [] }']
    sent = route.calls.last.request
    assert sent.content == b'{"model":"m","prompt":"a  b","n":1.0}'
    assert sent.headers["x-request-id"] == "req_1"
    assert "x-conversation-id" not in sent.headers


def test_a_refused_passthrough_request_is_mapped_like_a_refused_chat() -> None:
    refusal = httpx.Response(501, json={"error": {"message": "no", "type": "not_supported_error"}})
    with pytest.raises(BackendRefused) as raised:
        relay(refusal)
    assert (raised.value.status, raised.value.message) == (501, "no")


def test_an_overflow_of_a_forwarded_request_names_the_field_prompt() -> None:
    error = {"message": "too long", "type": "exceed_context_size_error", "n_ctx": 8}
    with pytest.raises(ContextOverflow) as raised:
        relay(httpx.Response(400, json={"error": error}))
    assert (raised.value.param, raised.value.window) == ("prompt", 8)


def test_an_error_page_that_is_not_json_is_a_refusal_with_its_text() -> None:
    with pytest.raises(BackendRefused, match="404 page not found") as raised:
        relay(httpx.Response(404, text="404 page not found\n"))
    assert raised.value.status == 404


def test_a_forwarded_stream_is_sent_on_in_complete_lines() -> None:
    pieces = relay_stream(b"data: a", b"b", b"c\n\nd", b"", b"e\nf")
    assert pieces == [b"data: abc\n\n", b"de\n", b"f"]


@pytest.mark.parametrize("member", ["error", "message", "detail"])
def test_a_forwarded_stream_error_hides_the_key_at_every_split(member: str) -> None:
    event = f'data: {{"{member}": "what is {KEY}?"}}\n\n'.encode()
    for cut in range(len(event)):
        passed = b"".join(relay_stream(b"data: {}\n\n" + event[:cut], event[cut:]))
        assert passed == b"data: {}\n\n" + event.replace(KEY.encode(), b"[redacted]")


def test_model_text_that_contains_the_key_is_not_redacted() -> None:
    event = f'data: {{"choices": [{{"text": "\\"error\\": {KEY}"}}]}}\n\n'.encode()
    assert relay_stream(event) == [event]


def test_long_texts_and_many_events_are_split_into_several_batches() -> None:
    assert run_reply(b"_", b"abL.") == (
        [
            [TextDelta("a")],
            [TextDelta("b")],
            [TextDelta(LONG[:16_384])],
            [TextDelta(LONG[16_384:])],
            [END],
        ],
        None,
    )
    assert run_reply(b"_", b"a" * 300 + b".") == ([[TextDelta("a")]] * 300 + [[END]], None)
    assert run_reply(b"_", b"ab.") == ([[TextDelta("a"), TextDelta("b")], [END]], None)
