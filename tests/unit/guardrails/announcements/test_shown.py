"""Sentences beside a call that say that it is only shown, in every language of announcements."""

import pytest

from proxy.guardrails.announcements.recognition import shows_last, shows_next
from tests.corpus.quotations import BEFORE, BEHIND


@pytest.mark.parametrize("words", BEFORE)
def test_it_is_shown_behind_these(words: str) -> None:
    assert shows_next(f"{words}\n")


@pytest.mark.parametrize("words", BEHIND)
def test_it_was_shown_before_these(words: str) -> None:
    assert shows_last(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "...",
        "Sure!\n",
        "The answer is:\n",
        "Let me look at the example file:\n",
        "I'll check: ",
    ],
)
def test_other_words_show_nothing(words: str) -> None:
    assert not shows_next(words)


@pytest.mark.parametrize("words", ["", "Done.", "I will tell you as soon as I know.", "Thank you!"])
def test_nor_do_these_behind_it(words: str) -> None:
    assert not shows_last(words)
