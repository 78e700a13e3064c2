"""Which offered tool a written name means, when it can only mean one."""

from collections.abc import Collection, Sequence

from proxy.conversation.tools import Tool

_PREFIXES = (
    *("functions.", "functions/", "functions:", "function.", "function/"),
    *("tools.", "tools/", "tools:", "tool.", "tool/"),
    *("default_api:", "default_api."),
)


def resolve(written: str, tools: Sequence[Tool]) -> Tool | None:
    """Find the tool of that name; a near miss counts only if exactly one tool fits."""
    name = meant_by(written, [tool.name for tool in tools])
    return next((tool for tool in tools if tool.name == name), None)


def meant_by(written: str, names: Collection[str]) -> str | None:
    """Find the name that was meant; a near miss counts only if exactly one name fits.

    A near miss differs by a namespace prefix, by letter case, or by `-` for `_`. Some models
    write the tool's own name for the namespace.
    """
    if written in names:
        return written
    wanted = _fold(written)
    fitting = [name for name in names if _fold(name) == wanted]
    return fitting[0] if len(fitting) == 1 else None


def _fold(name: str) -> str:
    stripped = name.strip()
    for prefix in _PREFIXES:
        stripped = stripped.removeprefix(prefix)
    namespace, _, name = stripped.partition(".")
    if namespace == name:
        stripped = name
    return stripped.casefold().replace("-", "_")
