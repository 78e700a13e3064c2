"""F08, F09, F11, F12, F14 and F16: backend responses that are unusual, huge, or errors."""

import asyncio

import psutil
import pytest

from benchmarks.faults.toxics import chunked, repeats, sends, whole
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes import sse
from tests.fakes.running_proxy import temper
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import says
from tests.faults.proxies import PLAIN, TEMPER, WITH_TOOLS, Wire, before, is_bad_gateway, poisoned
from tests.faults.wires import COMPLETION, REPLIES, ended, line

MEGABYTE = 1024 * 1024
STREAMS = "text/event-stream"


NO_REPLIES = (
    pytest.param(b"", STREAMS, id="empty"),
    pytest.param(b"", "application/json", id="empty json"),
    pytest.param(b"{", "application/json", id="half an object"),
    pytest.param(b"[]", "application/json", id="a list"),
    pytest.param(b"null", "application/json", id="null"),
    pytest.param(b"{}", "application/json", id="no choices"),
    pytest.param(b'{"choices": []}', "application/json", id="empty choices"),
    pytest.param(b'{"choices": 5}', "application/json", id="choices of another type"),
    pytest.param(b'{"choices": [null]}', "application/json", id="null for a choice"),
    pytest.param(b"<html>502 Bad Gateway</html>", "text/html", id="a page"),
    pytest.param(b"data: {]\n\n", STREAMS, id="invalid JSON in an event"),
    pytest.param(b"data: \xff\xfe\n\n", STREAMS, id="invalid UTF-8"),
)


@pytest.mark.fault("F08")
@pytest.mark.parametrize(("body", "kind"), NO_REPLIES)
async def test_a_body_that_is_no_reply_is_a_502(
    *, subject: str, body: bytes, kind: str, stream: bool
) -> None:
    no_reply = Script((body,), headers={"content-type": kind})
    async with before(subject, *[no_reply] * 9) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert is_bad_gateway(subject, answer)


@pytest.mark.fault("F08")
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]\n", b"null\n", b"{}\n", b'{"message": 5}\n', b"<html>", b"\xff\xfe\n",
        b'{"unread": ' + b"[" * 100_000 + b"]" * 100_000 + b', "choices": []}\n',
    ],
)  # fmt: skip
async def test_a_body_that_is_no_reply_has_the_code_backend_protocol_error(
    *, wire: Wire, body: bytes, stream: bool
) -> None:
    async with poisoned(sends(whole(body)), wire=wire) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.status == 502
    assert answer.error is not None
    assert answer.error["code"] == "backend_protocol_error"


@pytest.mark.fault("F08")
@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "text/html"])
async def test_valid_body_with_a_wrong_content_type_is_read(
    *, subject: str, kind: str, stream: bool
) -> None:
    reply = sends(whole(COMPLETION, kind=kind))
    async with poisoned(reply, name=subject) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")


# variations that the specification allows, or that a server sends
_FIRST, _SECOND, _FINISH = (
    event.removeprefix(b"data: ").removesuffix(b"\n\n")
    for event in (
        sse.delta({"role": "assistant", "content": "Grüße aus "}),
        sse.delta({"content": "Łódź, 東京 \U0001f600."}),
        sse.part([{"finish_reason": "stop", "index": 0, "delta": {}}]),
    )
)
_HALVES = _SECOND.replace(b'"index"', b'\ndata: "index"', 1)
ODD_STREAM = b"".join(
    [
        b"\xef\xbb\xbf: a comment\r\n\r\nretry: 5\nid: 7\n\n",
        b"event: message\r\ndata:" + _FIRST + b"\r\n\r\n",
        b":\n\ndata: " + _HALVES + b"\r\rdata: " + _FINISH,
        b"\n\ndata: [DONE]",
    ]
)


@pytest.mark.fault("F09")
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64, None])
async def test_unusual_streams_are_read_in_any_chunking(*, size: int | None, stream: bool) -> None:
    async with poisoned(sends(whole(ODD_STREAM, kind=STREAMS), size=size)) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("Grüße aus Łódź, 東京 \U0001f600.", "stop")


@pytest.mark.fault("F09")
@pytest.mark.parametrize("size", [1, 7, None])
async def test_a_reply_is_the_same_in_chunks_of_any_size(
    *, wire: Wire, size: int | None, stream: bool
) -> None:
    reply = REPLIES[wire].reply
    parts = (
        [reply] if size is None else [reply[at : at + size] for at in range(0, len(reply), size)]
    )
    async with poisoned(sends(chunked(*parts), size=size), wire=wire) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")


