"""Whether a call was only copied from what the model was given to read, and who wrote that."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from itertools import islice, takewhile

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.examples import words_around_calls
from proxy.guardrails.rescue.provenance import Origin

_WORD = re.compile(r"[^\W_]+")
_MOST_WORDS = 40
_MOST_PLACES = 200  # in one text
_AROUND = 1_000  # to each side of a name
_MOST_TEXT = 500_000  # more than fits into any window
_NEAR = 100
# Kimi K3 without its control tokens: a value and the word behind it are one word.
_GLUED_VALUE_END = re.compile(r'argument(?=argument key="|call(?:call tool="|tools))')


class EarlierTexts:
    """What the model had been given to read: what users have `spoken`, and `results` of tools.

    What it takes to look for a call is made once of each text, however many calls there are.
    """

    def __init__(self, spoken: Sequence[str], results: Sequence[str]) -> None:
        self._spoken, self._results = spoken, results
        self._without_space = cache(_without_space)
        self._is_forbidden = cache(_is_forbidden)
        self._search = cache(_Searched)

    def find_origin(self, source: str, calls: Sequence[WrittenCall]) -> Origin:
        """Return who wrote a call before: the user, or a tool."""
        wanted = _without_space(source)
        by_user = [self._is_copied(wanted, one) for one in self._spoken]
        found = [
            one
            for one, is_copied in zip(self._spoken, by_user, strict=True)
            if is_copied or self._are_repeated(calls, one)
        ]
        of_tools = [
            one
            for one in self._results
            if self._is_copied(wanted, one) or self._are_repeated(calls, one)
        ]
        if any(self._is_forbidden(call.name, one) for call in calls for one in found + of_tools):
            return Origin.FORBIDDEN
        if any(by_user):
            return Origin.USER
        return Origin.RESULT if of_tools and not self._are_held(calls) else Origin.MODEL

    def _is_copied(self, wanted: str, text: str) -> bool:
        return bool(wanted) and wanted[0] in text and wanted in self._without_space(text)

    def _are_repeated(self, calls: Sequence[WrittenCall], text: str) -> bool:
        return bool(calls) and all(map(self._search(text).has, calls))

    @cached_property
    def _said(self) -> str:
        return " ".join(" ".join(self._spoken).casefold().split())

    def _are_held(self, calls: Sequence[WrittenCall]) -> bool:
        """Return whether the user has named every value of some calls."""
        values = [value for call in calls for value in _leaves(call.arguments)]
        return bool(values) and all(
            " ".join(one.casefold().split()) in self._said for one in values
        )


def is_same(one: WrittenCall, other: WrittenCall) -> bool:
    """Return whether two calls say the same, in whatever types and order."""
    said, also = (sorted(_words(call.arguments)) for call in (one, other))
    return one.name == other.name and said == also


def is_quoted(source: str, texts: Iterable[str]) -> bool:
    """Return whether a call's text is in one of `texts`, ignoring white space."""
    wanted = _without_space(source)
    if not wanted:
        return False
    return any(wanted[0] in text and wanted in _without_space(text) for text in texts)


def are_repeated(calls: Sequence[WrittenCall], texts: Sequence[str]) -> bool:
    """Return whether each call is in one of `texts`, in whatever syntax.

    Its name, members and values are together there, with only marks in between. Calls without
    arguments never count: their name alone is in many texts.
    """
    searched = [_Searched(text) for text in texts]
    return bool(calls) and all(any(one.has(call) for one in searched) for call in calls)


class _Searched:
    """A text in which calls are looked for."""

    def __init__(self, text: str) -> None:
        self._text = _GLUED_VALUE_END.sub(" argument ", text[:_MOST_TEXT])
        self._holds = cache(self._text.__contains__)
        self._find = cache(partial(_find_places, self._text))

    def has(self, call: WrittenCall) -> bool:
        words = [*_words(call.arguments)]
        wanted = {*words[:_MOST_WORDS]}
        if not words or not self._holds(call.name) or not all(map(self._holds, wanted)):
            return False
        known = {*words, *words_around_calls().labels}
        places = self._find(call.name)
        return any(wanted <= _words_around(known, self._text, name) for name in places)


def _words_around(known: Collection[str], text: str, name: re.Match[str]) -> set[str]:
    """Return the `known` words beside a name, with no other word in between."""
    before = text[max(name.start() - _AROUND, 0) : name.start()]
    behind = text[name.end() : name.end() + _AROUND]
    sides = reversed(_WORD.findall(before)), _WORD.findall(behind)
    return {word for side in sides for word in takewhile(known.__contains__, side)}


def _find_places(text: str, name: str) -> Sequence[re.Match[str]]:
    return [*islice(re.finditer(re.escape(name), text), _MOST_PLACES)]


@cache
def _forbids() -> re.Pattern[str]:
    return re.compile(words_around_calls().forbids, re.IGNORECASE | re.VERBOSE)


def _is_forbidden(name: str, text: str) -> bool:
    places = _find_places(text[:_MOST_TEXT], name)
    around = (text[max(one.start() - _NEAR, 0) : one.end() + _NEAR] for one in places)
    return any(map(_forbids().search, around))


def _words(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for name in value:
            yield from _WORD.findall(name)
    for leaf in _leaves(value):
        yield from _WORD.findall(leaf)


def _leaves(value: JsonValue) -> Iterator[str]:
    match value:
        case dict():
            for member in value.values():
                yield from _leaves(member)
        case list():
            for item in value:
                yield from _leaves(item)
        case str():
            yield value
        case _:
            yield json.dump_text(value)


def _without_space(text: str) -> str:
    return "".join(text.split())
