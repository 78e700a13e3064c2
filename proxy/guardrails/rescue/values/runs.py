"""Finds runs of complete members of a list or an object, and parses each run at once.

The lenient reader takes ten times as long for the same members, because it reads one member at a
time. Without runs, a hostile reply of 5 MB would delay other requests by seconds. A run contains
only unambiguous members. After the run, the lenient reader continues.

    1, 2, 'three', {"a": 4}, "he said "no""]    the run is 1, 2, 'three'. The last matching member,
                                                {"a": 4}, is not part of it, because later text
                                                may change this member.
"""

import json as stdlib_json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import jiter

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.values.escapes import STRICT_ESCAPE
from proxy.guardrails.rescue.values.scalars import WORDS

Members = TypeVar("Members", JsonObject, list[JsonValue])

WINDOW = 4_096  # characters that are searched for one run
DEPTH = 8  # levels of containers inside a member

_SPACE = r"[ \t\r\n]*+"
_JSON_STRING = rf'"(?:[^"\\\x00-\x1f]++|{STRICT_ESCAPE})*+"'
_STRING = rf"""(?:{_JSON_STRING}|'[^'"\\\x00-\x1f]*+')"""
_BARE_KEY = r"[A-Za-z_$][A-Za-z0-9_$.-]*+"
_KEY = rf"(?:{_STRING}|{_BARE_KEY})"
# The number of digits is limited, so that every match is within the reader's limit of digits and
# the range of a float.
_NUMBER = r"-?[0-9]{1,150}+(?:\.[0-9]{1,150}+)?+(?:[eE][-+]?[0-9]{1,2}+)?+(?![-+.0-9eE])"
_SCALAR = rf"{_STRING}|{_NUMBER}|(?:true|false|null|True|False|None)(?![\w$.-])"

# A comma follows a value; between two containers or two strings it may be missing.
_AFTER_ITEM = rf"""(?:{_SPACE},|(?<=[\]}}])(?={_SPACE}[\[{{])|(?<=["'])(?=[ \t\r\n]++["']))"""
_AFTER_MEMBER = f"{_SPACE},"
# The parts of a run that may deviate from JSON: strings, bare keys and words, and missing commas.
# `_to_json` replaces each of them.
_FOREIGN = re.compile(
    possessive(
        rf"""({_STRING})([ \t\r\n]++(?=["']))?+|({_BARE_KEY})({_SPACE}[:=])?+"""
        rf"|[\]}}](?={_SPACE}[\[{{])"
    )
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_BARE_ITEMS = re.compile(possessive(rf"""(?:{_SPACE}[^\W\d][^,{{}}\[\]<>"'`\r\n]*+,){{2,}}+"""))


@dataclass(frozen=True, slots=True)
class MemberRun(Generic[Members]):
    """Consecutive members; `length` is their number of characters, including the last comma.

    `size` is the approximate number of members and containers at all depths.
    """

    members: Members
    length: int
    size: int


class RunFinder(Generic[Members]):
    """Finds members of one kind of container: a value between the patterns `start` and `end`.

    With the brackets `opening` and `closing`, the members become a JSON document.
    """

    def __init__(self, start: str, end: str, opening: str, closing: str) -> None:
        self._around = start, end
        self._opening = opening
        self._closing = closing

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The pattern of a run; compiling it takes 20 ms, and few replies need it."""
        start, end = self._around
        # The group `last` marks the start of the last member. This member is not part of the run,
        # because later text may change it.
        member = rf"{_SPACE}(?P<last>){start}{_value(DEPTH)}{end}"
        return re.compile(possessive(f"(?:{member})++"))

    def find(self, text: str) -> MemberRun[Members] | None:
        """Return the members at the start of `text`, except the last; None if no others remain."""
        match = self._pattern.match(text)
        length = match.start("last") if match else 0
        source = text[:length].rstrip(" \t\r\n").removesuffix(",")
        if not source:
            return None
        document = self._opening + source + self._closing
        members = self._parse(document)  # most runs are valid JSON already
        if members is None:
            document = _FOREIGN.sub(_to_json, document)
            members = self._parse(document)
        size = sum(map(document.count, ",[{"))
        return None if members is None else MemberRun(members, length, size)

    def _parse(self, document: str) -> Members | None:
        """Parse members; return None if they are invalid or a key has two different values."""
        members: Members
        try:
            members = jiter.from_json(
                document.encode(), allow_inf_nan=False, catch_duplicate_keys=True
            )
        except ValueError:
            # A repeated key is invalid for the parser, but accepted here if its values are equal.
            try:
                jiter.from_json(document.encode(), allow_inf_nan=False)
                members = stdlib_json.loads(document, object_pairs_hook=_join_repeated)
            except ValueError:
                return None
        return members


def _join_repeated(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    """Return the members of an object; raises ValueError if a key has two different values."""
    members: JsonObject = {}
    for key, value in pairs:
        if members.setdefault(key, value) != value:
            raise ValueError(key)
    return members


def _to_json(match: re.Match[str]) -> str:
    """Return JSON text for a match of `_FOREIGN`: `'a'` becomes `"a"`, `True` becomes `true`."""
    string, is_followed, word, is_key = match.groups()
    if string:
        return f'"{string[1:-1]}"' + ("," if is_followed else "")
    if word:
        return f'"{word}":' if is_key else _WORDS.get(word, word)
    return match[0] + ","


def _value(depth: int) -> str:
    """Return a pattern for a value; it also matches lists with keys, which the parser rejects."""
    if depth == 0:
        return f"(?:{_SCALAR})"
    key = rf"(?:{_KEY}{_SPACE}:{_SPACE})?+"
    separator = rf"{_SPACE}(?:,{_SPACE}(?![\]}}])|(?=[\]}}]))"
    return rf"(?:{_SCALAR}|[\[{{]{_SPACE}(?:{key}{_value(depth - 1)}{separator})*+[\]}}])"


def find_bare_items(text: str) -> MemberRun[list[JsonValue]] | None:
    """Return the items without quotation marks at the start of `text`: `x y, z,` -> x y, z."""
    match = _BARE_ITEMS.match(text)
    if match is None:
        return None
    source = map(str.strip, match[0][:-1].split(","))
    items = [WORDS.get(item, item) for item in source]
    return MemberRun(items, match.end(), len(items))


ITEMS: RunFinder[list[JsonValue]] = RunFinder("", _AFTER_ITEM, "[", "]")
MEMBERS: RunFinder[JsonObject] = RunFinder(f"{_KEY}{_SPACE}:{_SPACE}", _AFTER_MEMBER, "{", "}")
KEYWORDS: RunFinder[JsonObject] = RunFinder(
    f"{_BARE_KEY}{_SPACE}={_SPACE}", _AFTER_MEMBER, "{", "}"
)
