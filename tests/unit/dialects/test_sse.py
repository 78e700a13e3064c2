import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.sse import DONE, Event, EventDecoder, encode_comment, encode_data
from tests.fakes.arrivals import is_linear

STREAMS = {
    "one event": (b"data: a\n\n", [Event("a")]),
    "two events in one segment": (b"data: a\n\ndata: b\n\n", [Event("a"), Event("b")]),
    "no space after the colon": (b"data:a\n\n", [Event("a")]),
    "two spaces after the colon": (b"data:  a\n\n", [Event(" a")]),
    "several lines": (b"data: a\ndata: b\ndata\n\n", [Event("a\nb\n")]),
    "a type": (b"event: ping\ndata: a\n\ndata: b\n\n", [Event("a", "ping"), Event("b")]),
    "a type without data": (b"event: ping\n\ndata: b\n\n", [Event("b")]),
    "comments": (b": hi\n\n:\ndata: a\n: in between\ndata: b\n\n", [Event("a\nb")]),
    "unknown fields": (b"id: 7\nretry: 5\nnonsense\ndata: a\n\n", [Event("a")]),
    "carriage returns": (b"data: a\rdata: b\r\rdata: c\r\r", [Event("a\nb"), Event("c")]),
    "both": (b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", [Event("a\nb"), Event("c")]),
    "mixed": (b"data: a\r\n\rdata: b\n\r\n", [Event("a"), Event("b")]),
    "no final blank line": (b"data: a\n\ndata: b\n", [Event("a"), Event("b")]),
    "no final line end": (b"data: a\n\ndata: b", [Event("a"), Event("b")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
    "a byte order mark later": (b"data: \xef\xbb\xbfa\n\n", [Event("\ufeffa")]),
    "long characters": ("data: äβ漢🙂\u2028\x85\n\n".encode(), [Event("äβ漢🙂\u2028\x85")]),
    "broken characters": (b"data: \xff\n\n", [Event("\ufffd")]),
    "empty data": (b"data:\n\ndata: \n\n", [Event(""), Event("")]),
    "an error field": (b'error: {"code":500}\n\n', [Event('{"code":500}', "error")]),
    "nothing": (b"", []),
    "blank lines": (b"\n\n\r\n\r", []),
}


def decode(pieces: list[bytes], limit: int = 8_000_000) -> list[Event]:
    decoder = EventDecoder(limit)
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()


def reference_events(stream: bytes) -> list[Event]:
    """Decode a stream literally as the specification describes it, for comparison."""
    text = stream.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    events: list[Event] = []
    data, kind = "", ""
    for line in [*re.split(r"\r\n|\n|\r", text), ""]:
        if line == "":
            events += [Event(data[:-1], kind)] if data else []
            data, kind = "", ""
        name, value = line.split(":", 1) if ":" in line else (line, "")
        value = value[1:] if value[:1] == " " else value
        data += value + "\n" if name == "data" else ""
        kind = value if name == "event" else kind
    return events


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS)
def test_a_stream_is_decoded_to_the_expected_events_at_every_chunking(
    stream: bytes, events: list[Event]
) -> None:
    assert decode([stream]) == events
    assert decode([stream[at : at + 1] for at in range(len(stream))]) == events
    for cut in range(len(stream) + 1):
        assert decode([stream[:cut], b"", stream[cut:]]) == events


@given(
    st.lists(
        st.sampled_from(
            [b"data", b"event", b":", b" ", b"\n", b"\r", b"x", "ü".encode(), b"\xff", b"\n\n"]
        ),
        max_size=40,
    ),
    st.lists(st.integers(0, 90), max_size=6),
)
def test_a_random_stream_is_decoded_as_the_specification_requires(
    tokens: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(tokens)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    assert decode([stream[start:end] for start, end in pairwise(edges)]) == reference_events(stream)


def test_an_event_is_returned_with_the_byte_that_completes_it() -> None:
    decoder = EventDecoder()

    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\n\r") == [Event("a")]
    assert decoder.feed(b"\n") == []


def test_finishing_twice_returns_the_last_event_once() -> None:
    decoder = EventDecoder()
    decoder.feed(b"data: a")

    assert decoder.finish() == [Event("a")]
    assert decoder.finish() == []


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 20, b": " + b"x" * 20, b"data: xx\n" * 9, b"x" * 21 + b"\n"]
)
def test_an_event_over_the_limit_is_refused(stream: bytes) -> None:
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        with pytest.raises(ValueError, match="longer than 20 bytes"):
            decode(pieces, limit=20)


IDLE = (b": x\n\n", b"id: 1\n", b"a\r\n", b": x\r\n\r\n")


@pytest.mark.parametrize("line", IDLE)
def test_too_many_bytes_of_lines_without_an_event_are_refused(line: bytes) -> None:
    """The limit applies to consecutive lines; without it, 26 MB of comments took 38 s."""
    decoder, pieces = EventDecoder(), [line * 10_000] * 9
    assert decode([*pieces[:4], b"data: a\n\n", *pieces[:4]], limit=8_000_000) == [Event("a")]
    with pytest.raises(ValueError, match="lines without an event"):
        [decoder.feed(piece) for piece in pieces * 9]


def test_the_length_limit_applies_to_each_event_separately() -> None:
    assert (
        decode([b"data: 123456\n\n: a comment\n: a comment\n\n" * 5], limit=20)
        == [Event("123456")] * 5
    )


def test_decoding_takes_time_linear_in_the_length_of_a_line() -> None:
    def read(line: str) -> None:
        decoder = EventDecoder()
        for character in line:
            decoder.feed(character.encode())
        decoder.feed(b"\n")

    assert is_linear(read, lambda size: "x" * size, 50_000)


def test_data_is_encoded_as_one_event() -> None:
    assert encode_data(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert DONE == b"data: [DONE]\n\n"


@pytest.mark.parametrize("text", ["a", "", "a\nb", "a\r\nb\n", "\r\r", "data: x\n\ndata: y"])
def test_line_breaks_within_data_or_comments_cannot_start_another_field(text: str) -> None:
    normal = text.replace("\r\n", "\n").replace("\r", "\n")

    assert decode([encode_data(text.encode())]) == [Event(normal)]
    assert decode([encode_comment(text) + b"data: x\n\n"]) == [Event("x")]
    assert encode_comment(text).startswith(b": ")


def test_a_stream_is_between_events_after_a_complete_event() -> None:
    decoder = EventDecoder()
    states = []
    for piece in (b"data: a", b"\n", b"\n", b"event: x\n", b"\n", b": c\r", b"\n"):
        decoder.feed(piece)
        states.append(decoder.is_between_events)
    assert states == [False, False, True, False, True, False, True]
