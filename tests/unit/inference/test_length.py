import random
from collections.abc import Sequence

import pytest

from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyUnreadable,
    TextDelta,
    UsageReported,
)
from proxy.inference.length import ReplyLength

WORDS = ("word ", "another ", "and ", "so ", "on, ", "perhaps ")


def events_until_cut(length: ReplyLength, *events: ReplyEvent) -> int:
    """Return how many events arrive before the reply is too long; all if it never is."""
    for number, event in enumerate(events):
        if length.exceeds((event,)):
            return number
    return len(events)


@pytest.mark.parametrize("end", [ReplyFinished("length"), ReplyUnreadable("lost")])
def test_a_batch_with_the_end_of_the_reply_is_never_too_long(end: ReplyEvent) -> None:
    assert not ReplyLength(1).exceeds([TextDelta("a token, "), TextDelta("a token, "), end])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("seed", range(5))
def test_a_reply_with_exactly_as_many_tokens_as_the_limit_is_never_cut(
    seed: int, size: int
) -> None:
    tokens = random.Random(seed).choices(WORDS, k=200)
    pieces = [token[at : at + size] for token in tokens for at in range(0, len(token), size)]
    assert events_until_cut(ReplyLength(200), *map(TextDelta, pieces)) == len(pieces)


@pytest.mark.parametrize("text", ["a", "語", " on", "and so on "])
def test_every_endless_reply_becomes_too_long(text: str) -> None:
    assert events_until_cut(ReplyLength(100), *[TextDelta(text)] * 10_000) <= 800


def test_a_bounded_sink_refuses_a_batch_that_exceeds_the_limit() -> None:
    length, recorded = ReplyLength(10), list[ReplyEvent]()
    token = TextDelta("a token, ")

    def record(batch: Sequence[ReplyEvent]) -> bool:
        recorded.extend(batch)
        return len(recorded) != 9

    bounded = length.bound(record)
    assert bounded is not None
    assert [bounded([token, token]) for _ in range(4)] == [True] * 4
    assert not bounded([token])  # the caller passes a refused batch to `exceeds`
    assert not length.exceeds([token, token])
    assert not bounded([token])
    assert length.exceeds([token])
    assert len(recorded) == 9


def test_bound_returns_none_without_a_sink() -> None:
    assert ReplyLength(10).bound(None) is None


def test_the_tokens_of_a_reply_are_estimated_from_its_pieces_and_characters() -> None:
    length = ReplyLength(None)
    sink = length.bound(bool)
    assert sink is not None
    assert length.tokens == 0
    assert sink([TextDelta("a")] * 3)
    assert length.tokens == 3
    length.exceeds([TextDelta("x" * 397), ReplyFinished("stop")])
    assert length.tokens == 100


def test_a_constrained_reply_with_256_consecutive_blanks_is_too_long() -> None:
    blanks: list[ReplyEvent] = [TextDelta("\n  ")] * 1000
    begun: list[ReplyEvent] = [TextDelta('{"name": '), ReasoningDelta(" " * 300)]
    assert (
        events_until_cut(ReplyLength(None, is_constrained=True), *begun, *blanks) == len(begun) + 85
    )
    assert events_until_cut(ReplyLength(None), *begun, *blanks) == len(begun) + 1000
    words: list[ReplyEvent] = [*blanks[:80], TextDelta("x")] * 9
    assert events_until_cut(ReplyLength(None, is_constrained=True), *words) == len(words)
    length = ReplyLength(None, is_constrained=True)
    assert not length.exceeds([*blanks, ReplyFinished("stop")])


def test_bound_returns_none_for_a_constrained_reply() -> None:
    assert ReplyLength(9, is_constrained=True).bound(lambda _: True) is None


CALL = '{"name": "pick", "arguments": {"code": "xk4"}'
USAGE = UsageReported({"prompt_tokens": 38})


@pytest.mark.parametrize("text", [CALL, f"{CALL}\n   \r \n\n    \n\n\n\n \r   "])
def test_a_constrained_call_that_lacks_its_last_brace_is_completed(text: str) -> None:
    """vLLM 0.32 returns such a call with `tool_choice: none`, a schema, and max_tokens."""
    length = ReplyLength(None, is_constrained=True)
    end: list[ReplyEvent] = [TextDelta(text), USAGE, ReplyFinished("length")]
    assert not length.exceeds(end)
    closed = (TextDelta(text), TextDelta("}"), USAGE, ReplyFinished("stop"))
    assert length.end(end) == closed


@pytest.mark.parametrize(
    "text", ["", '{"name": "pick", "arguments": {"code": "x', f"{CALL}}}", "[1"]
)
def test_a_reply_is_not_completed_unless_it_is_a_constrained_call_without_its_last_brace(
    text: str,
) -> None:
    length = ReplyLength(None, is_constrained=True)
    length.exceeds([TextDelta(text)])
    assert length.end([TextDelta(" ")]) == (TextDelta(" "), ReplyFinished("length"))
    plain = ReplyLength(None)
    assert plain.end([TextDelta(CALL)]) == (TextDelta(CALL), ReplyFinished("length"))
