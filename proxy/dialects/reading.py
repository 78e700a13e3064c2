"""Bodies of requests as JSON objects, in whichever language, and the names of what stands there."""

from contextlib import suppress

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidRequest

_MOST_FIELDS = 1_000  # of a request: each is an object of its own on the way, known or not
_MANY_BYTES = 2**20  # of which the fields are counted before all of it is parsed


def read_object(body: bytes) -> JsonObject:
    """Read a body that has to be a JSON object; raises InvalidRequest."""
    if not body.strip():
        raise InvalidRequest("Expected a JSON object, got nothing.", "body")
    if len(body) > _MANY_BYTES:
        with suppress(ValueError):  # which the parser words better
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
    if count > _MOST_FIELDS:
        raise InvalidRequest(f"Expected at most {_MOST_FIELDS} fields, got {count}.", "body")


def kind(value: object) -> str:
    """Name the JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"
