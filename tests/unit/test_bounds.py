"""What the documentation says of bounds is what they are."""

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from proxy import bounds
from proxy.dialects.raw_json import read_object
from proxy.dialects.sse import EventDecoder
from proxy.errors import RequestTooLarge
from proxy.files import read_text, read_toml
from proxy.observability.recording import read_recording
from proxy.processes.model_file import read_header
from proxy.settings.values import File
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


def sparse(path: Path, size: int) -> Path:
    """Make a file of zeros that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def written_in(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def with_fields(path: Path, count: int) -> Path:
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, count))
    return path


def refuse_body() -> None:
    raise RequestTooLarge(bounds.BODY_BYTES)


TOO_MUCH: dict[str, Callable[[Path], object]] = {
    "BODY_BYTES": lambda _: refuse_body(),
    "FIELDS": lambda _: read_object(
        b"{" + b",".join(b'"%d":1' % one for one in range(bounds.FIELDS + 1)) + b"}"
    ),
    "EVENT_BYTES": lambda _: [*EventDecoder().feed(b"data: " + b"x" * bounds.EVENT_BYTES + b"\n")],
    "FILE_BYTES": lambda path: read_text(sparse(path, bounds.FILE_BYTES + 1)),
    "RECORDED_BYTES": lambda path: [*read_recording(sparse(path, bounds.RECORDED_BYTES + 1))],
    "KEY_PARTS": lambda path: read_toml(written_in(path, "a." * bounds.KEY_PARTS + "a = 1")),
    "DIGITS": lambda path: read_toml(written_in(path, "a = 0x" + "1" * bounds.DIGITS)),
    "HEADER_FIELDS": lambda path: read_header(with_fields(path, bounds.HEADER_FIELDS + 1)),
    "NAME_BYTES": lambda _: TypeAdapter(File).validate_python("x" * (bounds.NAME_BYTES + 1)),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_an_error_names_the_bound_that_was_passed(name: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=rf"(?<!\d){getattr(bounds, name)}(?!\d)"):
        TOO_MUCH[name](tmp_path / "file")


def test_what_a_setting_moves_is_told_with_its_name() -> None:
    with pytest.raises(RequestTooLarge, match=r"server\.max_body_bytes"):
        refuse_body()
