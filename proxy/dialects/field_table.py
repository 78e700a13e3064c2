"""The handling of each name in a request: one table for each API, also shown in the API's guide.

    [fields.refused]
    "Send the history in `messages`." = "thread container"

No name is dropped silently (decision 0011): every field, block, item and tool has a row, and a test
compares the rows with the types of the API's SDK.
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
    """The handling of a part of a request; the value is the word in the guides."""

    CARRIED = "carried"  # sent upstream, in the engine's format
    ENFORCED = "enforced"  # implemented by Temper
    IGNORED = "ignored"  # accepted without effect, because it cannot change a reply
    DROPPED = "dropped"  # removed and reported, because it might have changed the reply
    REFUSED = "refused"  # 400, with a remedy


@dataclass(frozen=True, slots=True)
class Field:
    """A row; `note` is shown in the guide, and is the remedy if the name is refused.

    The value is copied to the path `target`, such as `options.top_p`. Without a target, the module
    that uses the table writes the value. A value in `harmless` has no effect, so it is not refused.
    """

    handling: Handling
    note: str = ""
    target: str = ""
    harmless: tuple[JsonValue, ...] = ()


_Groups: TypeAlias = dict[Handling, dict[str, str]]
CARRIED, ENFORCED, IGNORED, DROPPED, REFUSED = map(Field, Handling)


def refuse(remedy: str, harmless: tuple[JsonValue, ...] = ()) -> Field:
    """Return the row of a name that is refused unless its value is harmless."""
    return Field(Handling.REFUSED, remedy, harmless=harmless)


def copy_to(target: str) -> Field:
    """Return the row of a name that is copied to `target`."""
    return Field(Handling.CARRIED, target=target)


class FieldTable(dict[str, Field]):
    """The rows by name; a name without a row has the row `unknown`."""

    def __init__(self, *groups: Mapping[str, Field], unknown: Field = IGNORED) -> None:
        super().__init__((name, row) for group in groups for name, row in group.items())
        self._unknown = unknown

    def of(self, name: str) -> Field:
        return self.get(name, self._unknown)

    def drops(self, name: str) -> bool:
        """Return whether a name is removed and reported."""
        return self.of(name).handling is Handling.DROPPED

    def remedy(self, name: str) -> str | None:
        """Return the remedy of a refused name; None for any other name."""
        row = self.of(name)
        return row.note if row.handling is Handling.REFUSED else None

    def check(self, name: str, value: JsonValue) -> None:
        """Raise `InvalidRequest` for a refused field whose value is not harmless."""
        remedy = self.remedy(name)
        if remedy is not None and value not in self.of(name).harmless:
            raise InvalidRequest(remedy, name)


def rows(row: Field, names: str) -> dict[str, Field]:
    """Return a table in which each of the space-separated names has this row."""
    return dict.fromkeys(names.split(), row)


def copies(names: str, group: str = "") -> dict[str, Field]:
    """Return a table with space-separated names whose values are copied into a group."""
    return {name: copy_to(group + name) for name in names.split()}


def read_tables(package: str) -> dict[str, FieldTable]:
    """Read the tables in the `table.toml` of an API; each file describes its format."""
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
