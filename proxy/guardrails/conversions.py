"""How one JSON value can be written as another without loss; None where it cannot.

It sees single values. Which of them are wrong, and whether the result will do, is decided by
`coercion`.
"""

import re
from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.values import Value, read_whole

_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,14}))(?:\.0+)?")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_DECIMAL_LENGTH = 16  # no more than 15 digits, which a double keeps
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_COULD_BE_SEVERAL = re.compile(r"^\s*[\[{]|[,;\n]")


def to_type(value: JsonValue, types: Sequence[str]) -> JsonValue:
    """Write a scalar as one of the JSON types that are due.

    A float does not become text: whether it was written 1.1 or 1.10 is no longer known.
    """
    if isinstance(value, str):
        return _read(value.strip(), types)
    if isinstance(value, int) and "string" in types:
        return json.dump_text(value)
    return None


def to_list(value: JsonValue, types: Sequence[str]) -> JsonValue:
    """Write a scalar as a list of one item; not text that may stand for several, or for none."""
    is_item = isinstance(value, int | float) or (
        isinstance(value, str) and bool(value.strip()) and not _COULD_BE_SEVERAL.search(value)
    )
    return [value] if is_item and "array" in types else None


def to_option(value: JsonValue, options: Sequence[JsonValue]) -> JsonValue:
    """Choose the only option that differs in no more than case, padding or quotes."""
    label = _label(value)
    fits = [option for option in options if label is not None and _label(option) == label]
    return fits[0] if len(fits) == 1 else None


def _read(text: str, types: Sequence[str]) -> JsonValue:
    number = _number(text, types)
    if number is not None:
        return number
    if text in _BOOLEANS:
        return _BOOLEANS[text] if "boolean" in types else None
    return _container(text, types)


def _number(text: str, types: Sequence[str]) -> JsonValue:
    whole = _INTEGER.fullmatch(text)
    if whole and ("integer" in types or ("number" in types and whole[1] == text)):
        return int(whole[1])
    if "number" in types and len(text) <= _DECIMAL_LENGTH and _DECIMAL.fullmatch(text):
        return float(text)
    return None


def _container(text: str, types: Sequence[str]) -> JsonValue:
    match read_whole(text):
        case Value(dict() as value, is_closed=True) if "object" in types:
            return value
        case Value(list() as value, is_closed=True) if "array" in types:
            return value
        case _:
            return None


def _label(value: JsonValue) -> str | None:
    match value:
        case str():
            return value.strip().casefold()
        case bool() | int():
            return json.dump_text(value)
        case _:
            return None
