"""JSON as typed values and as bytes.

No other module parses or writes JSON itself, except with msgspec decoders of fixed types.

Parsing is strict (RFC 8259): no NaN, no duplicate keys, no lone surrogates, bounded depth.
`split_object` and `split_array` return the exact bytes of the members, so that the client's text
can be sent upstream unchanged:

    split_object(b'{"a": 1.0, "b": [1,2]}')     {"a": b"1.0", "b": b"[1,2]"}
"""

import json as lenient
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

import jiter
import msgspec
from pydantic import JsonValue as JsonValue

JsonObject: TypeAlias = dict[str, JsonValue]
JsonSchema: TypeAlias = JsonObject | bool

_encoder = msgspec.json.Encoder()
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])


def parse(document: bytes | str) -> JsonValue:
    """Parse one JSON document; raises ValueError with line and column if it is not valid JSON."""
    # Strict: if this parser accepted a duplicate key or NaN, the engine's parser might read the
    # value differently (decision 0006).
    source = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
    value: JsonValue = jiter.from_json(source, allow_inf_nan=False, catch_duplicate_keys=True)
    return value


# RFC 8259, section 8.2, allows half of a surrogate pair in JSON, but UTF-8 cannot encode it.
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def parse_halves(document: str) -> JsonValue:
    """Parse JSON like `parse`, but accept strings with half of a surrogate pair."""
    parse(_HALF.sub(r"\\ufffd", document))  # raises for everything else that `parse` rejects
    value: JsonValue = lenient.loads(document)
    return value


# Writes a value as compact UTF-8 JSON.
dump: Callable[[JsonValue], bytes] = msgspec.json.encode


def dump_text(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()


def dump_lines(values: Iterable[JsonValue]) -> bytes:
    """Write values as compact JSON, one per line."""
    return _encoder.encode_lines([*values])


def raw_members(document: bytes) -> dict[str, msgspec.Raw]:
    """Return each member of a valid JSON object as its source, without copying."""
    return _members.decode(document)


def split_object(document: bytes) -> dict[str, bytes]:
    """Return each member of a valid JSON object as its source bytes."""
    return {name: bytes(raw) for name, raw in raw_members(document).items()}


def split_array(document: bytes) -> list[bytes]:
    """Return each element of a valid JSON array as its source bytes."""
    return [bytes(raw) for raw in _elements.decode(document)]


def join_object(members: dict[str, bytes]) -> bytes:
    """Write an object from members that are already JSON."""
    parts: list[bytes] = []
    for name, raw in members.items():
        parts += (b",", dump(name), b":", raw)
    parts[:1] = (b"{",)  # in place of the first comma
    return b"".join((*parts, b"}"))  # one `join`, so that a long document is copied only once


def join_array(elements: list[bytes]) -> bytes:
    """Write an array from elements that are already JSON."""
    return b"".join((b"[", b",".join(elements), b"]"))
