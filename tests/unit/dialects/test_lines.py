import itertools
import random

import pytest

from proxy.dialects.lines import LineDecoder

TEXT = b'{"a": 1}\n\n{"b": "\xc3\xa9"}\r\n{"c": 3}'
LINES = [b'{"a": 1}', b'{"b": "\xc3\xa9"}', b'{"c": 3}']


def decode_lines(pieces: list[bytes]) -> list[bytes]:
    decoder = LineDecoder()
    return [line for piece in pieces for line in decoder.feed(piece)] + decoder.finish()


def test_lines_are_the_same_whether_fed_at_once_or_byte_by_byte() -> None:
    assert decode_lines([TEXT]) == LINES
    assert decode_lines([TEXT[index : index + 1] for index in range(len(TEXT))]) == LINES


def test_lines_are_the_same_at_random_chunkings() -> None:
    chance = random.Random(7)
    for _ in range(200):
        cuts = sorted(chance.sample(range(len(TEXT)), 4))
        bounds = [0, *cuts, len(TEXT)]
        pieces = [TEXT[start:end] for start, end in itertools.pairwise(bounds)]
        assert decode_lines(pieces) == LINES


def test_a_stream_that_ends_with_a_newline_has_no_further_line() -> None:
    assert decode_lines([b'{"a": 1}\n']) == [b'{"a": 1}']
    assert decode_lines([]) == []


def test_a_line_over_the_limit_is_refused() -> None:
    decoder = LineDecoder(limit=8)
    decoder.feed(b"12345678\n1234")
    with pytest.raises(ValueError, match="longer than 8 bytes"):
        decoder.feed(b"56789")
