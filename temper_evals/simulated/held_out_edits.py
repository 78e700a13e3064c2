"""Edits that convert a right call to a flawed one, for the held-out families only.

Their author had not read the rules of any proxy. `renderings` has the edits for the other families.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.scenario import PlannedCall

TypeEdit: TypeAlias = Callable[[JsonObject, JsonObject], tuple[JsonObject, str] | None]

_OTHER_KEYS = {"path": "file_path", "ticket": "ticket_id", "day": "date", "person": "name"}


def _half_quoted(text: str, call: PlannedCall) -> str:
    for name in call.arguments:
        text = text.replace(f'"{name}":', f'{name}":', 1)
    return text


def _escaped_delimiters(text: str, _call: PlannedCall) -> str:
    for before, after in (('":"', '":\\"'), ('","', '\\","'), ('"}', '\\"}')):
        text = text.replace(before, after)
    return text


BREAKS: Mapping[str, Callable[[str, PlannedCall], str]] = {
    "escapes_outside": lambda text, _: text.replace('":', '": \\n', 1)[:-1] + "\\n\\n}",
    "bare_quotes": lambda text, _: text.replace('\\"', '"'),
    "bare_backslashes": lambda text, _: text.replace("\\\\", "\\"),
    "control_token": lambda text, _: f"{text}<|call|>",
    "half_quoted_keys": _half_quoted,
    "escaped_delimiters": _escaped_delimiters,
    "empty_first": lambda text, _: f"{{}}{text}",
}
NAMES: Mapping[str, Callable[[str], str]] = {
    "channel": lambda name: f"{name}<|channel|>commentary",
    "closing_tag": lambda name: f"{name}</arg_value>",
    "modules": lambda name: f"toolbox.{name.partition('_')[2] or 'desk'}.{name}",
    "beheaded": lambda name: name.partition("_")[2] or f"{name}_it",
}


def _other_key(arguments: JsonObject, _schema: JsonObject) -> tuple[JsonObject, str] | None:
    """Rename an argument to a name that other tools use: `path` to `file_path`."""
    for name in arguments:
        first, *rest = name.split("_")
        other = _OTHER_KEYS.get(name, first + "".join(map(str.title, rest)))
        if other != name and other not in arguments:
            return _rename(arguments, name, other), other
    return None


def _marked_key(arguments: JsonObject, _schema: JsonObject) -> tuple[JsonObject, str] | None:
    if not arguments:
        return None
    name = next(iter(arguments))
    return _rename(arguments, name, f"{name}</arg_key>"), f"{name}</arg_key>"


def _rename(arguments: JsonObject, name: str, other: str) -> JsonObject:
    return {other if key == name else key: value for key, value in arguments.items()}


def _value_in_object(arguments: JsonObject, _schema: JsonObject) -> tuple[JsonObject, str] | None:
    for name, value in arguments.items():
        if isinstance(value, str):
            return {**arguments, name: {"type": "string", "value": value}}, name
    return None


def _elements_as_text(arguments: JsonObject, _schema: JsonObject) -> tuple[JsonObject, str] | None:
    for name, value in arguments.items():
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            texts: list[JsonValue] = [json.dump_text(item) for item in value]
            return {**arguments, name: texts}, name
    return None


def _boolean_as_text(arguments: JsonObject, _schema: JsonObject) -> tuple[JsonObject, str] | None:
    for name, value in arguments.items():
        if isinstance(value, bool):
            return {**arguments, name: str(value)}, name
    return None


def _null_for_optional(arguments: JsonObject, schema: JsonObject) -> tuple[JsonObject, str] | None:
    """Pass null for an optional argument that is not nullable."""
    properties = schema.get("properties")
    for name, kind in (properties if isinstance(properties, dict) else {}).items():
        if name not in arguments and isinstance(kind, dict) and "type" in kind:
            return {**arguments, name: None}, name
    return None


TYPES: Mapping[str, TypeEdit] = {
    "other_key": _other_key,
    "value_in_object": _value_in_object,
    "elements_as_text": _elements_as_text,
    "marked_key": _marked_key,
    "boolean_as_text": _boolean_as_text,
    "null_for_optional": _null_for_optional,
}
