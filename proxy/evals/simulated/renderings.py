"""How a flawed reply looks: texts and edits from `renderings.jsonl`, each with its source.

An edit takes a right call and returns what a model that errs so would have written.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.evals.scenarios.invention import invented
from proxy.evals.scenarios.scenario import PlannedCall
from proxy.evals.scenarios.worlds import outcome_text
from proxy.evals.simulated.profiles import folder


@cache
def renderings() -> Mapping[str, tuple[str, ...]]:
    """Return the texts, or the names of the edits, by kind."""
    found: dict[str, list[str]] = {}
    for line in (folder() / "renderings.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.parse(line)
        if isinstance(row, dict):
            text = row.get("text", row.get("edit"))
            found.setdefault(str(row["class"]), []).append(str(text))
    return {kind: tuple(texts) for kind, texts in found.items()}


def prose(kind: str, call: PlannedCall, draw: random.Random) -> str:
    """Write prose instead of a call."""
    return draw.choice(renderings()[kind]).replace("{name}", call.name)


def as_text(call: PlannedCall, form: str) -> str:
    """Write a call as text in a syntax."""
    arguments = json.dump_text(call.arguments)
    whole = json.dump_text({"name": call.name, "arguments": call.arguments})
    keywords = ", ".join(f"{name}={_python(one)}" for name, one in call.arguments.items())
    tags = "".join(
        f"<parameter={name}>\n{outcome_text(one)}\n</parameter>\n"
        for name, one in call.arguments.items()
    )
    tag_call = f"<tool_call>\n<function={call.name}>\n{tags}</function>\n</tool_call>"
    parts = {
        "{call}": whole,
        "{arguments}": arguments,
        "{keywords}": keywords,
        "{tag_call}": tag_call,
        "{name}": call.name,
    }
    for mark, text in parts.items():
        if mark in form:
            before, _, behind = form.partition(mark)
            return as_text(call, before) + text + as_text(call, behind)
    return form


def foreign(calls: Sequence[PlannedCall], draw: random.Random) -> str:
    """Write right calls in one syntax that the engine does not read."""
    form = draw.choice(renderings()["foreign"])
    return "\n".join(as_text(one, form) for one in calls)


def broken_json(call: PlannedCall, draw: random.Random) -> str:
    """Write the arguments of a right call as JSON that is broken."""
    text = json.dump_text(call.arguments)
    names = [*renderings()["broken_json"]]
    draw.shuffle(names)
    return next((one for name in names if _is_broken(one := _BREAKS[name](text, call))), text[:-1])


def _is_broken(text: str) -> bool:
    """Return whether a text is no JSON: an edit may have changed nothing but a value."""
    try:
        json.parse(text)
    except ValueError:
        return True
    return False


def wrong_name(call: PlannedCall, draw: random.Random) -> str:
    """Write a name that is nearly right, or of no tool."""
    names = [*renderings()["wrong_name"]]
    draw.shuffle(names)
    return next(one for name in names if (one := _NAMES[name](call.name)) != call.name)


def missing(call: PlannedCall, draw: random.Random) -> tuple[JsonObject, str]:
    """Leave out an argument; returns what is left, and its name."""
    name = draw.choice([*call.arguments]) if call.arguments else ""
    return {key: one for key, one in call.arguments.items() if key != name}, name


def wrong_type(
    call: PlannedCall, schema: JsonObject, draw: random.Random
) -> tuple[JsonObject, str]:
    """Give an argument a wrong type or value, or invent one; returns all, and its name."""
    names = [*renderings()["wrong_type"]]
    draw.shuffle(names)
    for name in names:
        found = _TYPES[name](call.arguments, schema)
        if found is not None:
            return found
    return {**call.arguments, "note": ""}, "note"


def wrong_value(call: PlannedCall, schema: JsonObject, draw: random.Random) -> JsonObject:
    """Give an argument another value that is as valid."""
    names = [*call.arguments]
    draw.shuffle(names)
    properties = schema.get("properties")
    for name in names:
        kind = properties.get(name) if isinstance(properties, dict) else None
        value = invented(kind if isinstance(kind, dict) else {}, draw)
        if value != call.arguments[name]:
            return {**call.arguments, name: value}
    return call.arguments


def _python(value: JsonValue) -> str:
    return repr(value)


_BREAKS: Mapping[str, Callable[[str, PlannedCall], str]] = {
    "missing_brace": lambda text, _call: text[:-1],
    "trailing_comma": lambda text, _call: text[:-1] + ",}",
    "single_quotes": lambda _text, call: _python(call.arguments),
    "python_literals": lambda text, _call: text.replace("null", "None").replace("true", "True"),
    "bare_keys": lambda text, call: _bare(text, [*call.arguments]),
    "cut_off": lambda text, _call: text[: len(text) * 2 // 3],
    "raw_line_end": lambda text, _call: text.replace("\\n", "\n"),
    "doubled_brace": lambda text, _call: text + "}",
}


def _bare(text: str, names: list[str]) -> str:
    for name in names:
        text = text.replace(f'"{name}":', f"{name}:", 1)
    return text


_NAMES: Mapping[str, Callable[[str], str]] = {
    "camel": lambda name: name.split("_")[0] + "".join(x.title() for x in name.split("_")[1:]),
    "prefix": lambda name: f"functions.{name}",
    "dots": lambda name: name.replace("_", "."),
    "suffix": lambda name: f"{name}_tool",
    "other_word": lambda name: f"do_{name.partition('_')[2] or name}",
    "capitals": lambda name: name.title().replace("_", ""),
}


def _changed(
    arguments: JsonObject, change: Callable[[str, JsonValue], JsonValue]
) -> tuple[JsonObject, str] | None:
    """Change the first argument that a change applies to."""
    for name, value in arguments.items():
        if (changed := change(name, value)) != value or type(changed) is not type(value):
            return {**arguments, name: changed}, name
    return None


def _number_as_text(_name: str, value: JsonValue) -> JsonValue:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _text_as_number(name: str, value: JsonValue) -> JsonValue:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _list_as_text(_name: str, value: JsonValue) -> JsonValue:
    return json.dump_text(value) if isinstance(value, list) else value


def _object_as_text(_name: str, value: JsonValue) -> JsonValue:
    return json.dump_text(value) if isinstance(value, dict) else value


def _enum_in_capitals(arguments: JsonObject, schema: JsonObject) -> tuple[JsonObject, str] | None:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return None
    enums = [name for name, one in properties.items() if isinstance(one, dict) and "enum" in one]
    return _changed(arguments, lambda name, one: str(one).upper() if name in enums and one else one)


_TYPES: Mapping[str, Callable[[JsonObject, JsonObject], tuple[JsonObject, str] | None]] = {
    "number_as_text": lambda arguments, _: _changed(arguments, _number_as_text),
    "text_as_number": lambda arguments, _: _changed(arguments, _text_as_number),
    "list_as_text": lambda arguments, _: _changed(arguments, _list_as_text),
    "object_as_text": lambda arguments, _: _changed(arguments, _object_as_text),
    "enum_in_capitals": _enum_in_capitals,
    "extra_member": lambda arguments, _: ({**arguments, "reason": "as asked"}, "reason"),
    "wrapped": lambda arguments, _: ({"arguments": arguments}, "arguments"),
}
