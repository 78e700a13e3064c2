"""The upstream request has the client's bytes, and headers from a short list."""

import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.conversation import json
from tests.fakes import sse
from tests.fakes.running_proxy import TOOLS, request, temper
from tests.fakes.sse import calls, says

# unusual member order, white space, escapes and numbers, as no serializer would write
ODD = {
    "seed": b"12345678901234567890123",
    "messages": b'[ {"content":"h\\u00e9 \\/ \xc3\xa9 \\ud83d\\ude00", "role" : "user",\n'
    b'"annotations":[],"extra":{"b":1,"a":[1.50,2E2, -0]}},\t{"role":"assistant","refusal":null,'
    b'"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"gone",'
    b'"arguments":"{ \\"a\\" : 1.0 }"}}],"audio":null},'
    b'{"role":"tool","name":"gone","tool_call_id":"c1","content":[{"type":"text","text":"ok"}]}]',
    "temperature": b"1.0e0",
    "top_k": b"40",
    "unknown": b'{"z" :1,  "y":[ ],"deep":{"1e2":1e2}}',
    "model": b'"m\\u002f1"',
    "logit_bias": b'{"15043":-1.0E+1}',
    "max_tokens": b"1e2",
}
ODD_TOOL = (
    b'{"function" : {"parameters":{"required":["a"],"properties":{"a":{"minimum":1e0,'
    b'"type":["integer","null"],"default":null}},"$schema":"x","type":"object"},'
    b'"name":"odd"},"strict": true, "type":"function"}'
)


def body_of(members: dict[str, bytes], *, stream: bool) -> bytes:
    """Write a body with a space before every comma."""
    more = {**members, "stream": b" true" if stream else b"  false", "temper": b'{"workflow":{}}'}
    inside = b" ,".join(b'"%s":%s' % (name.encode(), raw) for name, raw in more.items())
    return b"\n{" + inside + b"}\n"


async def test_unchanged_request_is_forwarded_byte_for_byte(*, stream: bool) -> None:
    async with temper(says("Hi.")) as proxy:
        answer = await proxy.send(body_of(ODD, stream=stream))
    assert answer.text == "Hi."
    raw = proxy.backend.upstream_requests[0].raw
    assert {name: raw[name] for name in ODD} == ODD
    assert [name for name in raw if name in ODD] == list(ODD)
    assert "temper" not in raw
    assert raw["stream"] == b"true"
    assert set(raw) - set(ODD) == {"stream", "stream_options", "return_progress"}


async def test_tools_are_forwarded_byte_for_byte_followed_by_respond(*, stream: bool) -> None:
    members = {**ODD, "tools": b"[ " + ODD_TOOL + b" ]"}
    async with temper(calls("odd", '{"a": 1}')) as proxy:
        headers = {"x-temper-text-policy": "respond"}
        answer = await proxy.send(body_of(members, stream=stream), headers)
    assert answer.called == [("odd", {"a": 1})]
    client_tool, respond = proxy.backend.upstream_requests[0].tools
    assert client_tool == ODD_TOOL
    assert b'"name":"respond"' in respond
    assert proxy.backend.upstream_requests[0].raw["messages"] == ODD["messages"]


async def test_a_text_response_is_equal_with_and_without_guardrails(*, stream: bool) -> None:
    members = {**ODD, "tools": b"[ " + ODD_TOOL + b" ]"}
    async with temper(*[says("It", " is", " noon.")] * 2) as proxy:
        guarded = await proxy.send(body_of(members, stream=stream))
        plain = await proxy.send(body_of(members, stream=stream), {"x-temper-guardrails": "off"})
    for upstream_request in proxy.backend.upstream_requests:
        assert upstream_request.raw["messages"] == members["messages"]
        assert upstream_request.raw["tools"] == members["tools"]
    assert len(proxy.backend.upstream_requests) == 2
    assert guarded.body == plain.body


async def test_a_valid_call_is_equal_with_and_without_guardrails(*, stream: bool) -> None:
    members = {**ODD, "tools": b"[ " + ODD_TOOL + b" ]"}
    async with temper(*[calls("odd", '{"a":', "1}")] * 2) as proxy:
        guarded = await proxy.send(body_of(members, stream=stream))
        plain = await proxy.send(body_of(members, stream=stream), {"x-temper-guardrails": "off"})
    assert {
        upstream_request.raw["tools"] for upstream_request in proxy.backend.upstream_requests
    } == {members["tools"]}
    assert (guarded.calls, guarded.reason) == (plain.calls, plain.reason)


