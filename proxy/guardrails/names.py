"""Which offered tool a written name means, when it can only mean one."""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from proxy.conversation.tools import Tool

_PREFIXES = (
    *("functions.", "functions/", "functions:", "function.", "function/"),
    *("tools.", "tools/", "tools:", "tool.", "tool/"),
    *("default_api:", "default_api."),
)
# Between words: a dot, a dash, an underscore, white space, or where a capital letter begins one.
_BETWEEN = re.compile(r"[._\-\s]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def find_tool(written: str, tools: Sequence[Tool]) -> Tool | None:
    """Find the tool of that name; a near miss counts only if exactly one tool fits."""
    name = find_name(written, [tool.name for tool in tools])
    return next((tool for tool in tools if tool.name == name), None)


def find_name(written: str, names: Collection[str]) -> str | None:
    """Find the name that was meant; a near miss counts only if exactly one name fits.

    A near miss differs by a namespace prefix, or in how the same words are put together:
    `getWeather`, `get-weather` and `get.weather` are `get_weather`. Some models write the tool's
    own name for the namespace.
    """
    if written in names:
        return written
    wanted = _words(written)
    fitting = [name for name in names if _words(name) == wanted]
    return fitting[0] if len(fitting) == 1 else None


@lru_cache(maxsize=1024)
def _words(name: str) -> tuple[str, ...]:
    stripped = name.strip()
    for prefix in _PREFIXES:
        stripped = stripped.removeprefix(prefix)
    namespace, _, name = stripped.partition(".")
    if namespace == name:
        stripped = name
    return tuple(word.casefold() for word in _BETWEEN.split(stripped) if word)
