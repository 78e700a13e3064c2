"""Reads the phrases that announce a tool call in each language, from `config/announcements`.

Phrases are in lower case and separated by commas. `*` matches any letters of one word. In a script
without spaces, it matches a few characters. `,` and `:` cannot be part of a phrase. From
english.toml:

    openings = "i'll, i will, let me, ..."
    acts = "check, look, search, ..."
"""

# ruff: noqa: RUF001 - marks of many scripts look alike

import tomllib
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proxy.files import list_shipped

# Letters with several forms are replaced by one form: apostrophes, and the two marks of Hindi for a
# nasal vowel. A Turkish capital İ becomes `i`, because casefold() would make it two characters.
# Arabic vowel marks are optional, so they are removed.
_FOLDED = str.maketrans(
    {"’": "'", "ʼ": "'", "ँ": "ं", "İ": "i", **dict.fromkeys(map(chr, range(0x64B, 0x653)), "")}
)


# The script of a language; a sentence is matched only against the languages of its script.
Script: TypeAlias = Literal["latin", "cyrillic", "arabic", "devanagari", "han", "kana", "hangul"]


@dataclass(frozen=True, slots=True)
class Cues:
    """The phrases of a language; `config/announcements/english.toml` describes each field.

    A sentence announces a tool call if it contains a cue and no phrase of the `bars`.
    """

    language: str
    script: Script
    openings: str = ""
    fillers: str = ""
    gap: int = 0
    acts: str = ""
    subjects: str = ""
    verbs: str = ""
    forms: str = ""
    starts: str = ""
    trailing: str = ""
    leads: str = ""
    stems: str = ""
    suffixes: str = ""
    endings: str = ""
    wholes: str = ""
    particles: str = ""
    bars: str = ""
    requests: str = ""
    bars_before: str = ""
    bars_beside: str = ""
    bars_after: str = ""
    bars_inside: str = ""
    finites: str = ""
    clauses: str = ""
    urgencies: str = ""
    sayings: str = ""
    afterthoughts: str = ""
    quotes: str = ""
    reports: str = ""
    is_spaced: bool = True


def load_languages() -> tuple[Cues, ...]:
    """Read every language, ordered by the name of its file."""
    texts = (file.read_text(encoding="utf-8") for file in list_shipped("announcements"))
    return tuple(Cues(**tomllib.loads(text)) for text in texts)


def fold(text: str) -> str:
    """Normalize letters that have several forms, and letter case."""
    return unicodedata.normalize("NFC", text).translate(_FOLDED).casefold()


def split_phrases(field: str) -> tuple[str, ...]:
    """Return the phrases of a field, the longest first."""
    phrases = {" ".join(phrase.split()) for phrase in fold(field).split(",")}
    return tuple(sorted(phrases - {""}, key=lambda phrase: (-len(phrase), phrase)))
