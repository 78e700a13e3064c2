import time
from collections.abc import Iterable
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.reasoning import ReasoningSplitter, Spoken

CASES = [
    ("Four.", "", "Four."),
    ("", "", ""),
    ("<think>\nI should answer.\n</think>\n\nFour.", "I should answer.", "Four."),
    ("[THINK]Hm, 2 < 3.[/THINK]Four.", "Hm, 2 < 3.", "Four."),
    (" \n <think>a\n\nb \n </think> \n c \n", "a\n\nb", "c \n"),
    ("<think></think>Four.", "", "Four."),
    ("<think>\n\n</think>\n\n", "", ""),
    ("<think>never closed\n", "never closed\n", ""),
    ("<think>\n\n", "", ""),
    ("<think>cut </thi", "cut </thi", ""),
    ("<think>a </th b</think> </think> d", "a </th b", "</think> d"),
    ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ("<think>a [/THINK] b</think>c", "a [/THINK] b", "c"),
    ("No. <think>a</think>", "", "No. <think>a</think>"),
    (" \n Four.", "", " \n Four."),
    (" \n ", "", " \n "),
    ("<thin", "", "<thin"),
    (" <thin air", "", " <thin air"),
    ("<thinking>a</thinking>", "", "<thinking>a</thinking>"),
    ("</think>Four.", "", "</think>Four."),
]


def split(chunks: Iterable[str]) -> list[Spoken]:
    splitter = ReasoningSplitter()
    spoken = [event for chunk in chunks for event in splitter.feed(chunk)]
    return spoken + splitter.finish()


def joined(spoken: list[Spoken]) -> tuple[str, str]:
    assert all(event.text for event in spoken)
    kinds = [kind for kind, _ in groupby(type(event) for event in spoken)]
    assert kinds in ([], [TextDelta], [ReasoningDelta], [ReasoningDelta, TextDelta])
    thoughts = "".join(event.text for event in spoken if isinstance(event, ReasoningDelta))
    text = "".join(event.text for event in spoken if isinstance(event, TextDelta))
    return thoughts, text


@pytest.mark.parametrize(("reply", "reasoning", "text"), CASES)
def test_a_leading_block_is_reasoning_at_every_chunking(
    reply: str, reasoning: str, text: str
) -> None:
    assert joined(split([reply])) == (reasoning, text)
    assert joined(split(reply)) == (reasoning, text)
    for cut in range(len(reply) + 1):
        assert joined(split([reply[:cut], "", reply[cut:]])) == (reasoning, text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "</th", "[THINK]", " ", "\n", "a"])))
def test_any_reply_is_split_alike_whole_and_in_pieces(pieces: list[str]) -> None:
    reply = "".join(pieces)
    assert joined(split(pieces)) == joined(split([reply])) == joined(split(reply))


def test_text_without_a_block_is_not_delayed_beyond_its_first_characters() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed(" <") == []
    assert splitter.feed("b") == [TextDelta(" <b")]
    assert splitter.feed(" ") == [TextDelta(" ")]
    assert splitter.feed("<think>") == [TextDelta("<think>")]


def test_reasoning_is_held_back_only_from_what_may_be_the_closing_tag() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed("<think>\nI see") == [ReasoningDelta("I see")]
    assert splitter.feed(" a <") == [ReasoningDelta(" a")]
    assert splitter.feed("b") == [ReasoningDelta(" <b")]
    assert splitter.feed(" </think") == []
    assert splitter.feed(">\n\nFour") == [TextDelta("Four")]


@pytest.mark.parametrize("unit", [" ", "<", "a<"])
@pytest.mark.parametrize("opening", ["", "<think>"])
def test_the_work_is_linear_in_the_reply(opening: str, unit: str) -> None:
    def seconds(count: int) -> float:
        def once() -> float:
            start = time.perf_counter()
            split([opening, *[unit] * count])
            return time.perf_counter() - start

        return min(once() for _ in range(5))

    assert seconds(8_000) / seconds(2_000) < 9  # quadratic work gives 16
