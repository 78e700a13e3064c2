"""The marked blocks of a page, whose figures a benchmark renews."""

import pytest

from benchmarks.pages import renew

PAGE = "Before.\n<!-- figures: {} -->\n\nold\n\n<!-- end of figures -->\nAfter.\n"
ALL, SCALING = PAGE.format("all"), PAGE.format("scaling")


def test_the_block_between_the_marks_of_a_page_is_replaced() -> None:
    renewed = renew(ALL, {"all": "first\n"})
    assert renewed == ALL.replace("old\n", "first\n")
    assert renew(renewed, {"all": "second\n"}) == ALL.replace("old\n", "second\n")


def test_a_block_without_new_figures_is_unchanged() -> None:
    assert renew(ALL + SCALING, {"scaling": "new\n"}) == ALL + SCALING.replace("old", "new")


def test_a_page_without_the_marks_of_the_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no mark <!-- figures: brief --> or <!-- figures: harm"):
        renew(ALL, {"brief": "new\n", "harm": "new\n"})
