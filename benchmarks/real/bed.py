"""Test beds: tools that act on a small world in memory, and tasks with the calls that they need.

A tool gets the world and the arguments, and returns a JSON object or plain text. For wrong input it
raises `WrongInput`, and the model receives `{"error": ...}`.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

Row: TypeAlias = JsonObject
Tables: TypeAlias = Mapping[str, Sequence[Row]]
# a text matches if it contains the expected text, or any text of the tuple, ignoring case
Expected: TypeAlias = str | int | tuple[str, ...]
Kind: TypeAlias = Literal["chain", "single", "trap", "none"]

TEXT: JsonObject = {"type": "string"}
WHOLE_NUMBER: JsonObject = {"type": "integer"}


class WrongInput(Exception):
    """The arguments of a call are not usable; the text is a correction for the model."""


class World:
    """The state of one task: tables of rows, which tools read and change."""

    def __init__(self, tables: Tables) -> None:
        self._tables = {name: [copy.deepcopy(row) for row in rows] for name, rows in tables.items()}
        self._serial = 0

    def rows(self, table: str, **fields: str) -> list[Row]:
        """Return the rows whose fields contain these texts, ignoring case."""
        return [
            row
            for row in self._tables[table]
            if all(text.lower() in str(row[name]).lower() for name, text in fields.items())
        ]

    def row(self, table: str, name: str, value: str, hint: str) -> Row:
        """Return the first row with this whole value, ignoring case; else raise `WrongInput`."""
        for row in self._tables[table]:
            if str(row[name]).lower() == value.strip().lower():
                return row
        raise WrongInput(f"Unknown {name} {value!r}. {hint}")

    def next_number(self) -> int:
        """Return 1, 2, 3 ... for the ids of new rows."""
        self._serial += 1
        return self._serial


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool whose parameters are all required; `has_effect` if it changes the world."""

    name: str
    description: str
    parameters: Mapping[str, JsonObject]
    run: Callable[[World, JsonObject], JsonValue]
    has_effect: bool = False

    def describe(self) -> JsonObject:
        """Return the tool in the format of `tools` in a chat request."""
        schema: JsonObject = {
            "type": "object",
            "properties": dict(self.parameters),
            "required": list(self.parameters),
        }
        function: JsonObject = {
            "name": self.name,
            "description": self.description,
            "parameters": schema,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Need:
    """A call that a task needs, with the expected content of its arguments."""

    tool: str
    arguments: Mapping[str, Expected]

    def matches(self, tool: str, arguments: JsonObject) -> bool:
        return tool == self.tool and all(
            _matches(expected, arguments.get(name)) for name, expected in self.arguments.items()
        )


def _matches(expected: Expected, value: JsonValue) -> bool:
    match expected:
        case int():
            return str(value).strip() == str(expected)
        case str():
            return expected.lower() in str(value).lower()
        case tuple():
            return any(_matches(text, value) for text in expected)


@dataclass(frozen=True, slots=True)
class Task:
    """A request of a user, with the calls that it needs, in any order.

    A `chain` needs a value of an earlier result in a later call; a `single` needs one call, or
    several at once; a `trap` has a condition that is not met, an argument that is hard to quote, or
    the same call for several objects; `none` is answered without a tool.
    """

    text: str
    kind: Kind
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools, the tables that they read and change, and the tasks in which they are offered.

    The tasks of a set have the same system prompt and tools, so the engine keeps that part of the
    prompt in its cache.
    """

    name: str
    system: str
    tools: tuple[Tool, ...]
    tables: Tables
    tasks: tuple[Task, ...]

    @property
    def effects(self) -> frozenset[str]:
        """The names of the tools that change the world."""
        return frozenset(tool.name for tool in self.tools if tool.has_effect)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)

    def describe_tools(self) -> list[JsonValue]:
        return [tool.describe() for tool in self.tools]

    def run(self, world: World, name: str, arguments: JsonObject | None) -> tuple[str, bool]:
        """Run a call; returns the result for the model, and whether the call succeeded.

        `arguments` is None where they were not a JSON object.
        """
        tool = next((tool for tool in self.tools if tool.name == name), None)
        try:
            if tool is None:
                raise WrongInput(f"Unknown tool {name!r}. Tools: {', '.join(sorted(self.names))}.")
            if arguments is None:
                raise WrongInput("The arguments must be a JSON object.")
            result = tool.run(world, arguments)
        except WrongInput as error:
            return json.dump_text({"error": str(error)}), False
        return result if isinstance(result, str) else json.dump_text(result), True


def text_in(arguments: JsonObject, name: str) -> str:
    """Return an argument that must be a text; raises `WrongInput`."""
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise WrongInput(f"{name} must be a string that is not empty.")
    return value.strip()


def number_in(arguments: JsonObject, name: str) -> int:
    """Return an argument that must be a whole number; raises `WrongInput`."""
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongInput(f"{name} must be an integer.")
    return value


def some(rows: Sequence[Row], hint: str) -> Sequence[Row]:
    """Return the rows; raises `WrongInput` with the hint if the sequence is empty."""
    if not rows:
        raise WrongInput(hint)
    return rows
