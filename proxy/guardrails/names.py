"""Finds the offered tool that a name in a reply means, if exactly one tool fits.

`find_name` compares names word by word, and ignores the prefixes, numbers and markup that models
add.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from proxy.conversation.tools import Tool

# Namespaces before a name: `functions.` of gpt-oss and Kimi, `default_api:` of Gemma.
_PREFIXES = (
    *("functions.", "functions/", "functions:", "function.", "function/"),
    *("tools.", "tools/", "tools:", "tool.", "tool/"),
    *("default_api:", "default_api."),
)
# A name with the number of the call. Kimi uses such names as call ids: `functions.get_weather:0`.
_NUMBERED = re.compile(r"(.+):\d+|functions_(.+)_\d+")
_QUOTES = " \t\r\n\"'`*"  # characters that are removed around names
# Words are separated by a dot, a dash, an underscore or white space, or begin with a capital.
_BETWEEN = re.compile(r"[._\-\s]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def find_tool(name_in_reply: str, tools: Sequence[Tool]) -> Tool | None:
    """Find the tool with this name, or the only tool with a similar name."""
    by_name = {tool.name: tool for tool in tools}
    name = find_name(name_in_reply, by_name)
    return None if name is None else by_name[name]


def find_name(name_in_reply: str, names: Collection[str]) -> str | None:
    """Return the equal name, or the only similar name; None if several names are similar.

    A similar name has another namespace prefix, or its words are joined differently: `getWeather`,
    `get-weather` and `getweather` are similar to `get_weather`. Some models write the tool's name
    twice, as in `get_time.get_time`, and some escape names for Markdown.
    """
    if name_in_reply in names:
        return name_in_reply
    meanings = [_words(meant) for meant in _meanings(name_in_reply)]
    by_words = _by_words(tuple(names))
    keys: list[tuple[str, ...] | str] = [*meanings, *map("".join, meanings)]
    for key in keys:
        if fitting := by_words.get(key):
            return fitting[0] if len(fitting) == 1 else None
    return None


def has_markup(name_in_reply: str) -> bool:
    """Return whether a name contains call markup that an engine's parser left in it."""
    return "<" in name_in_reply or "{" in name_in_reply


@lru_cache(maxsize=16)
def _by_words(names: tuple[str, ...]) -> dict[tuple[str, ...] | str, list[str]]:
    """Index the names by their words, and by their words joined into one string."""
    by_words: dict[tuple[str, ...] | str, list[str]] = {}
    for name in names:
        words = _words(name)
        by_words.setdefault(words, []).append(name)
        by_words.setdefault("".join(words), []).append(name)
    return by_words


@lru_cache(maxsize=1024)
def _meanings(name_in_reply: str) -> tuple[str, ...]:
    """Return the tool names that a name may mean, without the additions of models.

    gpt-oss and GLM append control tokens or tags, Gemma and DeepSeek prepend namespaces, and Kimi
    appends the number of the call, as in `functions.NAME:2`.
    """
    name = name_in_reply.partition("<")[0]
    parts = [part for part in reversed(name.split(":")[1:]) if part]
    numbered = _NUMBERED.fullmatch(name)
    return (name, *parts, numbered[1] or numbered[2]) if numbered else (name, *parts)


@lru_cache(maxsize=1024)
def _words(name: str) -> tuple[str, ...]:
    stripped = name.strip(_QUOTES).replace("\\_", "_")
    for prefix in _PREFIXES:
        stripped = stripped.removeprefix(prefix)
    # Some models write the name of the tool as its namespace: `get_time.get_time`.
    namespace, _, name = stripped.partition(".")
    if namespace == name:
        stripped = name
    return tuple(word.casefold() for word in _BETWEEN.split(stripped) if word)
