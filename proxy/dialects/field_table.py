"""What happens to each name in a request: one table per language, which its guide repeats.

Nothing may get lost in silence. Every field, block, item and tool has a row, and a test holds the
rows against the types of the language's SDK.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import TypeAlias

import msgspec

from proxy.conversation.json import JsonValue
from proxy.errors import InvalidRequest


class Handling(Enum):
    """What happens to a part of a request; the value is the word of the guides."""

    CARRIED = "carried"  # goes on, in the language of the other side
    ENFORCED = "enforced"  # done here
    IGNORED = "ignored"  # accepted without effect, as no reply would be another one for it
    DROPPED = "dropped"  # left out, and reported, as the model might have made use of it
    REFUSED = "refused"  # 400, with a remedy


@dataclass(frozen=True, slots=True)
class Field:
    """A row; `note` is for the guide, and of what is refused the remedy.

    A value goes to `target` as it is, a path such as `options.top_p`; without one, code writes it.
    Values that are `harmless` ask for nothing, and are not refused.
    """

    handling: Handling
    note: str = ""
    target: str = ""
    harmless: tuple[JsonValue, ...] = ()


_Groups: TypeAlias = dict[Handling, dict[str, str]]
CARRIED, ENFORCED, IGNORED, DROPPED, REFUSED = map(Field, Handling)


def refuse(remedy: str, harmless: tuple[JsonValue, ...] = ()) -> Field:
    """Make the row of what is refused, unless its value is harmless."""
    return Field(Handling.REFUSED, remedy, harmless=harmless)


def copy_to(target: str) -> Field:
    """Make the row of what goes to the other side as it is, under this name."""
    return Field(Handling.CARRIED, target=target)


class FieldTable(dict[str, Field]):
    """The rows by name; `of` has one for every name, that of the `unknown` for what is new."""

    def __init__(self, *groups: Mapping[str, Field], unknown: Field = IGNORED) -> None:
        super().__init__((name, row) for group in groups for name, row in group.items())
        self._unknown = unknown

    def of(self, name: str) -> Field:
        return self.get(name, self._unknown)

    def drops(self, name: str) -> bool:
        """Return whether a part of a request is left out, and reported."""
        return self.of(name).handling is Handling.DROPPED

    def remedy(self, name: str) -> str | None:
        """Return what to do instead of what is refused; None for all else."""
        row = self.of(name)
        return row.note if row.handling is Handling.REFUSED else None

    def check(self, name: str, value: JsonValue) -> None:
        """Raise `InvalidRequest` for a field that is refused, with a value that asks for it."""
        remedy = self.remedy(name)
        if remedy is not None and value not in self.of(name).harmless:
            raise InvalidRequest(remedy, name)


def rows(row: Field, names: str) -> dict[str, Field]:
    """Give all these names, with spaces between them, the same row."""
    return dict.fromkeys(names.split(), row)


def copies(names: str, group: str = "") -> dict[str, Field]:
    """Have all these names, with spaces between them, copied into the same group."""
    return {name: copy_to(group + name) for name in names.split()}


def read_tables(package: str) -> dict[str, FieldTable]:
    """Read the tables in the `table.toml` of a language, by their names; it says how it is read."""
    document = (files(package) / "table.toml").read_bytes()
    tables: dict[str, FieldTable] = {}
    for table, groups in msgspec.toml.decode(document, type=dict[str, _Groups]).items():
        known: dict[str, Field] = {}
        for handling, notes in groups.items():
            for note, names in notes.items():
                known |= rows(Field(handling, "" if note == "_" else note), names)
        unknown = known.pop("*", IGNORED)
        tables[table] = FieldTable(known, unknown=unknown)
    return tables
