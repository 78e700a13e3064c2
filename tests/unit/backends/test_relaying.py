import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest
import respx

from proxy.backends.client import PassthroughRequest
from proxy.backends.relaying import relayed
from proxy.backends.transport import BackendClient
from proxy.errors import BackendRefused, ContextOverflow

PASSAGE = PassthroughRequest(
    "/v1/completions", "prompt", "m", {"model": b'"m"', "prompt": b'"a  b"', "n": b"1.0"}
)
HEADERS = {"x-request-id": "req_1", "x-conversation-id": "7"}
KEY = "canary-0123456789"


def relay(response: httpx.Response) -> tuple[list[bytes], respx.Route]:
    routes = respx.MockRouter()
    route = routes.post("http://host/v1/completions").mock(return_value=response)
    wire = httpx.MockTransport(routes.async_handler)

    async def collect() -> list[bytes]:
        connection = BackendClient("http://host", KEY, transport=wire)
        async with aclosing(relayed(connection, PASSAGE, HEADERS)) as pieces:
            return [piece async for piece in pieces]

    return asyncio.run(collect()), route


def streamed(*pieces: bytes) -> list[bytes]:
    async def arriving() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return relay(httpx.Response(200, content=arriving()))[0]


def test_a_request_and_its_answer_are_passed_on_as_they_were_written() -> None:
    body, route = relay(httpx.Response(200, content=b'{ "choices" : [] }'))
    assert body == [b'{ "choices" : [] }']
    sent = route.calls.last.request
    assert sent.content == b'{"model":"m","prompt":"a  b","n":1.0}'
    assert sent.headers["x-request-id"] == "req_1"
    assert "x-conversation-id" not in sent.headers


def test_a_refusal_is_read_like_that_of_a_chat() -> None:
    refusal = httpx.Response(501, json={"error": {"message": "no", "type": "not_supported_error"}})
    with pytest.raises(BackendRefused) as raised:
        relay(refusal)
    assert (raised.value.status, raised.value.message) == (501, "no")


def test_an_overflow_blames_the_field_that_holds_the_text() -> None:
    error = {"message": "too long", "type": "exceed_context_size_error", "n_ctx": 8}
    with pytest.raises(ContextOverflow) as raised:
        relay(httpx.Response(400, json={"error": error}))
    assert (raised.value.param, raised.value.window) == ("prompt", 8)


def test_a_page_of_no_engine_is_a_refusal_with_its_words() -> None:
    with pytest.raises(BackendRefused, match="404 page not found") as raised:
        relay(httpx.Response(404, text="404 page not found\n"))
    assert raised.value.status == 404


def test_lines_are_held_until_they_are_whole() -> None:
    pieces = streamed(b"data: a", b"b", b"c\n\nd", b"", b"e\nf")
    assert pieces == [b"data: abc\n\n", b"de\n", b"f"]


@pytest.mark.parametrize("member", ["error", "message", "detail"])
def test_a_streamed_error_is_passed_on_without_our_key_however_it_is_cut(member: str) -> None:
    event = f'data: {{"{member}": "what is {KEY}?"}}\n\n'.encode()
    for cut in range(len(event)):
        said = b"".join(streamed(b"data: {}\n\n" + event[:cut], event[cut:]))
        assert said == b"data: {}\n\n" + event.replace(KEY.encode(), b"[redacted]")


def test_what_a_model_wrote_is_passed_on_as_it_came() -> None:
    event = f'data: {{"choices": [{{"text": "\\"error\\": {KEY}"}}]}}\n\n'.encode()
    assert streamed(event) == [event]
