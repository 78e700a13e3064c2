"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a table, with a line end behind its last row."""
    lines = [_row(headings), "|" + "---|" * len(headings), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
