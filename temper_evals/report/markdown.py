"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table that ends with a newline."""
    lines = [_row(headings), "|" + "---|" * len(headings), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
