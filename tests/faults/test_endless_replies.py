"""F10: replies without an end, and what bounds them: bytes, time, and tokens."""

import pytest

from benchmarks.faults.toxics import chunk, chunked, repeats
from proxy import bounds
from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes import spoken
from tests.fakes.spoken import says
from tests.faults.fronts import PLAIN, WITH_TOOLS, Wire, before, poisoned
from tests.faults.wires import REPLIES, line

MOST_BYTES = 2 * bounds.MIB  # in place of 32, so that the tests are quick
LONG = "and on " * 10_000
PIECES = {
    Wire.OPENAI: (spoken.START, spoken.text(LONG)),
    Wire.OLLAMA: (b"", line({"content": LONG})),
}


@pytest.mark.fault("F10")
async def test_a_reply_without_an_end_is_cut_off_at_so_many_bytes(
    *, wire: Wire, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STREAM_BYTES", MOST_BYTES)
    first, piece = PIECES[wire]
    endless = repeats(chunked(first, is_whole=False), chunk(piece))
    async with poisoned(endless, wire=wire) as front:
        answer = await front.ask(PLAIN, stream=stream)
        assert await front.backend.over.wait()
    assert (answer.error, answer.reason) == (None, "length")
    assert answer.text is not None
    # the read that passes the bound is dropped whole, and on a busy machine reads are large
    assert MOST_BYTES // 2 < len(answer.text) < MOST_BYTES


@pytest.mark.fault("F10")
async def test_a_reply_without_an_end_is_cut_off_after_so_long(*, wire: Wire, stream: bool) -> None:
    said = REPLIES[wire]
    endless = repeats(chunked(said.begun, is_whole=False), chunk(said.more), seconds=0.005)
    strict = ServerOptions(timeouts=StreamTimeouts(deadline=0.3))
    async with poisoned(endless, wire=wire, serving=strict) as front:
        answer = await front.ask(PLAIN, stream=stream)
        assert await front.backend.over.wait()
    assert (answer.error, answer.reason) == (None, "length")
    assert answer.text is not None
    assert answer.text.startswith("It is sunny. sunny.")


@pytest.mark.fault("F10")
async def test_a_call_without_an_end_is_cut_off_and_never_completed(*, stream: bool) -> None:
    first = spoken.START + spoken.call_delta("get_weather", '{"city": "P')
    more = spoken.delta({"tool_calls": [{"index": 0, "function": {"arguments": "aris"}}]})
    endless = repeats(chunked(first, is_whole=False), chunk(more), seconds=0.005)
    async with poisoned(
        endless, serving=ServerOptions(timeouts=StreamTimeouts(deadline=0.3))
    ) as front:
        answer = await front.ask(WITH_TOOLS, stream=stream)
        assert await front.backend.over.wait()
        assert len(front.backend.upstream_requests) == 1
    assert answer.runnable == []
    assert answer.is_done is (answer.reason == "length")


MOST_TOKENS, WINDOW = 40, 1024
TOO_MUCH = {Wire.OPENAI: spoken.text("and so on "), Wire.OLLAMA: line({"content": "and so on "})}
LIMITS: tuple[JsonObject, ...] = (
    {"max_tokens": MOST_TOKENS},
    {"max_completion_tokens": MOST_TOKENS},
)


@pytest.mark.fault("F10")
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_reply_beyond_the_clients_limit_is_cut_off_where_the_backend_ignores_it(
    *, wire: Wire, limit: JsonObject, stream: bool
) -> None:
    endless = repeats(chunked(PIECES[wire][0], is_whole=False), chunk(TOO_MUCH[wire]))
    async with poisoned(endless, wire=wire) as front:
        answer = await front.ask({**PLAIN, **limit}, stream=stream)
        assert await front.backend.over.wait()
    assert (answer.error, answer.reason, answer.is_done) == (None, "length", True)
    assert answer.text is not None
    assert answer.text.startswith("and so on " * MOST_TOKENS)
    assert len(answer.text) < 64 * 1024 + len("and so on ") * MOST_TOKENS


@pytest.mark.fault("F10")
async def test_a_reply_beyond_the_window_is_cut_off_where_the_backend_forgets_its_beginning(
    *, stream: bool
) -> None:
    endless = repeats(chunked(spoken.START, is_whole=False), chunk(TOO_MUCH[Wire.OPENAI]))
    async with poisoned(endless) as front:
        window: JsonObject = {"default_generation_settings": {"n_ctx": WINDOW}}
        front.backend.documents["/props"] = json.dump({**window, "total_slots": 1})
        answer = await front.ask(PLAIN, stream=stream)
        assert await front.backend.over.wait()
    assert (answer.error, answer.reason, answer.is_done) == (None, "length", True)
    assert answer.text is not None
    assert answer.text.startswith("and so on " * WINDOW)
    assert len(answer.text) < 64 * 1024 + len("and so on ") * WINDOW


@pytest.mark.fault("F10")
@pytest.mark.fault("F45")
async def test_a_call_beyond_the_clients_limit_is_cut_off_and_never_completed(
    *, stream: bool
) -> None:
    first = spoken.START + spoken.call_delta("get_weather", '{"city": "P')
    more = spoken.delta({"tool_calls": [{"index": 0, "function": {"arguments": "aris and "}}]})
    endless = repeats(chunked(first, is_whole=False), chunk(more), seconds=0.001)
    async with poisoned(endless) as front:
        answer = await front.ask({**WITH_TOOLS, "max_tokens": MOST_TOKENS}, stream=stream)
        assert await front.backend.over.wait()
        assert len(front.backend.upstream_requests) == 1
    assert (answer.error, answer.reason, answer.is_done) == (None, "length", True)
    assert answer.runnable == []


@pytest.mark.fault("F10")
async def test_a_reply_in_more_pieces_than_tokens_keeps_its_end(*, stream: bool) -> None:
    words = "and so on " * (MOST_TOKENS // 4)
    async with before("temper", says(*words)) as front:
        answer = await front.ask({**PLAIN, "max_tokens": MOST_TOKENS}, stream=stream)
    assert (answer.text, answer.reason) == (words, "stop")


@pytest.mark.fault("F10")
async def test_comments_without_an_end_are_cut_off(
    *, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26 MB of them took 38 s of processor time."""
    monkeypatch.setattr(bounds, "STREAM_BYTES", MOST_BYTES)
    endless = repeats(chunked(spoken.START, is_whole=False), chunk(b": x\n\n" * 10_000))
    async with poisoned(endless) as front:
        answer = await front.ask(PLAIN, stream=stream)
        assert await front.backend.over.wait()
    assert answer.error is not None
    assert answer.error["code"] == "backend_protocol_error"


@pytest.mark.fault("F10")
async def test_calls_without_an_end_are_cut_off(*, stream: bool) -> None:
    """100,000 of them took 15.8 s."""
    calls = [
        spoken.call_delta("get_weather", f'{{"city": "C{at}"}}', index=at, call_id=f"c{at}")
        for at in range(bounds.CALLS + 100)
    ]
    endless = repeats(chunked(spoken.START, *calls, is_whole=False), chunk(calls[-1]))
    async with poisoned(endless) as front:
        answer = await front.ask(WITH_TOOLS, stream=stream)
        assert await front.backend.over.wait()
    assert (answer.error, answer.reason) == (None, "tool_calls")
    assert len(answer.calls) == bounds.CALLS
