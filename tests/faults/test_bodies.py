"""F31 to F33, F35, F39: a bad body is a 400, never a 5xx, and causes no upstream request."""

import gzip
import logging
import random
from collections.abc import AsyncGenerator, Iterator

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.api.request_reader import BodyLimits
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.histories import make_tool
from tests.fakes.raw_backend import raw_backend
from tests.fakes.running_proxy import CHAT, request, temper
from tests.fakes.sse import says
from tests.faults.proxies import TEMPER, before, is_refusal
from tests.faults.requests import TIME, WEATHER, asks, chats, user

SIZE = pytest.mark.fault("F31")
ENCODING = pytest.mark.fault("F32")
SHAPE = pytest.mark.fault("F33")
ALPHABET = pytest.mark.fault("F35")
ADDRESS = pytest.mark.fault("F39")

ENOUGH = 6  # copies of a reply: more than Temper makes attempts
HUGE = 34_000_000  # characters: more than the default limit of 32 MB
MESSAGES = b'"messages":[{"role":"user","content":"Hi"}]'

BROKEN = {
    "nothing": b"",
    "blank": b" \r\n\t",
    "cut off": b'{"messages":[{"role":"user"',
    "array": b"[1]",
    "string": b'"messages"',
    "null": b"null",
    "trailing": b"{" + MESSAGES + b"}}",
    "two documents": b"{" + MESSAGES + b"} {}",
    "comment": b"{" + MESSAGES + b"/* hi */}",
    "single quotes": b"{'messages': []}",
    "NaN": b"{" + MESSAGES + b',"x":NaN}',
    "infinity": b"{" + MESSAGES + b',"x":-Infinity}',
    "a number with a leading zero": b"{" + MESSAGES + b',"x":01}',
    "a huge integer": b"{" + MESSAGES + b',"x":' + b"9" * 5000 + b"}",
    "a key twice": b"{" + MESSAGES + b',"a":1,"a":2}',
    "a key twice, once escaped": b"{" + MESSAGES + b',"\\u006dessages":[]}',
    "a key twice, far inside": b"{" + MESSAGES + b',"x":[{"y":{"a":1,"a":1}}]}',
    "a lone surrogate": b"{" + MESSAGES + b',"x":"\\ud800"}',
    "a lone low surrogate": b"{" + MESSAGES + b',"x":"\\udc00"}',
    "an encoded surrogate": b"{" + MESSAGES + b',"x":"\xed\xa0\x80"}',
    "bad UTF-8": b"{" + MESSAGES + b',"x":"\xff"}',
    "overlong UTF-8": b"{" + MESSAGES + b',"x":"\xc0\xaf"}',
    "a control character": b"{" + MESSAGES + b',"x":"\x00"}',
    "a byte order mark": b"\xef\xbb\xbf{" + MESSAGES + b"}",
    "UTF-16": (b"{" + MESSAGES + b"}").decode().encode("utf-16"),
    "UTF-32": (b"{" + MESSAGES + b"}").decode().encode("utf-32"),
    "deep arrays": b"{" + MESSAGES + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b"{" + MESSAGES + b',"x":' + b'{"a":' * 100_000,
    "gzip": gzip.compress(b"{" + MESSAGES + b"}"),
}
HARMLESS = {"a byte order mark", "UTF-16", "UTF-32"}


@ENCODING
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
async def test_body_that_is_not_one_json_object_is_rejected_with_its_position(body: bytes) -> None:
    async with temper() as proxy:
        answer = await proxy.send(body)
    assert answer.status == 400
    assert answer.error is not None
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == "body"
    assert answer.error["code"] is None
    assert proxy.backend.upstream_requests == []


USER: JsonObject = {"role": "user", "content": "Hi"}
CALL: JsonObject = {"id": "1", "function": {"name": "a", "arguments": "{}"}}


def function(**members: JsonValue) -> JsonValue:
    return [{"type": "function", "function": {"name": "a", **members}}]


def part(**members: JsonValue) -> JsonValue:
    return [{"role": "user", "content": [{"type": "image_url", **members}]}]


