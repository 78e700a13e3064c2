"""Cuts a text into the pieces that spellings of calls consist of, and a tag into its words."""

# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

import re
from collections.abc import Iterator
from typing import NamedTuple

from proxy.conversation.possessive import possessive

# Every alternative is bounded, or passes all that it has looked at: the work is linear.
_TOKEN = re.compile(
    possessive(
        r"""(?P<control><[|｜][^<>\s]{1,60}>)
    |(?P<closer></[^<>]{1,80}>)
    |(?P<tag><[\w:][^<>{}]{0,200}>)
    |(?P<fence>```[\w-]*)
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?<!\w)'[^'\\]*+(?:\\.[^'\\]*+)*+')
    |(?P<torn>(?:"|(?<!\w)').*|<[^<>]{0,200}\Z)
    |(?P<word>\w{1,100}+(?:[.-]\w{1,100}+){0,9}+(?:[.-]\Z)?)
    |(?P<marks>[\s{}()\[\]=:,;|@\#$/>-]{1,400}+|<)
    |(?P<other>.)"""
    ),
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([\w:][\w.:-]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'/>]+))?""")
_SEPARATOR = re.compile(r"\s{0,40}+(?:(?:=>|:=|=|:)\s{0,40}+|(?<=\s)(?=[\"']))")
_BARE = re.compile(r"[^\n,;|<>(){}\[\]\"'`]{0,200}")


class Token(NamedTuple):
    """A piece of one kind: `control`, `tag`, `word` and so on; `torn` is what has no end."""

    kind: str
    text: str
    end: int


def token_at(text: str, place: int) -> Token:
    """Return the piece that begins at `place`, which is within the text."""
    found = _TOKEN.match(text, place)
    assert found is not None  # noqa: S101 - one alternative takes anything
    return Token(str(found.lastgroup), found[0], found.end())


def attributes(tag: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a tag, each with the value behind it, which is empty if there is none."""
    for word, value in _ATTRIBUTE.findall(tag):
        yield word, value.strip("\"'")


def value_place(text: str, place: int) -> int:
    """Return where the value begins behind a key that ends at `place`; -1 if it is no key."""
    found = _SEPARATOR.match(text, place)
    return -1 if found is None else found.end()


def bare_value(text: str, place: int) -> str:
    """Return what stands at `place` without quotation marks or brackets around it, if anything."""
    found = _BARE.match(text, place)
    return "" if found is None else found[0]
