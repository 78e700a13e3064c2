import asyncio
from contextlib import aclosing

import httpx
import pytest
import respx

from proxy.backends.client import Passage
from proxy.backends.relaying import relayed
from proxy.backends.transport import Connection
from proxy.errors import BackendRefused, ContextOverflow

PASSAGE = Passage(
    "/v1/completions", "prompt", "m", {"model": b'"m"', "prompt": b'"a  b"', "n": b"1.0"}
)
HEADERS = {"x-request-id": "req_1", "x-conversation-id": "7"}


def relay(response: httpx.Response) -> tuple[bytes, respx.Route]:
    routes = respx.MockRouter()
    route = routes.post("http://host/v1/completions").mock(return_value=response)
    wire = httpx.MockTransport(routes.async_handler)

    async def collect() -> bytes:
        connection = Connection("http://host", transport=wire)
        async with aclosing(relayed(connection, PASSAGE, HEADERS)) as pieces:
            return b"".join([piece async for piece in pieces])

    return asyncio.run(collect()), route


def test_a_request_and_its_answer_are_passed_on_as_they_were_written() -> None:
    body, route = relay(httpx.Response(200, content=b'{ "choices" : [] }'))
    assert body == b'{ "choices" : [] }'
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
