"""F10: endless replies, and their bounds: bytes, time, and tokens."""

import pytest

from benchmarks.faults.toxics import chunk, chunked, repeats
from proxy import bounds
from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes import sse
from tests.fakes.sse import says
from tests.faults.proxies import PLAIN, WITH_TOOLS, Wire, before, poisoned
from tests.faults.wires import REPLIES, line

MOST_BYTES = 2 * bounds.MIB  # instead of 32 MB, for fast tests
LONG = "and on " * 10_000
PIECES = {
    Wire.OPENAI: (sse.START, sse.text(LONG)),
    Wire.OLLAMA: (b"", line({"content": LONG})),
}


@pytest.mark.fault("F10")
async def test_endless_reply_is_cut_off_at_the_byte_limit(
    *, wire: Wire, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STREAM_BYTES", MOST_BYTES)
    first, piece = PIECES[wire]
    endless = repeats(chunked(first, is_whole=False), chunk(piece))
    async with poisoned(endless, wire=wire) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert await proxy.backend.over.wait()
    assert (answer.error, answer.reason) == (None, "length")
    assert answer.text is not None
    # the last read, which exceeds the limit, is dropped; on a busy machine, a read is large
    assert MOST_BYTES // 2 < len(answer.text) < MOST_BYTES


@pytest.mark.fault("F10")
async def test_endless_reply_is_cut_off_at_the_time_limit(*, wire: Wire, stream: bool) -> None:
    reply = REPLIES[wire]
    endless = repeats(chunked(reply.begun, is_whole=False), chunk(reply.more), seconds=0.005)
    strict = ServerOptions(timeouts=StreamTimeouts(deadline=0.3))
    async with poisoned(endless, wire=wire, serving=strict) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert await proxy.backend.over.wait()
    assert (answer.error, answer.reason) == (None, "length")
    assert answer.text is not None
    assert answer.text.startswith("It is sunny. sunny.")


@pytest.mark.fault("F10")
async def test_an_endless_call_is_cut_off_and_not_returned_as_complete(*, stream: bool) -> None:
    first = sse.START + sse.call_delta("get_weather", '{"city": "P')
    more = sse.delta({"tool_calls": [{"index": 0, "function": {"arguments": "aris"}}]})
    endless = repeats(chunked(first, is_whole=False), chunk(more), seconds=0.005)
    async with poisoned(
        endless, serving=ServerOptions(timeouts=StreamTimeouts(deadline=0.3))
    ) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
        assert await proxy.backend.over.wait()
        assert len(proxy.backend.upstream_requests) == 1
    assert answer.runnable == []
    assert answer.is_done is (answer.reason == "length")


MOST_TOKENS, WINDOW = 40, 1024
TOO_MUCH = {Wire.OPENAI: sse.text("and so on "), Wire.OLLAMA: line({"content": "and so on "})}
LIMITS: tuple[JsonObject, ...] = (
    {"max_tokens": MOST_TOKENS},
    {"max_completion_tokens": MOST_TOKENS},
)


@pytest.mark.fault("F10")
@pytest.mark.parametrize("limit", LIMITS)
async def test_client_token_limit_is_enforced_where_the_backend_ignores_it(
    *, wire: Wire, limit: JsonObject, stream: bool
) -> None:
    endless = repeats(chunked(PIECES[wire][0], is_whole=False), chunk(TOO_MUCH[wire]))
    async with poisoned(endless, wire=wire) as proxy:
        answer = await proxy.ask({**PLAIN, **limit}, stream=stream)
        assert await proxy.backend.over.wait()
    assert (answer.error, answer.reason, answer.is_done) == (None, "length", True)
    assert answer.text is not None
    assert answer.text.startswith("and so on " * MOST_TOKENS)
    assert len(answer.text) < 64 * 1024 + len("and so on ") * MOST_TOKENS


@pytest.mark.fault("F10")
async def test_reply_is_cut_off_at_the_window_of_a_context_shifting_backend(
    *, stream: bool
) -> None:
    endless = repeats(chunked(sse.START, is_whole=False), chunk(TOO_MUCH[Wire.OPENAI]))
    async with poisoned(endless) as proxy:
        window: JsonObject = {"default_generation_settings": {"n_ctx": WINDOW}}
        proxy.backend.documents["/props"] = json.dump({**window, "total_slots": 1})
        answer = await proxy.ask(PLAIN, stream=stream)
        assert await proxy.backend.over.wait()
    assert (answer.error, answer.reason, answer.is_done) == (None, "length", True)
    assert answer.text is not None
    assert answer.text.startswith("and so on " * WINDOW)
    assert len(answer.text) < 64 * 1024 + len("and so on ") * WINDOW


@pytest.mark.fault("F10")
@pytest.mark.fault("F45")
async def test_a_call_cut_off_by_max_tokens_is_not_returned_as_complete(*, stream: bool) -> None:
    first = sse.START + sse.call_delta("get_weather", '{"city": "P')
    more = sse.delta({"tool_calls": [{"index": 0, "function": {"arguments": "aris and "}}]})
    endless = repeats(chunked(first, is_whole=False), chunk(more), seconds=0.001)
    async with poisoned(endless) as proxy:
        answer = await proxy.ask({**WITH_TOOLS, "max_tokens": MOST_TOKENS}, stream=stream)
        assert await proxy.backend.over.wait()
        assert len(proxy.backend.upstream_requests) == 1
    assert (answer.error, answer.reason, answer.is_done) == (None, "length", True)
    assert answer.runnable == []


@pytest.mark.fault("F10")
async def test_a_reply_below_max_tokens_is_complete_even_if_it_has_more_chunks(
    *, stream: bool
) -> None:
    words = "and so on " * (MOST_TOKENS // 4)
    async with before("temper", says(*words)) as proxy:
        answer = await proxy.ask({**PLAIN, "max_tokens": MOST_TOKENS}, stream=stream)
    assert (answer.text, answer.reason) == (words, "stop")


@pytest.mark.fault("F10")
async def test_an_endless_stream_of_comments_is_cut_off(
    *, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this limit, 26 MB of comments took 38 s of CPU time."""
    monkeypatch.setattr(bounds, "STREAM_BYTES", MOST_BYTES)
    endless = repeats(chunked(sse.START, is_whole=False), chunk(b": x\n\n" * 10_000))
    async with poisoned(endless) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
        assert await proxy.backend.over.wait()
    assert answer.error is not None
    assert answer.error["code"] == "backend_protocol_error"


@pytest.mark.fault("F10")
async def test_a_reply_with_an_endless_number_of_calls_is_cut_off(*, stream: bool) -> None:
    """Without this limit, 100,000 calls took 15.8 s."""
    calls = [
        sse.call_delta("get_weather", f'{{"city": "C{at}"}}', index=at, call_id=f"c{at}")
        for at in range(bounds.CALLS + 100)
    ]
    endless = repeats(chunked(sse.START, *calls, is_whole=False), chunk(calls[-1]))
    async with poisoned(endless) as proxy:
        answer = await proxy.ask(WITH_TOOLS, stream=stream)
        assert await proxy.backend.over.wait()
    assert (answer.error, answer.reason) == (None, "tool_calls")
    assert len(answer.calls) == bounds.CALLS
