"""Whether a call was only copied from what the model had been given to read."""

from collections.abc import Iterable


def is_quoted(source: str, texts: Iterable[str]) -> bool:
    """Return whether a call's text stands in one of `texts`, white space aside."""
    wanted = _without_space(source)
    if not wanted:
        return False
    return any(wanted[0] in text and wanted in _without_space(text) for text in texts)


def _without_space(text: str) -> str:
    return "".join(text.split())
