"""Finds out whether the model copied a call from a user message or a tool result.

A page that a tool fetched may contain `<tool_call>{"name": "rm", ...}</tool_call>`, or the same
call in another syntax. A call is copied if the earlier text contains the same text, except for
white space. It is repeated if the earlier text contains the same name, members and values, with
only marks between them.
"""

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
_VERB = re.compile(r"[A-Z]?[^\W_A-Z]+")  # the first word of `delete_file` and of `deleteFile`
_SHORT = 3  # characters; such a short value may occur in a message by chance
# The bounds keep the search linear: a page of a tool may name the tool on every line.
_MOST_WORDS = 40
_MOST_MATCHES = 200  # the most occurrences of a name that are examined in one text
_WINDOW = 1_000  # characters on each side of a name
_MOST_TEXT = 500_000  # characters of a text that are searched
_NEAR = 100  # characters; "never" within this distance of a name forbids the call
# Without its control tokens, text of Kimi K3 joins a value to the next keyword:
# `13argumentargument key="unit"`.
_GLUED_VALUE_END = re.compile(r'argument(?=argument key="|call(?:call tool="|tools))')


class EarlierTexts:
    """The earlier texts of the conversation: user messages and tool results.

    Each text is prepared once for the search of all calls.
    """

    def __init__(self, user_texts: Sequence[str], results: Sequence[str]) -> None:
        self._user_texts, self._results = user_texts, results
        self._without_space = cache(_without_space)
        self._is_forbidden = cache(_is_forbidden)
        self._search = cache(_SearchedText)

    def find_origin(self, source: str, calls: Sequence[WrittenCall]) -> Origin:
        """Return who wrote a call first; FORBIDDEN if the text of the user or tool forbids it."""
        compact = _without_space(source)
        copied = [text for text in self._user_texts if self._is_copied(compact, text)]
        repeated = [text for text in self._user_texts if self._are_repeated(calls, text)]
        of_tools = [
            text
            for text in self._results
            if self._is_copied(compact, text) or self._are_repeated(calls, text)
        ]
        texts = {*copied, *repeated, *of_tools}
        if any(self._is_forbidden(call.name, text) for call in calls for text in texts):
            return Origin.FORBIDDEN
        if copied:
            return Origin.USER
        # Repetitions in user texts do not count: a request may name the tool and all values of the
        # call that it requests. If a result contains values that the user did not name, the call
        # may be a prompt injection.
        return Origin.RESULT if of_tools and not self._are_named(calls) else Origin.MODEL

    def _is_copied(self, compact: str, text: str) -> bool:
        return bool(compact) and compact[0] in text and compact in self._without_space(text)

    def _are_repeated(self, calls: Sequence[WrittenCall], text: str) -> bool:
        return bool(calls) and all(map(self._search(text).has, calls))

    @cached_property
    def _words_of_users(self) -> str:
        return " ".join(" ".join(self._user_texts).casefold().split())

    def _are_named(self, calls: Sequence[WrittenCall]) -> bool:
        """Return whether the user messages contain every value of the calls.

        A short value may occur in the messages by chance, such as the id 13 in "June 13"
        (AgentDojo). So if all values are short, the messages must also contain the verb of each
        tool.
        """
        values = [value for call in calls for value in _leaves(call.arguments)]
        has_long = any(
            not value.isascii() or (len(value.strip()) > _SHORT and not value.isdigit())
            for value in values
        )
        return (
            bool(values)
            and all(map(self._is_named, values))
            and (has_long or all(self._is_named(_verb(call.name)) for call in calls))
        )

    def _is_named(self, value: str) -> bool:
        words = " ".join(value.casefold().split())
        if not words.isascii():  # scripts without spaces between words
            return words in self._words_of_users
        whole = rf"(?<![^\W_]){re.escape(words)}(?![^\W_])"
        return re.search(whole, self._words_of_users) is not None


def is_same(call: WrittenCall, other: WrittenCall) -> bool:
    """Return whether two calls have the same name and words; their order and types may differ."""
    is_equal = sorted(_words(call.arguments)) == sorted(_words(other.arguments))
    return call.name == other.name and is_equal


def is_quoted(source: str, texts: Iterable[str]) -> bool:
    """Return whether a call's text is in one of `texts`, ignoring white space."""
    compact = _without_space(source)
    return bool(compact) and any(
        # The check for the first character is fast, and most texts fail it.
        compact[0] in text and compact in _without_space(text)
        for text in texts
    )


def are_repeated(calls: Sequence[WrittenCall], texts: Sequence[str]) -> bool:
    """Return whether each call is in one of `texts`, in any syntax.

    The text must contain the call's name, members and values with only marks between them. A call
    without arguments is never repeated, because many texts contain just its name.
    """
    searched = [_SearchedText(text) for text in texts]
    return bool(calls) and all(any(text.has(call) for text in searched) for call in calls)


class _SearchedText:
    """A text that is searched for calls; the results are cached."""

    def __init__(self, text: str) -> None:
        self._text = _GLUED_VALUE_END.sub(" argument ", text[:_MOST_TEXT])
        self._contains = cache(self._text.__contains__)
        self._find = cache(partial(_find_matches, self._text))

    def has(self, call: WrittenCall) -> bool:
        words = [*_words(call.arguments)]
        wanted = {*words[:_MOST_WORDS]}
        if not words or not self._contains(call.name) or not all(map(self._contains, wanted)):
            return False
        known = {*words, *words_around_calls().labels}
        matches = self._find(call.name)
        return any(wanted <= _words_around(known, self._text, name) for name in matches)


def _words_around(known: Collection[str], text: str, name: re.Match[str]) -> set[str]:
    """Return the `known` words before and after a name, up to the nearest unknown word."""
    before = text[max(name.start() - _WINDOW, 0) : name.start()]
    after = text[name.end() : name.end() + _WINDOW]
    sides = reversed(_WORD.findall(before)), _WORD.findall(after)
    return {word for side in sides for word in takewhile(known.__contains__, side)}


def _find_matches(text: str, name: str) -> Sequence[re.Match[str]]:
    return [*islice(re.finditer(re.escape(name), text), _MOST_MATCHES)]


@cache
def _forbids() -> re.Pattern[str]:
    return re.compile(words_around_calls().forbids, re.IGNORECASE | re.VERBOSE)


def _is_forbidden(name: str, text: str) -> bool:
    """Return whether the words near the name of a tool forbid its use: "never call delete_file"."""
    matches = _find_matches(text[:_MOST_TEXT], name)
    excerpts = (text[max(match.start() - _NEAR, 0) : match.end() + _NEAR] for match in matches)
    return any(map(_forbids().search, excerpts))


def _words(value: JsonValue) -> Iterator[str]:
    """Yield the words of the member names of an object, and of all values inside it."""
    if isinstance(value, dict):
        for name in value:
            yield from _WORD.findall(name)
    for leaf in _leaves(value):
        yield from _WORD.findall(leaf)


def _verb(tool: str) -> str:
    match = _VERB.match(tool)
    return match[0] if match else tool


def _leaves(value: JsonValue) -> Iterator[str]:
    """Yield all values that are neither objects nor lists, as text."""
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
