import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.escapes import WHOLE_ESCAPE, decode, read_escape
from tests.fakes.arrivals import read

CASES = [
    (r"\"\\\/\b\f\n\r\t", '"\\/\b\f\n\r\t', True),
    (r"\u0041\u00e9", "Aé", True),
    (r"\ud83d\ude00", "😀", True),
    (r"\d\d+\x", r"\d\d+\x", False),
    (r"\'", r"\'", False),
    (r"\ude00!", "\ufffd!", False),
    (r"\ud83d!", "\ufffd!", False),
    (r"a\ud83d", "a\ufffd", False),
    (r"\ud83d\n", "\ufffd\n", False),
    (r"\ud83d\u0041", "\ufffdA", False),
    (r"\ud83d\ud83d!", "\ufffd\ufffd!", False),
    (r"\d\n", "\\d\n", False),
    ("a\nb\\n", "a\nb\n", False),
    ("plain", "plain", True),
]


def one_at_a_time(written: str, quote: str) -> tuple[str, bool]:
    """Decode every escape by itself, and count a raw control character as incorrect."""

    def reading(cursor: Cursor) -> Waiting[tuple[str, bool]]:
        text, is_strict = "", True
        while char := (yield from cursor.peek()):
            cursor.advance(1)
            is_known = char >= " "
            if char == "\\":
                char, is_known = yield from read_escape(cursor, quote)
            text, is_strict = text + char, is_strict and is_known
        return text, is_strict

    return read(reading, written)[0]


@pytest.mark.parametrize(("written", "text", "is_strict"), CASES)
def test_escapes_mean_the_same_at_once_and_one_at_a_time(
    written: str, text: str, is_strict: bool
) -> None:
    assert decode(written, '"') == (text, is_strict)
    assert one_at_a_time(written, '"') == (text, is_strict)


def test_the_quotation_mark_around_can_be_escaped() -> None:
    assert decode(r"it\'s \"", "'") == ("it's \"", False)
    assert one_at_a_time(r"it\'s", "'") == ("it's", False)


@pytest.mark.parametrize("written", [r"\u", r"\u00", r"\u00zz", r"\ud83d\u1", r"\ud83d\u", "\\"])
def test_what_is_no_whole_escape_is_kept_as_it_is_written(written: str) -> None:
    text, is_strict = one_at_a_time(written, '"')
    assert text == written.replace(r"\ud83d", "\ufffd")
    assert not is_strict


UNITS = st.sampled_from([r"\n", r"\d", r"\'", r"\"", r"\u0041", r"\ud83d\ude00", r"\ud83d\u0041"])
PLAIN = st.sampled_from(["a", " ", "\n", "é", r"\ude00"])


@settings(deadline=None)
@given(st.lists(UNITS | PLAIN, max_size=8).map("".join), st.sampled_from("\"'"))
def test_any_text_means_the_same_at_once_and_one_at_a_time(written: str, quote: str) -> None:
    assert decode(written, quote) == one_at_a_time(written, quote)


def test_half_a_pair_is_whole_once_what_follows_is_known() -> None:
    pattern = re.compile(WHOLE_ESCAPE)
    texts = (r"\ud83d", r"\ud83d\ ", r"\ud83dx", r"\ud83d\ude00", r"\u004", "\\")
    assert [bool(pattern.fullmatch(text)) for text in texts] == [False] * 3 + [True, False, False]
    assert pattern.match(r"\ud83dx")