@pytest.mark.fault("F09")
@pytest.mark.parametrize("head", [b"", b"event: error\n"])
async def test_an_error_event_of_the_backend_is_returned_as_an_error(
    *, head: bytes, stream: bool
) -> None:
    begun = sse.START + sse.text("It is")
    failed = head + sse.event({"error": {"message": "out of luck", "code": 500}})
    async with poisoned(sends(chunked(begun, failed))) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.error is not None
    assert "out of luck" in str(answer.error["message"])
    assert not answer.is_done


@pytest.mark.fault("F09")
async def test_missing_done_mark_after_the_finish_reason_is_tolerated(*, stream: bool) -> None:
    async with before("temper", says("Hi.").removesuffix(sse.DONE)) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.is_done) == ("Hi.", True)


@pytest.mark.fault("F09")
async def test_missing_finish_reason_before_the_done_mark_is_tolerated(*, stream: bool) -> None:
    reply = sse.START + sse.text("Hi.") + sse.DONE
    async with before("temper", reply) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason, answer.is_done) == ("Hi.", "stop", True)


@pytest.mark.fault("F09")
@pytest.mark.parametrize("rest", [Ending.NEVER, b": here\n\n" * 1000, b": here\n\n" * 200_000])
async def test_a_reply_ends_with_its_finish_reason_though_the_connection_stays_open(
    *, rest: Ending | bytes, stream: bool
) -> None:
    reply = says("Hi.").removesuffix(sse.DONE)
    async with before("temper", Script((reply, rest, Ending.NEVER))) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.text, answer.reason, answer.is_done) == ("Hi.", "stop", True)


@pytest.mark.fault("F09")
async def test_a_stream_that_ends_before_its_finish_reason_is_an_error(*, stream: bool) -> None:
    async with before("temper", sse.START + sse.text("It is")) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.error is not None
    assert answer.status == (200 if stream else 502)
    assert not answer.is_done


GIGABYTE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: 1073741824\r\n\r\n"


@pytest.mark.fault("F11")
@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
async def test_a_body_of_a_gigabyte_is_refused_without_filling_the_memory(
    *, subject: str, kind: bytes, stream: bool
) -> None:
    """The response announces a gigabyte; 256 MB of it are sent if the subject reads them.

    An allocator may copy a large buffer to extend it, so one run with little memory suffices.
    """
    start = b'{"choices": [{"message": {"content": "'
    if kind != b"application/json":
        start = b"data: " + start
    endless = repeats(GIGABYTE_HEAD % kind + start, b"x" * MEGABYTE, most=256 * MEGABYTE)
    for _ in range(3):
        async with poisoned(*[endless] * 9, name=subject) as proxy:
            watched = psutil.Process(proxy.pid)
            before_it = watched.memory_info().rss
            most = 0
            asking = asyncio.create_task(proxy.ask(PLAIN, stream=stream))
            while not asking.done():
                most = max(most, watched.memory_info().rss)
                await asyncio.wait([asking], timeout=0.005)
            answer = await asking
        assert is_bad_gateway(subject, answer)
        if most - before_it < 64 * MEGABYTE:
            return
    pytest.fail("it has grown by more each time")


def failure(status: int, **others: JsonValue) -> JsonObject:
    return {"code": status, "message": "no luck today", "type": "their_error", **others}


@pytest.mark.fault("F12")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 501, 503, 504])
async def test_a_4xx_error_of_the_backend_keeps_its_status_and_message(
    *, subject: str, status: int, stream: bool
) -> None:
    async with before(subject, *[refuses(status, failure(status))] * 9) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert answer.status == status
    assert answer.error is not None
    assert subject != TEMPER or "no luck today" in str(answer.error["message"])


