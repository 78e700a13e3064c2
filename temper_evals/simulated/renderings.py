"""Writes flawed replies with the texts and edits in `renderings.jsonl`, which names sources.

An edit converts a right call to a flawed one. Rows with `held_out` are by a second author and are
used only for the held-out families.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.invention import invent_value
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.worlds import outcome_text
from temper_evals.simulated import held_out_edits
from temper_evals.simulated.profiles import folder


@cache
def renderings(*, held_out: bool = False) -> Mapping[str, tuple[str, ...]]:
    """Return texts and names of edits by kind, either the held-out rows or the other rows."""
    texts_by_class: dict[str, list[str]] = {}
    for line in (folder() / "renderings.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.parse(line)
        if isinstance(row, dict) and bool(row.get("held_out")) is held_out:
            text = row.get("text", row.get("edit"))
            texts_by_class.setdefault(str(row["class"]), []).append(str(text))
    return {kind: tuple(texts) for kind, texts in texts_by_class.items()}


def prose(kind: str, call: PlannedCall, draw: random.Random, *, held_out: bool = False) -> str:
    """Write prose instead of a call."""
    return draw.choice(renderings(held_out=held_out)[kind]).replace("{name}", call.name)


def as_text(call: PlannedCall, template: str) -> str:
    """Write a call as text; `{name}({keywords})` gives `get_weather(city='Paris')`.

    The part between {each_argument} and {end_argument} is repeated for each argument, with its
    {key}, {value} and {type}; {text} is "true" for a string and "false" for other types.
    """
    before, is_loop, remainder = template.partition("{each_argument}")
    if is_loop:
        inner, _, after = remainder.partition("{end_argument}")
        return as_text(call, before) + _each_argument(call, inner) + as_text(call, after)
    return _fill(call, template)


def _fill(call: PlannedCall, template: str) -> str:
    """Replace the placeholders of a template with the parts of a call."""
    arguments = json.dump_text(call.arguments)
    whole = json.dump_text({"name": call.name, "arguments": call.arguments})
    keywords = ", ".join(f"{name}={_python(value)}" for name, value in call.arguments.items())
    tags = _each_argument(call, "<parameter={key}>\n{value}\n</parameter>\n")
    tag_call = f"<tool_call>\n<function={call.name}>\n{tags}</function>\n</tool_call>"
    parts = {
        "{call}": whole,
        "{arguments}": arguments,
        "{keywords}": keywords,
        "{tag_call}": tag_call,
        "{parameters}": tags,
        "{named_parameters}": _each_argument(call, '<parameter name="{key}">{value}</parameter>\n'),
        "{pairs}": _each_argument(
            call, "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        ),
        "{dsml}": _each_argument(
            call,
            '<\uff5cDSML\uff5cparameter name="{key}" string="{text}">{value}'
            "</\uff5cDSML\uff5cparameter>\n",
        ),
        "{braces}": _braces(call.arguments),
        "{name}": call.name,
    }
    for mark, text in parts.items():
        if mark in template:
            before, _, after = template.partition(mark)
            return _fill(call, before) + text + _fill(call, after)
    return template


def _each_argument(call: PlannedCall, template: str) -> str:
    """Write each argument in a template such as `{key}: {value}`."""
    return "".join(
        template.format(
            key=name,
            value=outcome_text(argument),
            type=_TYPE_NAMES[type(argument)],
            text="true" if isinstance(argument, str) else "false",
        )
        for name, argument in call.arguments.items()
    )


_TYPE_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _braces(value: JsonValue) -> str:
    """Write a value in Gemma 4's syntax: `{city:<|"|>Paris<|"|>}`."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_braces(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_braces, value)) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dump_text(value)


def foreign(calls: Sequence[PlannedCall], draw: random.Random, *, held_out: bool = False) -> str:
    """Write right calls in a syntax that the engine does not parse.

    In a template such as `[{each}{call}{between}, {end}]`, the part between {each} and {between} is
    repeated for each call, and the part between {between} and {end} is the separator. A template
    without {each} is written once per call, on separate lines.
    """
    template = draw.choice(renderings(held_out=held_out)["foreign"])
    before, is_one_block, remainder = template.partition("{each}")
    if not is_one_block:
        return "\n".join(as_text(call, template) for call in calls)
    inner, _, after = remainder.partition("{end}")
    each, _, between = inner.partition("{between}")
    body = between.join(as_text(call, each) for call in calls)
    return "".join((as_text(calls[0], before), body, as_text(calls[0], after)))


def broken_json(call: PlannedCall, draw: random.Random, *, held_out: bool = False) -> str:
    """Write the arguments of a right call as invalid JSON."""
    text = json.dump_text(call.arguments)
    names = [*renderings(held_out=held_out)["broken_json"]]
    draw.shuffle(names)
    return next(
        (broken for name in names if _is_broken(broken := _BREAKS[name](text, call))), text[:-1]
    )


