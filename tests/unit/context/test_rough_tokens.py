from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.rough_tokens import (
    clip,
    clip_start,
    count_gradually,
    count_rough_tokens,
    is_within,
)

LIMITS = st.integers(0, 30)


def run_to_end(counts: Generator[None, None, int]) -> tuple[int, int]:
    """Return the count and the number of yields of a generator."""
    slices = 0
    while True:
        try:
            next(counts)
        except StopIteration as end:
            count: int = end.value
            return count, slices
        slices += 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("the file", 2),
        ("internationally", 3),
        ("a3f9", 4),
        ("src/a.py", 5),
        ("one\ntwo", 3),
        ("a    b", 3),
        ("größe", 4),
        ("日本", 2),
    ],
)
def test_count_rough_tokens_counts_parts_of_words_digits_and_signs(text: str, count: int) -> None:
    assert count_rough_tokens(text) == count


TEXTS = st.text(st.sampled_from("ab  \n1.é"), max_size=80) | st.text()


@given(TEXTS, st.integers(1, 20))
def test_count_gradually_equals_count_rough_tokens(text: str, most: int) -> None:
    count, slices = run_to_end(count_gradually(text, most))
    assert count == count_rough_tokens(text)
    assert slices == count // most


@given(TEXTS, LIMITS)
def test_is_within_agrees_with_count_rough_tokens(text: str, limit: int) -> None:
    assert is_within(text, limit) == (count_rough_tokens(text) <= limit)


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, ""), (1, "…"), (2, "one…"), (3, "one two…"), (4, "one two red six")]
)
def test_a_text_is_clipped_between_words_and_gets_an_ellipsis(limit: int, expected: str) -> None:
    assert clip("one two red six", limit) == expected


@given(st.text(), LIMITS)
def test_a_clipped_text_has_at_most_the_requested_rough_tokens(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert count_rough_tokens(clipped) <= limit or clipped == text == " " * len(text)
    if clipped != text and limit:
        assert clipped[-1] == "…"
        assert text.startswith(clipped[:-1])


@given(st.text(), LIMITS)
def test_the_suffix_of_a_text_has_at_most_the_requested_rough_tokens(text: str, limit: int) -> None:
    clipped = clip_start(text, limit)
    assert text.endswith(clipped)
    assert count_rough_tokens(clipped) <= limit
    if 0 < limit <= count_rough_tokens(text[-8 * limit :]):
        assert count_rough_tokens(clipped) == limit
