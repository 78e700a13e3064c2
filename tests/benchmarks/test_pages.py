import pytest

from benchmarks.pages import renew

PAGE = "Before.\n<!-- figures: {} -->\n\nold\n\n<!-- end of figures -->\nBehind.\n"
ALL, SCALING = PAGE.format("all"), PAGE.format("scaling")


def test_page_is_updated_at_its_marks() -> None:
    once = renew(ALL, {"all": "first\n"})
    assert once == ALL.replace("old\n", "first\n")
    assert renew(once, {"all": "second\n"}) == ALL.replace("old\n", "second\n")


def test_a_mark_without_figures_keeps_what_it_has() -> None:
    assert renew(ALL + SCALING, {"scaling": "new\n"}) == ALL + SCALING.replace("old", "new")


def test_a_page_without_the_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="no mark <!-- figures: brief --> or <!-- figures: harm"):
        renew(ALL, {"brief": "new\n", "harm": "new\n"})
