import pytest

from proxy.guardrails.rescue.surroundings import Surroundings
from tests.fakes.arrivals import chunkings


def after(text: str) -> tuple[bool, bool]:
    """Return whether the place behind `text` is a quotation and whether it begins a line."""
    results = set()
    for pieces in chunkings(text):
        surroundings = Surroundings()
        for piece in pieces:
            surroundings.pass_prose(piece)
        results.add((surroundings.is_quotation, surroundings.is_line_start))
    assert len(results) == 1
    return results.pop()


@pytest.mark.parametrize(
    "text",
    [
        "```\n",
        "```xml\nlike this: ",
        "text\n  ```json\n{}\n",
        "````\n",
        "```\none\n```\n```\n",
        "``` a ` b\nc",
        "Write `",
        "`a` and `",
        "`",
        "say '",
        'say "',
        "say “",
        "say «",
        "```\n```` `",
    ],
)
def test_code_and_quote_marks_make_a_quotation(text: str) -> None:
    assert after(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text ",
        "`a` and ",
        "an open ` on another line\n",
        "```\ncode\n```\n",
        "```\ncode\n``` ",
        "in the line `` is nothing",
        "``",
        "``a``",
        "it's ",
        '"so" ',
    ],
)
def test_other_places_are_the_models_own_words(text: str) -> None:
    assert not after(text)[0]


@pytest.mark.parametrize(
    ("text", "is_start"), [("", True), ("\n \t", True), ("a", False), ("a\n", True), ("\n`", False)]
)
def test_a_line_begins_behind_indentation_only(text: str, is_start: bool) -> None:
    assert after(text)[1] == is_start


def test_behind_a_call_nothing_is_quoted_and_no_line_begins() -> None:
    surroundings = Surroundings()
    surroundings.pass_call()
    assert (surroundings.is_quotation, surroundings.is_line_start) == (False, False)
