"""Whether a quotation mark ends the string it stands in.

A quotation mark inside a string is often not escaped. One ends the string only if what stands
behind it can follow a string there; in correct JSON that is always so.
"""

# ruff: noqa: RUF001 - some quotation marks are a typesetter's

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.escapes import WHOLE_ESCAPE

QUOTES = ('"', "'")
CURLY_QUOTES = {"“": "”", "‘": "’"}
_SIGHT = 256  # how far to look behind a quotation mark

_COMMENTS = ("//", "/*", "# ")
_KEY = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|“[^”]*”|‘[^’]*’|[\w$.-]+)\s*[:=]""", re.DOTALL
)
_KEY_BEGINS = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*\\?|'(?:[^'\\]|\\.)*\\?|"(?:[^"\\]|\\.)*"\s*|'(?:[^'\\]|\\.)*'\s*"""
    r"""|“[^”]*|‘[^’]*|(?:“[^”]*”|‘[^’]*’)\s*|[\w$.-]+\s*)""",
    re.DOTALL,
)
_ITEM = re.compile(r"""["'“‘\[{(0-9-]|(?:true|false|null|True|False|None)\b|[A-Za-z_.]+\(""")
_ITEM_BEGINS = re.compile(r"[\w.]+")
_BEHIND_CONTAINER = "\"'“‘{[<,/#"
_BEHIND_COMMA = "/<&"
_PERHAPS_BEHIND_COMMA = f"{_BEHIND_COMMA}#“‘"

# The same for the most frequent cases, within sight and only where the answer is no.
_SPACE = r"\s{0,40}+"
_NO_KEY_QUOTED = rf"""(?:"[^"\\]{{0,80}}+"|'[^'\\]{{0,80}}+'){_SPACE}(?=[^\s:=])"""
_NO_KEY_BARE = r"[\w$.-]{0,80}+(?:\s{1,40}+(?=[^\s:=])|(?=[^\s\w$.:=-]))"
_NO_ITEM = rf"(?!{_ITEM.pattern})[\w.]{{0,80}}+(?=[^\w.])"


@dataclass(frozen=True, slots=True)
class Around:
    """Where a string stands: what closes the containers around it, "" where there is none.

    `ends` are the marks that stand behind the whole value.
    """

    closer: str = ""
    outer: str = ""
    is_list: bool = False
    is_key: bool = False
    ends: tuple[str, ...] = ()


def can_end(cursor: Cursor, around: Around, length: int) -> bool:
    """Return whether a string of this length, which comes next, is known to end there."""
    if not around.closer or around.is_key:
        return True
    text, _ = cursor.glimpse(_SIGHT, length)
    return _can_follow(text.lstrip(), around, is_apart=text[:1].isspace()) is True


def is_end(cursor: Cursor, around: Around) -> Waiting[bool]:
    """Return whether the quotation mark that was passed last is the end."""
    if not around.closer or around.is_key:
        return True
    while True:
        text, is_all = cursor.glimpse(_SIGHT)
        answer = _can_follow(text.lstrip(), around, is_apart=text[:1].isspace())
        if answer is None and is_all:
            return not text.strip() or text.lstrip()[0] in (",", around.closer)
        if answer is not None:
            return answer
        yield


@lru_cache(maxsize=256)
def still_inside(quote: str, around: Around) -> re.Pattern[str]:
    """Return a pattern for text up to an escape or a mark that does not end the string.

    It takes as many of these as there are, but nothing of what `ends` the value around.
    """
    beginnings = _class({end[0] for end in around.ends})
    ends = "|".join(map(re.escape, around.ends))
    plain = rf"[^{quote}\\{beginnings}]++" + (rf"|(?!{ends})[{beginnings}]" if ends else "")
    pattern = rf"(?:(?:{plain})*+(?:{WHOLE_ESCAPE}|{quote}(?={_not_behind(around)})))++"
    return re.compile(possessive(pattern), re.DOTALL)


def _not_behind(around: Around) -> str:
    """Write a pattern for what certainly cannot follow a string."""
    closer = _class(around.closer)
    expected = _class({*"\"'“‘,/#", around.closer, *(end[0] for end in around.ends)})
    not_next = (
        rf"(?![\s{closer}{_PERHAPS_BEHIND_COMMA}])(?:{_NO_ITEM})"
        if around.is_list
        else rf"(?:{_NO_KEY_QUOTED}|(?![\s{closer}{_PERHAPS_BEHIND_COMMA}\"']){_NO_KEY_BARE})"
    )
    return "|".join(
        (
            rf"{_SPACE}[^\s{expected}]",
            rf"{_SPACE},{_SPACE}{not_next}",
            "[\"']" if around.is_list else _SPACE + _NO_KEY_QUOTED,
            rf"{_SPACE}[{closer}]{_SPACE}{_not_behind_container(around)}",
        )
    )


def _not_behind_container(around: Around) -> str:
    if around.outer:
        return rf"[^\s{_class(_BEHIND_CONTAINER + around.outer)}]"
    return "[\"')]" if around.closer == ")" else "(?!)"


def _class(characters: Iterable[str]) -> str:
    """Write characters for use in a character class."""
    return "".join(map(re.escape, sorted(characters)))


def _can_follow(text: str, around: Around, *, is_apart: bool) -> bool | None:
    """Return whether this text can follow a string; None if only more text can tell."""
    if not text:
        return None
    if text[0] == around.closer:
        return _can_follow_container(text[1:].lstrip(), around)
    if text[0] == ",":
        return _can_be_next(text[1:].lstrip(), around)
    if text[0] in QUOTES or text[0] in CURLY_QUOTES:  # a comma is missing, or this is not the end
        return is_apart if around.is_list else _matches(_KEY, _KEY_BEGINS, text)
    if text[0] == "#" and not is_apart:
        return False
    return _is_at((*_COMMENTS, *around.ends), text)


def _can_follow_container(text: str, around: Around) -> bool | None:
    if not around.outer and around.closer != ")":
        return True
    if not text:
        return None
    return (
        text[0] not in "\"')" if not around.outer else text[0] in _BEHIND_CONTAINER + around.outer
    )


def _can_be_next(text: str, around: Around) -> bool | None:
    """Return whether this text can be the next member of the container."""
    if not text:
        return None
    if text[0] == around.closer or text[0] in _BEHIND_COMMA:
        return True
    if text[0] == "#":
        return _is_at(_COMMENTS, text)
    if around.is_list:
        return _matches(_ITEM, _ITEM_BEGINS, text)
    return _matches(_KEY, _KEY_BEGINS, text)


def _matches(pattern: re.Pattern[str], beginning: re.Pattern[str], text: str) -> bool | None:
    if pattern.match(text):
        return True
    return None if beginning.fullmatch(text) else False


def _is_at(marks: Iterable[str], text: str) -> bool | None:
    """Return whether a text begins with one of these marks; None if it may turn out to."""
    if text.startswith(tuple(marks)):
        return True
    return None if any(mark.startswith(text) for mark in marks) else False