async def test_stream_options_are_kept_and_usage_is_always_requested(*, stream: bool) -> None:
    body = request(stream_options={"include_usage": False, "chunk_size": 7})
    async with temper(says("Hi.")) as proxy:
        await proxy.ask({**body, "tools": None}, stream=stream)
    options = proxy.backend.upstream_requests[0].fields["stream_options"]
    assert options == {"include_usage": True, "chunk_size": 7}


async def test_every_attempt_offers_the_same_tools_and_keeps_the_same_fields(
    *, stream: bool
) -> None:
    members = {**ODD, "tools": json.dump(TOOLS)}
    scripts = (calls("odd", "{}"), calls("odd", "{}"), says("{}"))
    async with temper(*scripts) as proxy:
        await proxy.send(body_of(members, stream=stream))
    first, *others = (upstream_request.raw for upstream_request in proxy.backend.upstream_requests)
    assert len(others) == 2
    bounded = {"max_tokens", "max_completion_tokens"}  # the constrained attempt changes these
    kept = (set(ODD) - {"messages"} - bounded) | {"tools"}
    for raw in others:
        assert {name: raw[name] for name in kept} == {name: first[name] for name in kept}


async def test_request_id_is_echoed_and_forwarded(*, stream: bool) -> None:
    async with temper(says("Hi.")) as proxy:
        plain = request(tools=None)
        answer = await proxy.ask(plain, stream=stream, headers={"X-Request-Id": "my-id.1:2_3"})
    assert answer.headers["x-request-id"] == "my-id.1:2_3"
    assert proxy.backend.upstream_requests[0].headers["x-request-id"] == "my-id.1:2_3"


@pytest.mark.parametrize("odd", [None, "", "a b", 'a"b', "a" * 129, "é"])
async def test_missing_or_invalid_request_id_is_generated(odd: str | None) -> None:
    async with temper(says("Hi.")) as proxy:
        headers = {} if odd is None else {"x-request-id": odd}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        body = json.dump(request(tools=None))
        response = await proxy.client.post("/v1/chat/completions", content=body, headers=raw)
    made = response.headers["x-request-id"]
    assert made.startswith("req_")
    assert made != odd
    assert proxy.backend.upstream_requests[0].headers["x-request-id"] == made


async def test_only_allowed_headers_are_forwarded(*, stream: bool) -> None:
    headers = {
        "cookie": "session=1",
        "forwarded": "for=me",
        "openai-organization": "org",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "user-agent": "client/1",
        "x-api-key": "secret",
        "x-conversation-id": "c",
        "x-forwarded-for": "1.2.3.4",
        "x-temper-text-policy": "accept",
    }
    async with temper(says("Hi.")) as proxy:
        await proxy.ask(request(), stream=stream, headers=headers)
    upstream = proxy.backend.upstream_requests[0].headers
    assert upstream["traceparent"] == headers["traceparent"]
    assert upstream["user-agent"] == "temper"
    assert set(upstream) == {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "traceparent",
        "user-agent",
        "x-request-id",
        "x-temper-prefix",
    }


FORWARDING = ServerOptions(forwards_authorization=True)
LOCKED = ServerOptions(access=Access({"us": "proxy-key"}))


@pytest.mark.parametrize(
    ("serving", "own_key", "expected"),
    [
        (ServerOptions(), "", None),
        (FORWARDING, "", "Bearer the-clients"),
        (FORWARDING, "for-the-backend", "Bearer for-the-backend"),
        (LOCKED, "", None),
        (LOCKED, "for-the-backend", "Bearer for-the-backend"),
    ],
    ids=["kept", "forwarded", "replaced", "locked", "locked and replaced"],
)
async def test_the_backend_receives_its_configured_key_or_else_the_key_of_the_client(
    *, stream: bool, serving: ServerOptions, own_key: str, expected: str | None
) -> None:
    key = serving.access.keys.get("us", "the-clients")
    async with temper(says("Hi."), serving=serving, api_key=own_key) as proxy:
        headers = {"authorization": f"Bearer {key}"}
        answer = await proxy.ask(request(tools=None), stream=stream, headers=headers)
    assert answer.status == 200
    assert proxy.backend.upstream_requests[0].headers.get("authorization") == expected


async def test_upstream_requests_always_stream_with_progress(*, stream: bool) -> None:
    async with temper(sse.START + sse.text("Hi.") + sse.end()) as proxy:
        await proxy.ask(request(tools=None), stream=stream)
    fields = proxy.backend.upstream_requests[0].fields
    assert fields["stream"] is True
    assert fields["return_progress"] is True
    assert fields["stream_options"] == {"include_usage": True}