WRONG: list[tuple[JsonObject, str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {"0": USER}}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [USER, None]}, "messages.1"),
    ({"messages": [{"content": "Hi"}]}, "messages.0.role"),
    ({"messages": [{"role": None}]}, "messages.0.role"),
    ({"messages": [{"role": ["user"]}]}, "messages.0.role"),
    ({"messages": [{**USER, "content": 5}]}, "messages.0.content"),
    ({"messages": [{**USER, "content": {"text": "Hi"}}]}, "messages.0.content"),
    ({"messages": [{**USER, "content": ["Hi"]}]}, "messages.0.content.0"),
    ({"messages": [{**USER, "content": [{"text": "Hi"}]}]}, "messages.0.content.0.type"),
    ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "messages.0.content.0"),
    ({"messages": [{**USER, "name": 5}]}, "messages.0.name"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages.0.tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, "messages.0.tool_calls.0"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "function": None}]}]},
        "messages.0.tool_calls.0.function",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "function": {}}]}]},
        "messages.0.tool_calls.0.function.name",
    ),
    ({"messages": [{"role": "tool", "tool_call_id": 5}]}, "messages.0.tool_call_id"),
    ({"messages": part(image_url={"url": "http://169.254.169.254/"})}, "messages.0.content.0"),
    ({"messages": part(image_url={"url": "file:///etc/passwd"})}, "messages.0.content.0"),
    ({"messages": part(image_url="https://example.com/a.png")}, "messages.0.content.0"),
    ({"model": 5}, "model"),
    ({"tools": {}}, "tools"),
    ({"tools": "get_weather"}, "tools"),
    ({"tools": [None]}, "tools.0"),
    ({"tools": [{}]}, "tools.0.type"),
    ({"tools": [{"type": "function"}]}, "tools.0.function"),
    ({"tools": function(name="")}, "tools.0.function.name"),
    ({"tools": function(name="a\nb")}, "tools.0.function.name"),
    ({"tools": function(name=5)}, "tools.0.function.name"),
    ({"tools": function(parameters="{}")}, "tools.0.function.parameters"),
    ({"tools": function(parameters=[])}, "tools.0.function.parameters"),
    ({"tools": function(strict="yes")}, "tools.0.function.strict"),
    ({"tools": [WEATHER, TIME, WEATHER]}, "tools.2.function.name"),
    ({"tool_choice": "get_weather"}, "tool_choice"),
    ({"tool_choice": 5}, "tool_choice"),
    ({"tool_choice": {}}, "tool_choice.type"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "gone"}}},
        "tool_choice.function.name",
    ),
    ({"tools": None, "tool_choice": "required"}, "tool_choice"),
    ({"functions": [{"name": "a"}]}, "functions"),
    ({"parallel_tool_calls": "false"}, "parallel_tool_calls"),
    ({"stream": "true"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": True}, "stream_options"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"max_completion_tokens": []}, "max_completion_tokens"),
    ({"temperature": "0"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": {}}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 2}, "n"),
    ({"seed": 1.5}, "seed"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", None]}, "stop.1"),
    ({"logprobs": 1}, "logprobs"),
    ({"logit_bias": []}, "logit_bias"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema", "json_schema": 5}}, "response_format.json_schema"),
    ({"temper": []}, "temper"),
]


@ENCODING
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_body_is_rejected_and_not_forwarded(*, subject: str, name: str) -> None:
    if subject != TEMPER and name in HARMLESS:
        pytest.skip("every other reader either understands this body in the same way or refuses it")
    body = BROKEN[name]
    async with before(subject, says("Hi.")) as proxy:
        answer = await proxy.send(body)
    assert is_refusal(subject, answer.status)
    assert proxy.backend.upstream_requests == []


@SHAPE
@pytest.mark.parametrize(
    ("change", "param"), WRONG, ids=[json.dump_text(wrong[0]) for wrong in WRONG]
)
async def test_the_error_for_an_invalid_body_names_the_first_invalid_member(
    *, change: JsonObject, param: str, stream: bool
) -> None:
    body = request(stream=stream)
    async with temper() as proxy:
        answer = await proxy.send(json.dump({**body, **change}))
    assert answer.status == 400
    assert answer.error is not None
    assert str(answer.error["param"]).startswith(param)
    assert str(answer.error["message"]).startswith(str(answer.error["param"]))
    assert proxy.backend.upstream_requests == []


@SHAPE
@pytest.mark.parametrize(
    "change", [wrong[0] for wrong in WRONG], ids=[json.dump_text(wrong[0]) for wrong in WRONG]
)
async def test_request_members_of_wrong_types_never_cause_a_5xx(
    *, subject: str, change: JsonObject, stream: bool
) -> None:
    async with before(subject, *[says("Hi.")] * ENOUGH) as proxy:
        answer = await proxy.send(json.dump({**asks(stream=stream), **change}))
    assert answer.status < 500


@ADDRESS
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/a.png",
        "https://example.com/a.png",
        "HTTP://example.com/a.png",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/",
        "file:///etc/passwd",
        "ftp://example.com/a.png",
        "//example.com/a.png",
        "/etc/passwd",
        " data:image/png;base64,AAAA",
    ],
)
@pytest.mark.parametrize("kind", ["image_url", "input_image"])
@pytest.mark.parametrize("is_bare", [True, False], ids=["bare", "wrapped"])
async def test_an_image_with_an_http_url_is_rejected_and_not_forwarded(
    *, url: str, kind: str, is_bare: bool
) -> None:
    image: JsonObject = {"type": kind, "image_url": url if is_bare else {"url": url}}
    async with temper() as proxy:
        answer = await proxy.ask(chats(messages=[{"role": "user", "content": [image]}]))
    assert answer.status == 400
    assert proxy.backend.upstream_requests == []


@ADDRESS
@pytest.mark.parametrize("kind", ["image_url", "input_image"])
@pytest.mark.parametrize("is_bare", [True, False], ids=["bare", "wrapped"])
async def test_image_urls_are_never_fetched(
    *, subject: str, kind: str, is_bare: bool, stream: bool
) -> None:
    async with raw_backend() as elsewhere, before(subject, says("A picture.")) as proxy:
        url = f"{elsewhere.url}/a.png"
        image: JsonObject = {"type": kind, "image_url": url if is_bare else {"url": url}}
        body = chats(messages=[{"role": "user", "content": [image]}])
        answer = await proxy.ask(body, stream=stream)
    assert elsewhere.connections == 0
    assert answer.status < 500


@ADDRESS
async def test_inline_image_is_forwarded_unchanged(*, subject: str, stream: bool) -> None:
    image: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    message: JsonObject = {"role": "user", "content": [image]}
    async with before(subject, says("A picture.")) as proxy:
        answer = await proxy.ask(chats(messages=[message]), stream=stream)
        (upstream_request,) = proxy.backend.upstream_requests
    assert answer.text == "A picture."
    assert upstream_request.fields["messages"] == [message]


@ALPHABET
@pytest.mark.parametrize(
    "name", ["a\nb", "a\r\nx-evil: 1", "a\x00", "a\x1b[31m", "\u202ea", "a\u2028", ""]
)
async def test_invalid_tool_name_is_rejected(name: str) -> None:
    async with temper() as proxy:
        answer = await proxy.ask(asks(tools=[make_tool(name), TIME]))
    assert answer.status == 400
    assert proxy.backend.upstream_requests == []


@ALPHABET
@pytest.mark.parametrize("name", ["a\r\nx-evil: 1", "a\n\ndata: evil\n\n", "\u2028", "\x85"])
async def test_model_name_cannot_inject_into_headers_or_paths(
    *, subject: str, name: str, stream: bool
) -> None:
    async with before(subject, says("Hi.")) as proxy:
        answer = await proxy.ask(chats(model=name), stream=stream)
    assert "x-evil" not in answer.headers
    assert answer.status in (200, 400, 404)
    assert answer.status != 200 or answer.text == "Hi."


@ALPHABET
@pytest.mark.parametrize("sent", [b"a\tb", b"a b", b"\xc3\xa9", b"a;b", b"<x>", b"x" * 200])
async def test_invalid_request_id_is_replaced(sent: bytes) -> None:
    async with temper(says("Hi.")) as proxy:
        response = await proxy.client.post(
            CHAT, content=json.dump(chats()), headers=[(b"x-request-id", sent)]
        )
        (upstream_request,) = proxy.backend.upstream_requests
    assert response.headers["x-request-id"].startswith("req_")
    assert upstream_request.headers["x-request-id"] == response.headers["x-request-id"]


@SIZE
@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k"}])
async def test_a_compressed_body_is_decompressed_before_it_is_forwarded(
    headers: dict[str, str],
) -> None:
    async with temper(says("Hi.")) as proxy:
        body = gzip.compress(json.dump(request()))
        answer = await proxy.send(body, {"content-encoding": "gzip", **headers})
        (upstream_request,) = proxy.backend.upstream_requests
    assert answer.status == 200
    assert "content-encoding" not in upstream_request.headers


@SIZE
async def test_a_damaged_compressed_body_is_refused() -> None:
    async with temper() as proxy:
        body = gzip.compress(json.dump(request()))[:-8]
        answer = await proxy.send(body, {"content-encoding": "gzip"})
    assert answer.status == 400
    assert answer.error is not None
    assert answer.error["param"] == "content-encoding"


@SIZE
async def test_a_body_whose_content_length_is_too_large_is_rejected_before_it_is_read() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += b"content-length: 1001\r\n\r\n"
    async with (
        temper(serving=ServerOptions(body=BodyLimits(1000))) as proxy,
        proxy.server.connected() as (reader, writer),
    ):
        writer.write(head)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")


LARGE = json.dump(chats(messages=[user("x" * HUGE)]))


@SIZE
async def test_oversized_body_is_rejected(subject: str) -> None:
    """A peer may close the connection with unread data; then the client receives no status."""
    async with before(subject, says("Hi.")) as proxy:
        try:
            status = (await proxy.send(LARGE)).status
        except httpx.NetworkError:
            status = 413 if subject != TEMPER else 0
    assert is_refusal(subject, status, 413)
    assert proxy.backend.upstream_requests == []


@SIZE
async def test_compressed_body_is_not_inflated_beyond_the_limit(subject: str) -> None:
    async with before(subject, says("Hi.")) as proxy:
        response = await proxy.client.post(
            CHAT, content=gzip.compress(LARGE), headers={"content-encoding": "gzip"}
        )
    assert is_refusal(subject, response.status_code, 413)
    assert proxy.backend.upstream_requests == []


@SIZE
@pytest.mark.parametrize(("size", "status"), [(1000, 400), (1001, 413), (100_000, 413)])
async def test_a_chunked_body_without_content_length_is_limited(size: int, status: int) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for start in range(0, size, 300):
            yield b" " * min(300, size - start)

    async with temper(says("Hi."), serving=ServerOptions(body=BodyLimits(1000))) as proxy:
        response = await proxy.client.post(CHAT, content=pieces())
        again = await proxy.ask(request(tools=None))
    assert response.status_code == status
    assert again.text == "Hi."


@SHAPE
async def test_rejected_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    async with temper() as proxy:
        await proxy.send(b"{", {"x-request-id": "broken-1"})
    (record,) = caplog.records
    logged = record.__dict__["request"]
    assert (logged.id, logged.status, logged.outcome) == ("broken-1", 400, None)


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Yield a good request with other values or other bytes in random places."""
    chance = random.Random(seed)
    whole = json.dump(asks(stream=True, stop=["x"], stream_options={"include_usage": True}))
    values = [b"null", b"true", b"-1", b"1e999", b'""', b"[]", b"{}", b'"\\u0000"', b"[[[[]]]]"]
    for _ in range(count):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body))
            if chance.random() < 0.5:
                body[at] = chance.randrange(256)
            else:
                end = body.find(b",", at)
                start = body.rfind(b":", 0, end) + 1
                body[start:end] = chance.choice(values)
        yield bytes(body)


@SHAPE
async def test_randomly_changed_bodies_never_cause_a_5xx(subject: str) -> None:
    async with before(subject, *[says("Hi.")] * (200 * ENOUGH)) as proxy:
        for body in mutations(200, seed=20260101):
            assert (await proxy.send(body)).status < 500, body
    assert proxy.backend.upstream_requests
