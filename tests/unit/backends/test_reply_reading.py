import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from proxy.backends.reply_reading import ReplyReading
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyFinished, ReplyStarted, TextDelta
from proxy.dialects.openai_chat.decode import ReplyPart, StreamedError
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
    parts = [part for piece in pieces for part in reading.feed(piece)]
    return [*parts, *reading.finish()]


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
    reading = ReplyReading()
    parts = reading.feed(stream(CHUNKS[0], done=False) + b"data: {\n\n")

    has_begun_before = reading.has_begun
    assert next(parts) == STARTED
    assert (has_begun_before, reading.has_begun) == (False, True)
    with pytest.raises(ValueError, match="line 1"):
        next(parts)


def test_an_error_instead_of_a_completion_is_a_part_like_any_other() -> None:
    reading = ReplyReading()
    assert list(reading.feed(b'{"error": {"message": "No."}}')) == []

    assert list(reading.finish()) == [StreamedError({"message": "No."})]


def test_the_beginning_is_kept_for_a_look_at_it() -> None:
    reading = ReplyReading()
    assert [part for piece in (b" \n", b" <html>", b"<p>") for part in reading.feed(piece)] == []
    assert reading.beginning == b"<html>"


@pytest.mark.parametrize("body", [b"", b" ", b"<html>", b"[]", b"{", b"{}", b'{"\xff": 1}'])
def test_what_is_no_reply_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read([body])


def test_nothing_behind_the_end_changes_the_reply() -> None:
    assert read([HELLO, b"data: garbage\n\n"]) == read([HELLO])
