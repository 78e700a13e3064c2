import random
from collections.abc import Callable, Iterable
from itertools import pairwise, repeat

import pytest

from proxy.backends.reply_reading import ReplyReading
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyFinished, ReplyStarted, TextDelta
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart, StreamedError
from proxy.dialects.sse import EventDecoder
from tests.fakes.questions import HELLO, chunk, stream

STARTED = ReplyStarted("chatcmpl-1", 1700000000, "m")
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
    reading = ReplyReading()
    parts: list[ReplyPart] = []
    for piece in pieces:
        reading.feed(piece, parts)
    reading.finish(parts)
    return parts


@pytest.mark.parametrize("body", BODIES)
def test_a_reply_is_the_same_in_either_form_and_at_any_chunking(body: bytes) -> None:
    chance = random.Random(1)
    assert read([body]) == REPLY
    assert read(bytes([byte]) for byte in body) == REPLY
    for cut in range(len(body)):
        assert read([body[:cut], body[cut:]]) == REPLY
    for _ in range(20):
        cuts = [0, *sorted(chance.choices(range(len(body)), k=9)), len(body)]
        assert read(body[a:b] for a, b in pairwise(cuts)) == REPLY


def test_what_came_before_nonsense_is_delivered_first() -> None:
    reading, parts = ReplyReading(), list[ReplyPart]()
    with pytest.raises(ValueError, match="line 1"):
        reading.feed(stream(CHUNKS[0], done=False) + b"data: {\n\n", parts)
    assert (parts, reading.has_begun) == ([STARTED], True)


def test_an_error_instead_of_a_completion_is_a_part_like_any_other() -> None:
    assert read([b'{"error": {"message": "No."}}']) == [StreamedError({"message": "No."})]


def test_the_beginning_is_kept_for_a_look_at_it() -> None:
    reading, parts = ReplyReading(), list[ReplyPart]()
    for piece in (b" \n", b" <html>", b"<p>"):
        reading.feed(piece, parts)
    assert (reading.beginning, parts) == (b"<html>", [])


@pytest.mark.parametrize("body", [b"", b" ", b"<html>", b"[]", b"{", b"{}", b'{"\xff": 1}'])
def test_what_is_no_reply_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read([body])


def test_nothing_behind_the_end_changes_the_reply() -> None:
    assert read([HELLO, b"data: garbage\n\n"]) == read([HELLO])


def _one_by_one(events: Iterable[bytes]) -> list[ReplyPart]:
    """Read events without regard to those before: the slow and obvious way."""
    sse, decoder = EventDecoder(), ChunkDecoder()
    parts = [part for raw in events for one in sse.feed(raw) for part in decoder.feed(one.data)]
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
def test_rows_of_like_chunks_are_read_as_if_each_stood_alone(seed: int) -> None:
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
    chunks = [{**chunk(delta), "created": 1 + place // 20} for place, delta in enumerate(deltas)]
    body = stream(*chunks, {**chunk({}, "stop"), "usage": {"total_tokens": 3}})
    if seed % 4 == 0:
        body = body.replace(b"\n\n", b"\n: a comment\n\n", seed)
    expected = _one_by_one([body])
    assert read([body]) == expected
    for width in (1, 7, 100, 1_000):
        assert read(body[at : at + width] for at in range(0, len(body), width)) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"\\",  # swallows the quote behind it
        b'","',
        b'a" , "b',
        b"\xff",
        b"\\ud800",
        b"\x01",
        b'"}}]}\n\ndata: {',
    ],
)
def test_a_row_hides_nothing_that_is_wrong_with_one_chunk(text: bytes) -> None:
    good = stream(*CHUNKS[:1], *[chunk({"content": "~"})] * 3, done=False)
    before, _, behind = good.rpartition(b"~")
    body = before + text + behind + HELLO
    assert _outcome(lambda: read([body])) == _outcome(lambda: _one_by_one([body]))


def _outcome(reading: Callable[[], list[ReplyPart]]) -> list[ReplyPart] | str:
    try:
        return reading()
    except ValueError as error:
        return str(error)


def test_chunks_that_are_never_alike_are_not_compared_for_ever() -> None:
    chunks = [{**chunk({"content": "x"}), "created": moment} for moment in range(1, 40)]
    body = stream(*chunks, chunk({}, "stop"))
    assert read([body]) == _one_by_one([body])


def test_an_event_that_never_ends_is_refused_however_it_comes() -> None:
    pieces = [stream(*CHUNKS[:2], done=False), *repeat(b"x" * 60_000, 200)]
    with pytest.raises(ValueError, match="longer than 8000000 bytes"):
        read(pieces)


def test_only_a_piece_of_events_like_those_before_is_read_without_being_fed() -> None:
    reading, parts = ReplyReading(), list[ReplyPart]()
    row = stream(chunk({"content": "a"}), chunk({"content": "b"}), done=False)
    assert reading.read_for_sink(row) is None
    reading.feed(stream(*CHUNKS[:2], done=False), parts)
    assert reading.read_for_sink(row) == [TextDelta("a"), TextDelta("b")]
    for piece in (b"", row[:-1], row + b"data: [DONE]\n\n", stream(CHUNKS[2])):
        assert reading.read_for_sink(piece) is None
    reading.feed(row[:-1], parts)
    assert reading.read_for_sink(row) is None
    reading.feed(b"\n", parts)
    reading.feed(b": half\r", parts)
    assert reading.read_for_sink(row) is None
    reading.feed(b"\n", parts)
    assert reading.read_for_sink(row) == [TextDelta("a"), TextDelta("b")]
