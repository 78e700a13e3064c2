import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.escapes import WHOLE_ESCAPE, decode, read_escape
from tests.fakes.arrivals import read

CASES = [
    (r"\"\\\/\b\f\n\r\t", '"\\/\b\f\n\r\t'),
    (r"\u0041\u00e9", "Aé"),
    (r"\ud83d\ude00", "😀"),
    (r"\d\d+\x", r"\d\d+\x"),
    (r"\'", r"\'"),
    (r"\ude00!", "\ufffd!"),
    (r"\ud83d!", "\ufffd!"),
    (r"a\ud83d", "a\ufffd"),
    (r"\ud83d\n", "\ufffd\n"),
    (r"\ud83d\u0041", "\ufffdA"),
    (r"\ud83d\ud83d!", "\ufffd\ufffd!"),
    (r"\d\n", "\\d\n"),
    ("a\nb\\n", "a\nb\n"),
    ("plain", "plain"),
]


def decode_separately(escaped: str, quote: str) -> str:
    """Decode with `read_escape`, which reads a single escape."""

    def reading(cursor: Cursor) -> Waiting[str]:
        text = ""
        while char := (yield from cursor.peek()):
            cursor.advance(1)
            text += (yield from read_escape(cursor, quote)) if char == "\\" else char
        return text

    return read(reading, escaped)[0]


@pytest.mark.parametrize(("escaped", "text"), CASES)
def test_escapes_are_decoded_alike_together_and_one_by_one(escaped: str, text: str) -> None:
    assert decode(escaped, '"') == text
    assert decode_separately(escaped, '"') == text


def test_the_surrounding_quotation_mark_can_be_escaped() -> None:
    assert decode(r"it\'s \"", "'") == "it's \""
    assert decode_separately(r"it\'s", "'") == "it's"


@pytest.mark.parametrize("text", [r"\u", r"\u00", r"\u00zz", r"\ud83d\u1", r"\ud83d\u", "\\"])
def test_an_incomplete_escape_is_kept_literally(text: str) -> None:
    assert decode_separately(text, '"') == text.replace(r"\ud83d", "\ufffd")


UNITS = st.sampled_from([r"\n", r"\d", r"\'", r"\"", r"\u0041", r"\ud83d\ude00", r"\ud83d\u0041"])
PLAIN = st.sampled_from(["a", " ", "\n", "é", r"\ude00"])


@settings(deadline=None)
@given(st.lists(UNITS | PLAIN, max_size=8).map("".join), st.sampled_from("\"'"))
def test_escapes_in_any_text_are_decoded_alike_together_and_one_by_one(
    text: str, quote: str
) -> None:
    assert decode(text, quote) == decode_separately(text, quote)


def test_half_a_surrogate_pair_is_complete_only_if_another_character_follows() -> None:
    pattern = re.compile(WHOLE_ESCAPE)
    texts = (r"\ud83d", r"\ud83d\ ", r"\ud83dx", r"\ud83d\ude00", r"\u004", "\\")
    assert [bool(pattern.fullmatch(text)) for text in texts] == [False] * 3 + [True, False, False]
    assert pattern.match(r"\ud83dx")