def _is_broken(text: str) -> bool:
    """Return whether a text is invalid JSON; an edit may also leave it valid."""
    try:
        json.parse(text)
    except ValueError:
        return True
    return False


def wrong_name(call: PlannedCall, draw: random.Random, *, held_out: bool = False) -> str:
    """Return a name similar to that of the tool."""
    names = [*renderings(held_out=held_out)["wrong_name"]]
    draw.shuffle(names)
    return next(wrong for name in names if (wrong := _NAMES[name](call.name)) != call.name)


def missing(call: PlannedCall, draw: random.Random) -> tuple[JsonObject, str]:
    """Omit an argument; returns the other arguments, and the name of the omitted argument."""
    name = draw.choice([*call.arguments]) if call.arguments else ""
    return {key: value for key, value in call.arguments.items() if key != name}, name


def wrong_type(
    call: PlannedCall, schema: JsonObject, draw: random.Random, *, held_out: bool = False
) -> tuple[JsonObject, str]:
    """Change the type of an argument, or add one; returns all arguments and the changed name."""
    names = [*renderings(held_out=held_out)["wrong_type"]]
    draw.shuffle(names)
    for name in names:
        edited = _TYPES[name](call.arguments, schema)
        if edited is not None:
            return edited
    return {**call.arguments, "note": ""}, "note"


def wrong_value(call: PlannedCall, schema: JsonObject, draw: random.Random) -> JsonObject:
    """Replace the value of an argument with another valid value."""
    names = [*call.arguments]
    draw.shuffle(names)
    properties = schema.get("properties")
    for name in names:
        kind = properties.get(name) if isinstance(properties, dict) else None
        value = invent_value(kind if isinstance(kind, dict) else {}, draw)
        if value != call.arguments[name]:
            return {**call.arguments, name: value}
    return call.arguments


def _python(value: JsonValue) -> str:
    return repr(value)


# The keys of `_BREAKS`, `_NAMES` and `_TYPES` are the names of edits in `renderings.jsonl`.
_BREAKS: Mapping[str, Callable[[str, PlannedCall], str]] = {
    **held_out_edits.BREAKS,
    "missing_brace": lambda text, _call: text[:-1],
    "trailing_comma": lambda text, _call: text[:-1] + ",}",
    "single_quotes": lambda _text, call: _python(call.arguments),
    "python_literals": lambda text, _call: text.replace("null", "None").replace("true", "True"),
    "bare_keys": lambda text, call: _remove_quotes_of_keys(text, [*call.arguments]),
    "cut_off": lambda text, _call: text[: len(text) * 2 // 3],
    "raw_line_end": lambda text, _call: text.replace("\\n", "\n"),
    "doubled_brace": lambda text, _call: text + "}",
}


def _remove_quotes_of_keys(text: str, names: list[str]) -> str:
    for name in names:
        text = text.replace(f'"{name}":', f"{name}:", 1)
    return text


_NAMES: Mapping[str, Callable[[str], str]] = {
    **held_out_edits.NAMES,
    "camel": lambda name: name.split("_")[0] + "".join(x.title() for x in name.split("_")[1:]),
    "prefix": lambda name: f"functions.{name}",
    "dots": lambda name: name.replace("_", "."),
    "suffix": lambda name: f"{name}_tool",
    "other_word": lambda name: f"do_{name.partition('_')[2] or name}",
    "capitals": lambda name: name.title().replace("_", ""),
}


def _change_first(
    arguments: JsonObject, change: Callable[[str, JsonValue], JsonValue]
) -> tuple[JsonObject, str] | None:
    """Apply a change to the first argument that it modifies; None if it modifies none."""
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
    enums = [
        name
        for name, schema_part in properties.items()
        if isinstance(schema_part, dict) and "enum" in schema_part
    ]
    return _change_first(
        arguments, lambda name, value: str(value).upper() if name in enums and value else value
    )


_TYPES: Mapping[str, held_out_edits.TypeEdit] = {
    **held_out_edits.TYPES,
    "number_as_text": lambda arguments, _: _change_first(arguments, _number_as_text),
    "text_as_number": lambda arguments, _: _change_first(arguments, _text_as_number),
    "list_as_text": lambda arguments, _: _change_first(arguments, _list_as_text),
    "object_as_text": lambda arguments, _: _change_first(arguments, _object_as_text),
    "enum_in_capitals": _enum_in_capitals,
    "extra_member": lambda arguments, _: ({**arguments, "reason": "as asked"}, "reason"),
    "wrapped": lambda arguments, _: ({"arguments": arguments}, "arguments"),
}
