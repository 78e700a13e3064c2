"""Whether a call was only copied from what the model was given to read, and who wrote that."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, takewhile

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.examples import words_around_calls
from proxy.guardrails.rescue.provenance import Origin

_WORD = re.compile(r"[^\W_]+")
_MOST_WORDS = 40
_MOST_PLACES = 200  # in one text
_SIGHT = 1_000  # to each side of a name
_MOST_TEXT = 500_000  # more than fits into any window
_NEAR = 100


def find_origin(
    source: str, calls: Sequence[WrittenCall], spoken: Sequence[str], results: Sequence[str]
) -> Origin:
    """Return who wrote a call before: the user in what was `spoken`, or a tool in `results`."""
    every = (*spoken, *results)
    quoted = [is_quoted(source, (one,)) for one in every]
    texts = [
        one
        for one, is_copied in zip(every, quoted, strict=True)
        if is_copied or are_repeated(calls, (one,))
    ]
    if not texts:
        return Origin.MODEL
    if any(_is_forbidden(call.name, one) for call in calls for one in texts):
        return Origin.FORBIDDEN
    if any(quoted[: len(spoken)]):
        return Origin.USER
    is_from_result = any(one in results for one in texts)
    return Origin.RESULT if is_from_result and not _are_held(calls, spoken) else Origin.MODEL


def _are_held(calls: Sequence[WrittenCall], spoken: Sequence[str]) -> bool:
    said = " ".join(" ".join(spoken).casefold().split())
    return all(
        " ".join(value.casefold().split()) in said
        for call in calls
        for value in _leaves(call.arguments)
    ) and any(True for call in calls for _ in _leaves(call.arguments))


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
    return bool(calls) and all(_is_repeated(call, texts) for call in calls)


def _is_repeated(call: WrittenCall, texts: Sequence[str]) -> bool:
    words = [*_words(call.arguments)]
    known, wanted = {*words, *words_around_calls().labels}, {*words[:_MOST_WORDS]}
    return bool(words) and any(
        wanted <= _words_around(known, text, name)
        for text in texts
        for name in islice(re.finditer(re.escape(call.name), text[:_MOST_TEXT]), _MOST_PLACES)
    )


def _words_around(known: Collection[str], text: str, name: re.Match[str]) -> set[str]:
    """Return the `known` words beside a name, with no other word in between."""
    before = text[max(name.start() - _SIGHT, 0) : name.start()]
    behind = text[name.end() : name.end() + _SIGHT]
    sides = reversed(_WORD.findall(before)), _WORD.findall(behind)
    return {word for side in sides for word in takewhile(known.__contains__, side)}


@cache
def _forbids() -> re.Pattern[str]:
    return re.compile(words_around_calls().forbids, re.IGNORECASE | re.VERBOSE)


def _is_forbidden(name: str, text: str) -> bool:
    places = islice(re.finditer(re.escape(name), text[:_MOST_TEXT]), _MOST_PLACES)
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
