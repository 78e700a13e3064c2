"""Finds the offered tool that a written name means, if it can only mean one.

`find_name` compares names word by word, without the prefixes, numbers and markup that models add.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from proxy.conversation.tools import Tool

_PREFIXES = (
    *("functions.", "functions/", "functions:", "function.", "function/"),
    *("tools.", "tools/", "tools:", "tool.", "tool/"),
    *("default_api:", "default_api."),
)
_NUMBERED = re.compile(r"(.+):\d+|functions_(.+)_\d+")
_QUOTES = " \t\r\n\"'`*"  # models write names in these
# Between words: a dot, a dash, an underscore, white space, or where a capital letter begins one.
_BETWEEN = re.compile(r"[._\-\s]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def find_tool(written: str, tools: Sequence[Tool]) -> Tool | None:
    """Find the tool of that name; a near miss counts only if exactly one tool fits."""
    by_name = {tool.name: tool for tool in tools}
    name = find_name(written, by_name)
    return None if name is None else by_name[name]


def find_name(written: str, names: Collection[str]) -> str | None:
    """Return the name that was meant; a near miss counts only if exactly one name fits.

    A near miss differs by a namespace prefix, or in how the words are joined: `getWeather`,
    `get-weather` and `getweather` are `get_weather`. Some models write the tool's own name as the
    namespace, and some escape names for Markdown.
    """
    if written in names:
        return written
    meanings = [_words(meant) for meant in _meanings(written)]
    by_words = _by_words(tuple(names))
    keys: list[tuple[str, ...] | str] = [*meanings, *map("".join, meanings)]
    for key in keys:
        if fitting := by_words.get(key):
            return fitting[0] if len(fitting) == 1 else None
    return None


def has_markup(written: str) -> bool:
    """Return whether an engine's parser left more of a call in its name than the name."""
    return "<" in written or "{" in written


@lru_cache(maxsize=16)
def _by_words(names: tuple[str, ...]) -> dict[tuple[str, ...] | str, list[str]]:
    """Return the names by their words, and by all their words joined."""
    found: dict[tuple[str, ...] | str, list[str]] = {}
    for name in names:
        words = _words(name)
        found.setdefault(words, []).append(name)
        found.setdefault("".join(words), []).append(name)
    return found


@lru_cache(maxsize=1024)
def _meanings(written: str) -> tuple[str, ...]:
    """Return what may be meant, likeliest first: the name without what models add to it.

    They add control tokens or tags after it (gpt-oss, GLM), namespaces before it (Gemma and
    DeepSeek), and Kimi the number of the call, in its own form `functions.NAME:2` or another.
    """
    name = written.partition("<")[0]
    parts = [part for part in reversed(name.split(":")[1:]) if part]
    numbered = _NUMBERED.fullmatch(name)
    return (name, *parts, numbered[1] or numbered[2]) if numbered else (name, *parts)


@lru_cache(maxsize=1024)
def _words(name: str) -> tuple[str, ...]:
    stripped = name.strip(_QUOTES).replace("\\_", "_")
    for prefix in _PREFIXES:
        stripped = stripped.removeprefix(prefix)
    namespace, _, name = stripped.partition(".")
    if namespace == name:
        stripped = name
    return tuple(word.casefold() for word in _BETWEEN.split(stripped) if word)
