import pytest

from proxy.backends.overflow import Lengths, overflow_in
from tests.fakes.engine_errors import OVERFLOWS


@pytest.mark.parametrize(
    ("message", "lengths"),
    [(one.message, Lengths(one.prompt, one.window)) for one in OVERFLOWS],
    ids=[one.engine for one in OVERFLOWS],
)
def test_every_engine_tells_an_overflow_in_words_of_its_own(message: str, lengths: Lengths) -> None:
    assert overflow_in(message) == lengths


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Rate limit reached: 6000 tokens per minute. Please try again in 7 s.",
        "Too many requests.",
        "max_tokens must be at least 1, got 0.",
        "The model `x` does not exist.",
        "the context is cancelled",
    ],
)
def test_other_refusals_are_no_overflow(message: str) -> None:
    assert overflow_in(message) is None


def test_only_the_beginning_is_read_so_that_a_prompt_in_it_is_not() -> None:
    quoted = "maximum context length is 5 tokens"
    assert overflow_in("x" * 3000 + quoted) is None