@pytest.mark.fault("F12")
@pytest.mark.parametrize("status", [302, 500, 502, 599])
async def test_redirects_and_5xx_errors_of_the_backend_are_a_502(
    *, subject: str, status: int, stream: bool
) -> None:
    async with before(subject, *[refuses(status, failure(status))] * 9) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert is_bad_gateway(subject, answer)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(
    "body", [b'{"error": "no luck today"}', b'{"detail": "no luck today"}', b"no luck today"]
)
async def test_every_error_format_becomes_the_openai_format(
    *, wire: Wire, body: bytes, stream: bool
) -> None:
    refusal = whole(body, status="422 Unprocessable Content")
    async with poisoned(sends(refusal), wire=wire) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.status == 422
    assert answer.error is not None
    assert answer.error.keys() >= {"message", "type", "param", "code"}
    assert "no luck today" in str(answer.error["message"])


@pytest.mark.fault("F12")
async def test_an_error_in_the_first_event_determines_the_status(*, stream: bool) -> None:
    first = sse.event({"error": failure(429)})
    async with before("temper", first) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert answer.status == 429


@pytest.mark.fault("F14")
@pytest.mark.parametrize("when", ["7", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_retry_after_of_the_backend_is_sent_to_the_client(
    *, subject: str, when: str, stream: bool
) -> None:
    busy = refuses(429, {"message": "busy"}, headers={"retry-after": when})
    async with before(subject, *[busy] * 9) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == 1
    assert (answer.status, answer.headers.get("retry-after")) == (429, when)


PEG = "The model produced output that does not match the expected peg-native format"
OLD = 'Failed to parse input at pos 12: <tool_call>{"name": SECRET'
RAW = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


@pytest.mark.fault("F16")
@pytest.mark.parametrize("words", [PEG, OLD])
@pytest.mark.parametrize("is_late", [False, True], ids=["status", "streamed"])
async def test_a_reply_that_the_server_cannot_parse_is_generated_again_and_parsed_by_temper(
    *, subject: str, words: str, is_late: bool, stream: bool
) -> None:
    error: JsonObject = {"code": 500, "message": words, "type": "server_error"}
    failed = sse.START + sse.event({"error": error}) if is_late else refuses(500, error)
    async with before(subject, failed, *[says(RAW)] * 5) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
    assert answer.called == [("get_weather", {"city": "Paris"})]
    for shown in (b"peg-native", b"Failed to parse", b"SECRET"):
        assert shown not in answer.body


@pytest.mark.fault("F16")
async def test_the_retry_of_an_unparsable_reply_has_the_same_prompt(*, stream: bool) -> None:
    error: JsonObject = {"code": 500, "message": PEG, "type": "server_error"}
    async with temper(refuses(500, error), says(RAW)) as proxy:
        await proxy.ask(WITH_TOOLS, stream=stream)
    first, second = proxy.backend.upstream_requests
    assert (first.fields["tool_choice"], second.fields["tool_choice"]) == ("auto", "none")
    assert second.raw["messages"] == first.raw["messages"]
    assert second.raw["tools"] == first.raw["tools"]


@pytest.mark.fault("F16")
@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_reply_without_tools_that_the_server_cannot_parse_is_requested_again(
    failures: int, *, stream: bool
) -> None:
    """A grammar could only force a call, so no attempt is constrained."""
    error: JsonObject = {"code": 500, "message": OLD, "type": "server_error"}
    async with temper(*[refuses(500, error)] * failures, says("Hi.")) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert len(proxy.backend.upstream_requests) == min(failures + 1, 3)
    if failures < 3:
        assert answer.text == "Hi."
    else:
        assert answer.error is not None
        assert answer.error["message"] == (
            "No reply that the backend could parse after 3 attempts; last defect: unreadable"
        )


@pytest.mark.fault("F16")
async def test_unparsed_text_in_an_engine_error_is_not_sent_to_the_client(*, stream: bool) -> None:
    error: JsonObject = {"code": 500, "message": OLD, "type": "server_error"}
    async with temper(*[refuses(500, error)] * 5) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
        # the first request does not count as an attempt
        assert len(proxy.backend.upstream_requests) <= 4
    assert b"SECRET" not in answer.body


@pytest.mark.fault("F16")
async def test_call_that_ollama_cannot_parse_is_retried_with_tools_in_the_prompt(
    *, stream: bool
) -> None:
    lost = whole(json.dump({"error": PEG}), status="500 Internal Server Error")
    raw = chunked(line({"content": RAW}), ended())
    async with poisoned(sends(lost), sends(raw), wire=Wire.OLLAMA) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
    assert answer.called == [("get_weather", {"city": "Paris"})]
    assert b"peg-native" not in answer.body
