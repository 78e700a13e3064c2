# ruff: noqa: RUF001 - letters of many scripts look alike
import pytest

from proxy.guardrails.announcements.cues import folded, phrases


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I’ll", "i'll"),
        ("Überprüfe", "überprüfe"),
        ("u\u0308ber", "über"),
        ("إليّ", "إلي"),
        ("हूँ", "हूं"),
        ("İnceliyorum", "inceliyorum"),
        ("ढूँढ़", "ढूँढ\u093c"),
    ],
)
def test_ways_to_write_the_same_letters_are_made_equal(one: str, other: str) -> None:
    assert folded(one) == folded(other)


def test_phrases_are_separated_by_commas_and_the_longest_comes_first() -> None:
    assert phrases("look,\n  look  into, Let me,,look") == ("look into", "let me", "look")


def test_an_empty_field_has_no_phrases() -> None:
    assert phrases("") == ()
