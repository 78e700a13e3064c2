"""Which offered tool a written name means, when it can only mean one."""

from collections.abc import Sequence

from proxy.conversation.tools import Tool

_PREFIXES = (
    "functions.",
    "functions/",
    "tools.",
    "tools/",
    "tool.",
    "default_api:",
    "default_api.",
)


def resolve(written: str, tools: Sequence[Tool]) -> Tool | None:
    """Find the tool of that name; a near miss counts only if exactly one tool fits.

    A near miss differs by a namespace prefix, by letter case, or by `-` for `_`. Some models
    write the tool's own name for the namespace.
    """
    for tool in tools:
        if tool.name == written:
            return tool
    wanted = _fold(written)
    fitting = [tool for tool in tools if _fold(tool.name) == wanted]
    return fitting[0] if len(fitting) == 1 else None


def _fold(name: str) -> str:
    stripped = name.strip()
    for prefix in _PREFIXES:
        stripped = stripped.removeprefix(prefix)
    namespace, _, name = stripped.partition(".")
    if namespace == name:
        stripped = name
    return stripped.casefold().replace("-", "_")
