"""Whether a call was only copied from what the model had been given to read."""

import re
from collections.abc import Iterable, Iterator, Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall

_WORD = re.compile(r"\w+")
# What syntaxes of calls put between a name, the members and their values, besides marks.
_LABELS = frozenset(
    (
        *("arguments", "args", "arg_key", "arg_value", "parameter", "parameters", "kwargs"),
        *("input", "name", "function", "tool", "tool_name", "tool_call", "invoke", "call", "type"),
        *("key", "string", "number", "boolean", "value"),
    )
)
_MOST_WORDS = 40
_MOST_LABELS = 80  # in one call
_MOST_TEXT = 500_000  # more of one text fits into no window


def is_quoted(source: str, texts: Iterable[str]) -> bool:
    """Return whether a call's text stands in one of `texts`, white space aside."""
    wanted = _without_space(source)
    if not wanted:
        return False
    return any(wanted[0] in text and wanted in _without_space(text) for text in texts)


def are_repeated(calls: Sequence[WrittenCall], texts: Sequence[str]) -> bool:
    """Return whether each call stands in one of `texts`, in whatever syntax.

    Its name, members and values stand there in their order, with nothing but marks in between.
    Calls without arguments never count: their name alone is in many texts.
    """
    return bool(calls) and all(_is_repeated(call, texts) for call in calls)


def _is_repeated(call: WrittenCall, texts: Sequence[str]) -> bool:
    words = [*_words(call.arguments)][:_MOST_WORDS]
    if not words:
        return False
    return any(
        _stands_behind(words, text, name.end())
        for text in texts
        for name in re.finditer(re.escape(call.name), text[:_MOST_TEXT])
    )


def _stands_behind(words: Sequence[str], text: str, place: int) -> bool:
    """Return whether words follow in their order, with nothing but labels and marks between."""
    wanted = iter(words)
    word = next(wanted, None)
    labels = 0
    for found in _WORD.finditer(text, place):
        if found[0] == word:
            word = next(wanted, None)
            if word is None:
                return True
        elif found[0] in _LABELS and labels < _MOST_LABELS:
            labels += 1
        else:
            return False
    return False


def _words(value: JsonValue) -> Iterator[str]:
    match value:
        case dict():
            for name, member in value.items():
                yield from _WORD.findall(name)
                yield from _words(member)
        case list():
            for item in value:
                yield from _words(item)
        case _:
            yield from _WORD.findall(value if isinstance(value, str) else json.dump_text(value))


def _without_space(text: str) -> str:
    return "".join(text.split())
