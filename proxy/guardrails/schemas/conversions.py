"""How one JSON value can be written as another without loss; None where it cannot.

It sees single values. Which of them are wrong, and whether the result will do, is decided by
`coercion`.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from math import isinf

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.values.reader import Value, read_whole

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_CODE = re.compile(r"0[0-9]+")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")
_LONGEST_NUMBER = 100  # in digits
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
    """Read a number of which no digit gets lost; one with a zero in front may be a code."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if _WHOLE.fullmatch(text) and not {"integer", "number"}.isdisjoint(types):
        return int(text)
    if "integer" in types and _CODE.fullmatch(text):
        return int(text)
    return _decimal(Decimal(text), types) if _DECIMAL.fullmatch(text) else None


def _decimal(exact: Decimal, types: Sequence[str]) -> JsonValue:
    is_whole = exact.adjusted() < _LONGEST_NUMBER and exact == exact.to_integral_value()
    if "integer" in types and is_whole:
        return int(exact)
    number = float(exact)
    is_kept = not isinf(number) and Decimal(repr(number)) == exact
    return number if "number" in types and is_kept else None


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
