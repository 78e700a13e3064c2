"""A client's JSON document with the source bytes and the path of each value.

    nodes_in({"a": {"b": 1.50}}, b'{"a":{"b":1.50}}')["a"].members()["b"]
    -> Node(1.5, b"1.50", "a.b")

Values that are copied into an upstream request keep the client's bytes.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidRequest

_MANY_BYTES = 2**20  # the fields of a larger body are counted before it is parsed


def read_object(body: bytes) -> JsonObject:
    """Read a body that has to be a JSON object; raises InvalidRequest."""
    if not body.strip():
        raise InvalidRequest("Expected a JSON object, got nothing.", "body")
    if len(body) > _MANY_BYTES:
        with suppress(ValueError):  # the parser below raises an error with a better message
            _check_fields(len(json.split_object(body)))
    try:
        value = json.parse(body)
    except ValueError as error:
        raise InvalidRequest(f"This is not valid JSON: {error}.", "body") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"Expected a JSON object, got {kind(value)}.", "body")
    _check_fields(len(value))
    return value


def _check_fields(count: int) -> None:
    if count > bounds.FIELDS:
        raise InvalidRequest(f"Expected at most {bounds.FIELDS} fields, got {count}.", "body")


KINDS = {
    bool: "a boolean", str: "a string", list: "an array", dict: "an object", type(None): "null"
}  # fmt: skip


def kind(value: object) -> str:
    """Name the JSON type of a parsed value, with its article."""
    return KINDS.get(type(value), "a number")


LINE_END = b"\\n"  # the escape of a line end in a JSON string


class JsonText(NamedTuple):
    """A string, and the JSON string in which the client wrote it."""

    text: str
    source: bytes

    @property
    def inside(self) -> bytes:
        """The JSON string without its quotes, for concatenation."""
        return self.source[1:-1]


def own_text(text: str) -> JsonText:
    """Return a text that Temper wrote, with a new JSON string as its source."""
    return JsonText(text, json.dump(text))


def concatenate(*texts: JsonText) -> JsonText:
    joined = "".join(text.text for text in texts)
    return JsonText(joined, b'"' + b"".join(text.inside for text in texts) + b'"')


def join_lines(texts: list[JsonText]) -> JsonText:
    """Join texts with line ends."""
    if len(texts) == 1:
        return texts[0]
    joined = "\n".join(text.text for text in texts)
    return JsonText(joined, b'"' + LINE_END.join(text.inside for text in texts) + b'"')


class Node(msgspec.Struct, frozen=True):
    """A value with its source bytes and its `path`, e.g. `messages.0.content`.

    Methods that expect a type raise `InvalidRequest` with the path for any other type.
    """

    value: JsonValue
    source: bytes
    path: str

    def object(self) -> JsonObject:
        if not isinstance(self.value, dict):
            raise self._type_error("an object")
        return self.value

    def members(self) -> "Members":
        """Return the members of an object; null is absent."""
        return nodes_in(self.object(), self.source, self.path)

    def raw_elements(self) -> list[tuple[JsonValue, bytes]]:
        if not isinstance(self.value, list):
            raise self._type_error("an array")
        return [*zip(self.value, json.split_array(self.source), strict=True)]

    def elements(self) -> "list[Node]":
        return [
            Node(value, source, f"{self.path}.{position}")
            for position, (value, source) in enumerate(self.raw_elements())
        ]

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)

    def text(self) -> JsonText:
        if not isinstance(self.value, str):
            raise self._type_error("a string")
        return JsonText(self.value, self.source)

    def _type_error(self, expected: str) -> InvalidRequest:
        return InvalidRequest(f"Expected {expected}, got {kind(self.value)}.", self.path)


class Members(dict[str, Node]):
    """The members of the object at `path`, without members that are null.

    For an absent member, the methods return None or an empty value. They refuse a member of another
    type, as the methods of `Node` do.
    """

    def __init__(self, nodes: Mapping[str, Node], path: str) -> None:
        super().__init__(nodes)
        self.path = path

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def need(self, name: str) -> Node:
        if name not in self:
            raise InvalidRequest("Field required", self.at(name))
        return self[name]

    def value(self, name: str) -> JsonValue:
        return self[name].value if name in self else None

    def text(self, name: str) -> JsonText | None:
        return self[name].text() if name in self else None

    def word(self, name: str, default: str = "") -> str:
        return self[name].text().text if name in self else default

    def inner(self, name: str) -> "Members":
        return self[name].members() if name in self else Members({}, self.at(name))

    def elements(self, name: str) -> list[Node]:
        return self[name].elements() if name in self else []


def nodes_in(value: JsonObject, source: bytes, path: str = "") -> Members:
    """Return the members of a parsed object."""
    prefix = f"{path}." if path else ""
    raw = json.split_object(source)
    nodes = {
        name: Node(member, raw[name], prefix + name)
        for name, member in value.items()
        if member is not None
    }
    return Members(nodes, path)
