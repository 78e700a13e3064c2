# ruff: noqa: RUF001 - letters of many scripts look alike
from dataclasses import fields as fields_of
from typing import get_args

import pytest

from proxy.guardrails.announcements.cues import Script, fold, load_languages, split_phrases
from tests.test_repository import REPOSITORY


@pytest.mark.parametrize(
    ("spelling", "other"),
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
def test_equivalent_spellings_are_normalized(spelling: str, other: str) -> None:
    assert fold(spelling) == fold(other)


def test_phrases_are_separated_by_commas_and_sorted_by_length() -> None:
    assert split_phrases("look,\n  look  into, Let me,,look") == ("look into", "let me", "look")


def test_an_empty_string_is_split_into_no_phrases() -> None:
    assert split_phrases("") == ()


def test_every_language_file_has_a_unique_language_and_no_colons_or_quotation_marks() -> None:
    files = [*(REPOSITORY / "config" / "announcements").iterdir()]
    languages = load_languages()
    assert len({language.language for language in languages}) == len(languages) == len(files)
    fields = [
        getattr(language, field.name) for language in languages for field in fields_of(language)
    ]
    texts = [field for field in fields if isinstance(field, str)]
    assert [text for text in texts if ":" in text or '"' in text] == []
    assert {language.script for language in languages} <= {*get_args(Script)}
