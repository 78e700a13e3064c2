"""Invented tools for a larger model: thousands of schemas, put together from words of many domains.

Parameters are texts, numbers, flags, words of a list, arrays and objects; some may be left out.
What is held out (domains, verbs, fields, values) is drawn for measuring only.
"""

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.tiny_model.values import ValueDraw

WORDS = tomllib.loads(Path(__file__).with_name("invented.toml").read_text(encoding="utf-8"))
_TYPES = {"count": "integer", "small": "integer", "amount": "number", "flag": "boolean"}
_LISTS = {"words": "word", "persons": "person", "code_list": "code"}
_GROUPS = ("details", "options", "settings", "place", "terms")
_LETTERS = "ABCDEFGHKLMNPRST"
_MADE_UP, _OPTIONAL, _GROUPED = 0.2, 0.2, 0.15


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter: its kind of value, the words it may take, or the fields it has itself."""

    name: str
    kind: str = ""
    choices: tuple[str, ...] = ()
    fields: tuple["Field", ...] = ()
    is_required: bool = True

    def schema(self) -> JsonObject:
        """Return its JSON schema."""
        if self.fields:
            return object_schema(self.fields)
        if self.choices:
            return {"type": "string", "enum": [*self.choices]}
        if self.kind in _LISTS:
            return {"type": "array", "items": {"type": "string"}}
        return {"type": _TYPES.get(self.kind, "string")}

    def signature(self) -> str:
        """Write it as the template lists it."""
        return f"{self.name}{'' if self.is_required else '?'}: {self._type()}"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name.replace("_", " ")

    def _type(self) -> str:
        if self.fields:
            return f"{{{', '.join(one.signature() for one in self.fields)}}}"
        if self.choices:
            return "|".join(self.choices)
        return "string[]" if self.kind in _LISTS else _TYPES.get(self.kind, "string")


def object_schema(fields: Sequence[Field]) -> JsonObject:
    """Return the JSON schema of an object with these members."""
    properties: JsonObject = {one.name: one.schema() for one in fields}
    required: list[JsonValue] = [one.name for one in fields if one.is_required]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class InventedTool:
    """A tool: what a call of it needs, and how people say what it does.

    With `has_key` the first parameter says which thing is meant.
    """

    name: str
    description: str
    fields: tuple[Field, ...]
    says: tuple[str, ...]
    thing: str
    changes: bool
    has_key: bool = True
    returns: Field = field(default_factory=lambda: Field("reference", "code"))

    def describe(self) -> JsonObject:
        """Return the tool as a request offers it."""
        function: JsonObject = {
            "name": self.name,
            "description": self.description,
            "parameters": object_schema(self.fields),
        }
        return {"type": "function", "function": function}

    def signature(self) -> str:
        """Write it as the template lists it."""
        listed = ", ".join(one.signature() for one in self.fields)
        return f"{self.name}({listed}) - {self.description}\n"


@dataclass(frozen=True, slots=True)
class Invention:
    """Draws tools and values; `held_out` ones are of domains and words that training never had."""

    draw: random.Random
    held_out: bool = False

    @property
    def values(self) -> ValueDraw:
        """Where words and names come from."""
        return ValueDraw(self.draw, held_out=self.held_out)

    def domain(self) -> "Domain":
        """Draw a domain."""
        one = self.draw.choice(WORDS["held_out_domain" if self.held_out else "domain"])
        fields = {**one["fields"], **WORDS["fields"]}
        verbs: dict[str, list[str]] = WORDS["write"]
        if self.held_out:
            fields |= WORDS["fields_held_out"]
            verbs = {**verbs, **WORDS["write_held_out"]}
        return Domain(self, one["name"], one["things"], fields, verbs)

    def value(self, one: Field) -> JsonValue:
        """Draw a value of a field."""
        if one.fields:
            return {each.name: self.value(each) for each in one.fields}
        if one.choices:
            return self.draw.choice(one.choices)
        if one.kind in _LISTS:
            inner = Field(one.name, _LISTS[one.kind])
            return [self.value(inner) for _ in range(self.draw.randint(1, 3))]
        return self._scalar(one.kind)

    def _scalar(self, kind: str) -> JsonValue:
        draw = self.draw
        match kind:
            case "count":
                return draw.choice((draw.randint(2, 99), draw.randint(100, 9999)))
            case "small":
                return draw.randint(1, 12)
            case "amount":
                return draw.randint(1, 400) + draw.choice((0.5, 0.25, 0.75))
            case "flag":
                return draw.random() < 0.5
            case _:
                return self._text(kind)

    def _text(self, kind: str) -> str:
        draw, values = self.draw, self.values
        match kind:
            case "code":
                letters = "".join(draw.choices(_LETTERS, k=draw.randint(1, 2)))
                return f"{letters}{draw.choice(('', '-'))}{draw.randint(10, 9999)}"
            case "date":
                return f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
            case "time":
                return f"{draw.randint(0, 23):02}:{draw.choice(('00', '15', '30', '45'))}"
            case "email":
                return f"{values.word()}@{values.word()}.com"
            case "sentence":
                return f"{values.word()} is {values.word()}"
            case _:
                return str(values.value(kind))


@dataclass(frozen=True, slots=True)
class Domain:
    """The things of a domain, the fields they have, and the verbs that change them."""

    invention: Invention
    name: str
    things: Sequence[str]
    fields: dict[str, str | list[str]]
    verbs: dict[str, list[str]]

    def thing(self) -> str:
        """Draw a thing, now and then one that nobody has ever heard of."""
        draw = self.invention.draw
        is_made_up = draw.random() < _MADE_UP
        return self.invention.values.word() if is_made_up else draw.choice([*self.things])

    def field(self, taken: Sequence[str] = ()) -> Field:
        """Draw a field with a name that is not taken."""
        draw = self.invention.draw
        name = draw.choice([one for one in self.fields if one not in taken])
        kind = self.fields[name]
        if draw.random() < _MADE_UP / 2:
            name = self.invention.values.word()
        return Field(name, *(("", tuple(kind)) if isinstance(kind, list) else (kind, ())))

    def some_fields(self, count: int, key: str) -> tuple[Field, ...]:
        """Draw fields; some need no value, and some stand together in an object."""
        draw = self.invention.draw
        found: list[Field] = []
        for _ in range(count):
            one = self.field([key, *(each.name for each in found)])
            if one.name not in {each.name for each in found}:
                found.append(one)
        if len(found) > 1 and draw.random() < _GROUPED:
            inner = tuple(found[-2:])
            found[-2:] = [Field(draw.choice(_GROUPS), fields=inner)]
        return tuple(
            Field(one.name, one.kind, one.choices, one.fields, draw.random() > _OPTIONAL)
            for one in found
        )

    def key(self, thing: str) -> Field:
        """Draw what a thing is known by."""
        draw = self.invention.draw
        name = draw.choice((f"{thing}_id", thing, f"{thing}_code", "id", "name", f"{thing}_name"))
        return Field(name, "word" if name.endswith("name") else draw.choice(("code", "word")))

    def reader(self) -> InventedTool:
        """Invent a tool that tells a field of a thing."""
        draw, thing = self.invention.draw, self.thing()
        verb = draw.choice([*WORDS["read"]])
        key, told = self.key(thing), self._told()
        if draw.random() < 0.6:
            name = self._name(verb, f"{thing}_{told.name}")
            says = tuple(f"{word} the {told.label} of {thing}" for word in WORDS["read"][verb])
            says = (f"what is the {told.label} of {thing}", *says)
        else:
            name = self._name(verb, thing)
            says = tuple(f"{word} {thing}" for word in WORDS["read"][verb])
        description = f"{says[-1].capitalize()}"
        return InventedTool(name, description, (key,), says, thing, changes=False, returns=told)

    def finder(self, thing: str, key: Field) -> InventedTool:
        """Invent a tool that finds what a thing is known by."""
        draw = self.invention.draw
        verb = draw.choice(("find", "search", "locate"))
        fields = self.some_fields(draw.randint(1, 2), key.name)
        first = Field(fields[0].name, fields[0].kind, fields[0].choices, fields[0].fields)
        says = (f"{verb} the {thing}", f"look for the {thing}", f"find the {thing}")
        name = self._name(verb, thing)
        told = key if key.name not in {"id", "name"} else Field(f"{thing}_{key.name}", key.kind)
        description = f"Find a {thing} of the {self.name}"
        fields = (first, *fields[1:])
        return InventedTool(
            name, description, fields, says, thing, changes=False, has_key=False, returns=told
        )

    def writer(self, thing: str = "", key: Field | None = None) -> InventedTool:
        """Invent a tool that changes a thing."""
        draw = self.invention.draw
        thing = thing or self.thing()
        key = key or self.key(thing)
        verb = draw.choice([*self.verbs])
        fields = (key, *self.some_fields(draw.choice((0, 1, 1, 2, 2, 3)), key.name))
        says = tuple(f"{word} {thing}" for word in self.verbs[verb])
        description = f"{verb.capitalize()} a {thing} of the {self.name}"
        return InventedTool(self._name(verb, thing), description, fields, says, thing, changes=True)

    def tool(self) -> InventedTool:
        """Invent a tool of any sort."""
        sort = self.invention.draw.random()
        if sort < 0.2:
            thing = self.thing()
            return self.finder(thing, self.key(thing))
        return self.reader() if sort < 0.5 else self.writer()

    def _told(self) -> Field:
        """Draw a field that can be told in a word."""
        while (one := self.field()).kind in {*_LISTS, "flag"}:
            pass
        return one

    def _name(self, verb: str, what: str) -> str:
        style = self.invention.draw.random()
        if style < 0.65:
            return f"{verb}_{what}"
        if style < 0.8:
            return f"{self.name}_{verb}_{what}"
        if style < 0.9:
            return f"{what}_{verb}"
        return verb + "".join(part.capitalize() for part in what.split("_"))
