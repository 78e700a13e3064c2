"""What the documentation says of bounds is what they are."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy import bounds
from tests.test_repository import REPOSITORY

_UNITS = ((bounds.MIB, "MiB"), (bounds.KIB, "KiB"))


def by_source() -> Iterator[tuple[str, str, int]]:
    """Yield the source, the name and the value of each bound, as they stand in the module."""
    source = ""
    for line in Path(bounds.__file__).read_text(encoding="utf-8").splitlines():
        if found := re.match(r"# ([a-z ]+)$", line):
            source = found[1]
        elif source and (found := re.match(r"([A-Z_]+) = ", line)):
            yield source, found[1], getattr(bounds, found[1])


def rows() -> dict[str, str]:
    """Return what the table says of each source."""
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for source, bound in re.findall(r"^\| ([a-z ]+) \| (.+?) \|", text, re.MULTILINE):
        found[source] = f"{found.get(source, '')} {bound}"
    return found


def written(name: str, value: int) -> str:
    """Write a bound in words: of bytes in the largest unit that fits."""
    for size, unit in _UNITS:
        if value % size == 0 and (name.endswith("BYTES") or name == "READ_IN_VAIN"):
            return f"{value // size} {unit}"
    return f"{value:,}"


@pytest.mark.parametrize(("source", "name", "value"), [*by_source()])
def test_every_bound_stands_in_the_table_of_its_source(source: str, name: str, value: int) -> None:
    assert re.search(rf"(?<![\d,]){re.escape(written(name, value))}(?![\d,])", rows()[source])
