r"""Converts values of the wrong type to the type that a schema expects, if this is unambiguous.

Theory of operation
-------------------
`coerce` starts from the errors of the validator. So it needs no code for `$ref` or `allOf`, and
never changes a valid value. Each round makes one change at each path with an error, and then
validates the value again. One round repairs one level of nesting. After the last round, each change
that did not remove its error is undone; `_Condition` names the errors that undo a change.

No value is invented or truncated: every scalar of the result was in the input.

    {"n": "5"}                  integer              {"n": 5}            a number as text
    {"n": "true"}               boolean              {"n": true}         Granite 20B
    {"zip": 10115}              string               {"zip": "10115"}
    {"tags": "new"}             array of strings     {"tags": ["new"]}   xLAM 1B; "a, b" stays
    {"tags": "['a', 'b']"}      array of strings     {"tags": ["a", "b"]}
    {"unit": " Celsius"}        enum: celsius, ...   {"unit": "celsius"}
    {"day": "Monday"}           enum: mon, tue, ...  {"day": "mon"}
    {"city": {"city": "Rome"}}  string               {"city": "Rome"}    wrapped in the same name
    {"tags": {"item": ["a"]}}   array                {"tags": ["a"]}     from XML-like tags
    {"body": {"a": 1}}          string               {"body": "{\"a\":1}"}
    {"unit": null}              optional string      {}                  Gemma 7B
    {"x": 1}                    no property x        {}                  additionalProperties: false
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from math import isinf
from typing import Literal, TypeAlias

from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import properties_of
from proxy.guardrails.rescue.values.reader import read_only_value
from proxy.guardrails.rescue.values.scalars import Value
from proxy.guardrails.schemas.rewriting import KNOWN_TYPES
from proxy.guardrails.schemas.schema import (
    Path,
    Schema,
    TooLargeToExplain,
    forbids_members,
    list_allowed_values,
)
from proxy.guardrails.schemas.workload import ListingBudget

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_ZERO_PADDED = re.compile(r"0[0-9]+")  # may be a code, such as a postcode
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")
_LONGEST_NUMBER = 100  # in digits
_ABBREVIATION = 3  # letters that abbreviate a weekday or month
_LEAST_ABBREVIATIONS = 3
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_QUOTED = re.compile(r"""(?P<mark>["'`])(?P<text>.+)(?P=mark)""", re.DOTALL)
_MAY_BE_SEVERAL = re.compile(r"^\s*[\[{]|[,;\n]")  # "a, b" may be one item or two items


def to_type(value: JsonValue, types: Sequence[str]) -> JsonValue:
    """Convert a scalar to one of the expected JSON types: `"5"` to `5`, `5` to `"5"`.

    Returns None if the conversion is ambiguous. A float is never converted to a string, because a
    parsed float does not show whether the model wrote 1.1 or 1.10.
    """
    if isinstance(value, str):
        return _read(value.strip(), types)
    if isinstance(value, int) and "string" in types:
        return json.dump_text(value)
    return None


def to_list(value: JsonValue, types: Sequence[str]) -> JsonValue:
    """Wrap a scalar as the only item of a list: `"new"` to `["new"]`.

    Returns None for text that may be several items ("a, b") or no item ("").
    """
    is_item = isinstance(value, int | float) or (
        isinstance(value, str) and bool(value.strip()) and not _MAY_BE_SEVERAL.search(value)
    )
    return [value] if is_item and "array" in types else None


def to_option(value: JsonValue, options: Sequence[JsonValue]) -> JsonValue:
    """Return the only option that equals the value except for case, white space and quotes.

    value         options                result
    " Celsius"    celsius, fahrenheit    celsius
    "Monday"      mon, tue, wed          mon, because all options have three letters
    """
    label = _label(value)
    if label is None:
        return None
    labels = [_label(option) for option in options]
    similar = [option for option, known in zip(options, labels, strict=True) if known == label]
    if not similar and label.isalpha() and _are_abbreviations(labels):
        similar = [
            option
            for option, known in zip(options, labels, strict=True)
            if known and (label.startswith(known) or known.startswith(label))
        ]
    return similar[0] if len(similar) == 1 else None


def _are_abbreviations(labels: Sequence[str | None]) -> bool:
    lengths = {len(label) if label is not None and label.isalpha() else 0 for label in labels}
    return len(labels) >= _LEAST_ABBREVIATIONS and lengths == {_ABBREVIATION}


def _read(text: str, types: Sequence[str]) -> JsonValue:
    number = _number(text, types)
    if number is not None:
        return number
    if text in _BOOLEANS:
        return _BOOLEANS[text] if "boolean" in types else None
    match read_only_value(text):
        case Value(dict() as value, is_closed=True) if "object" in types:
            return value
        case Value(list() as value, is_closed=True) if "array" in types:
            return value
        case _:
            return None


def _number(text: str, types: Sequence[str]) -> JsonValue:
    """Parse a number without loss of digits; None if impossible.

    "05" is a number only if the schema expects an integer. Otherwise it may be a code.
    """
    if len(text) > _LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(text) and not {"integer", "number"}.isdisjoint(types):
        return int(text)
    if "integer" in types and _ZERO_PADDED.fullmatch(text):
        return int(text)
    return _decimal(Decimal(text), types) if _DECIMAL.fullmatch(text) else None


def _decimal(exact: Decimal, types: Sequence[str]) -> JsonValue:
    is_integer = exact.adjusted() < _LONGEST_NUMBER and exact == exact.to_integral_value()
    if "integer" in types and is_integer:
        return int(exact)
    number = float(exact)
    is_lossless = not isinf(number) and Decimal(repr(number)) == exact
    return number if "number" in types and is_lossless else None


def _label(value: JsonValue) -> str | None:
    """Return the normalized text of a value, for a comparison with options.

    Returns None for a value that cannot be an option: a float, null, an object or a list.
    """
    if isinstance(value, str):
        text = value.strip()
        quoted = _QUOTED.fullmatch(text)
        return (quoted["text"] if quoted else text).strip().casefold()
    return json.dump_text(value) if isinstance(value, int) else None


def _to_text(value: JsonValue) -> str | None:
    """Return the JSON text of an object or a list of objects; None for other values.

    Models write documents (`package.json`, a request body) as objects into text parameters. An
    object that repeats the schema of its parameter, `{"type": "string"}`, is not a document.
    """
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, dict) for part in parts):
        return None
    is_schema = isinstance(value, dict) and value.get("type") in KNOWN_TYPES
    return None if is_schema or value == {} else json.dump_text(value)


# One round repairs one level: a string that contains an array of mistyped items needs two rounds.
_ROUNDS = 6
_UNION_DEPTH = 3
# The limit of errors that are handled at one path, because `allOf` can repeat the same error.
_MOST_ERRORS = 20
# The limit of union branches that are tried for one value, because nested unions multiply them.
_TRIALS = 200
# As high as the cost of 1,000 dropped members, so that of the branches of a union, one in which no
# object becomes text is preferred.
_COST_OF_TEXT = 1_000
_NOTHING = ("null", "None")
_ITEM = "item"
_MISTYPED = (Kind.Type, Kind.Enum, Kind.Constant, Kind.AnyOf, Kind.OneOfNotValid)


@dataclass(frozen=True, slots=True)
class Coercion:
    """The coerced value, the `paths` that changed and the `errors` that remain.

    `cost` is the number of dropped members, plus 1,000 for each object that became text.
    """

    value: JsonValue
    paths: tuple[Path, ...] = ()
    errors: tuple[ValidationError, ...] = ()
    cost: int = 0


# A change is undone in these cases:
# - unless_mistyped: a type, enum or union error remains at its path
# - unless_invalid: any error remains at its path or below
# - unless_required: the change dropped a member that the schema requires
# - unless_parent_invalid: any error remains at the path of its parent
_Condition: TypeAlias = Literal[
    "unless_mistyped", "unless_invalid", "unless_required", "unless_parent_invalid"
]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the value at a path, which is undone under a condition.

    `paths` are the locations that are reported as changed. A change with `is_drop` removes the
    member at its path.
    """

    path: Path
    value: JsonValue
    condition: _Condition
    paths: tuple[Path, ...]
    cost: int = 0
    is_drop: bool = False

    @property
    def error_path(self) -> Path:
        """The path at which an error undoes the change."""
        return self.path[:-1] if self.condition == "unless_parent_invalid" else self.path


def coerce(schema: Schema, value: JsonValue) -> Coercion:
    """Coerce a copy of a value to a schema, as far as possible without loss.

    Raises ValueError for a value that JSON cannot represent.
    """
    return _Coercer(schema).coerce(value)


def copy_value(value: JsonValue) -> JsonValue:
    """Return a deep copy; raises ValueError for a value that JSON cannot represent."""
    copy = json.parse(json.dump(value))
    if copy != value:
        raise ValueError("not a JSON value")
    return copy


def write_integers(schema: Schema, value: JsonValue) -> tuple[JsonValue, Sequence[Path]]:
    """Replace `5.0` by `5` where the schema expects an integer; also return the changed paths.

    JSON Schema accepts both, but strictly typed clients do not (openai/codex#33452).
    """
    if not _contains_integral_float(value):
        return value, ()
    paths = sorted(schema.integers(value), key=str)
    if not paths:
        return value, ()
    draft = _Draft(copy_value(value))
    for path in paths:
        number = draft.at(path)
        assert isinstance(number, float)  # noqa: S101 - the paths are those of floats
        draft.make(_Change(path, int(number), "unless_mistyped", (path,)))
    return draft.value, paths


def _contains_integral_float(value: JsonValue) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict | list):
            pending += item.values() if isinstance(item, dict) else item
        elif isinstance(item, float) and item.is_integer():
            return True
    return False


def unwrap_arguments(parameters: JsonSchema, arguments: JsonObject) -> JsonObject | None:
    """Return the arguments from inside an undeclared wrapper: `{"params": {"city": "Rome"}}`.

    A schema without required members would accept the wrapper, and the tool would receive it.
    Returns None if the schema allows additional members, because the wrapper may then be intended.
    """
    properties = properties_of(parameters)
    if not isinstance(parameters, dict) or "properties" not in parameters:
        return None
    is_open = parameters.get("additionalProperties", False) is not False
    is_open = is_open or "patternProperties" in parameters
    match list(arguments.items()):
        case [(name, dict() as inner)] if inner and name not in properties and not is_open:
            return inner if inner.keys() <= properties.keys() else None
        case _:
            return None


def unescape_names(parameters: JsonSchema, arguments: JsonObject) -> JsonObject:
    r"""Remove Markdown escapes of names: `{"max\_results": 5}` becomes `{"max_results": 5}`.

    Mixtral 8x7B escapes most names that contain an underscore. In calls with such names it escapes
    values as well. If nothing changes, the same object is returned.
    """
    if not any("\\_" in name for name in arguments):
        return arguments
    known = properties_of(parameters)
    plain = {name: name.replace("\\_", "_") for name in arguments if name not in known}
    renamed = {old: new for old, new in plain.items() if new in known and new not in arguments}
    is_unambiguous = renamed and len({*renamed.values()}) == len(renamed)
    if not is_unambiguous:
        return arguments
    values = unescape_values(arguments)
    return {renamed.get(name, name): values[name] for name in arguments}


def unescape_values(arguments: JsonObject) -> JsonObject:
    r"""Replace `\_` by `_` in all values, at any depth."""
    # In JSON text, the backslash before the underscore is itself escaped.
    values = json.parse(json.dump_text([*arguments.values()]).replace(r"\\_", "_"))
    assert isinstance(values, list)  # noqa: S101 - a list was serialized
    return dict(zip(arguments, values, strict=True))


class _Draft:
    """A copy of a value with an undo log."""

    def __init__(self, value: JsonValue) -> None:
        self._box: list[JsonValue] = [value]
        self._changes: list[tuple[_Change, JsonValue]] = []

    @property
    def value(self) -> JsonValue:
        return self._box[0]

    @property
    def changes(self) -> list[_Change]:
        return [change for change, _ in self._changes]

    def at(self, path: Path) -> JsonValue:
        value = self.value
        for key in path:
            if isinstance(value, dict):
                value = value.get(str(key))
            else:
                value = value[int(key)] if isinstance(value, list) else None
        return value

    def make(self, change: _Change) -> None:
        self._changes.append((change, self.at(change.path)))
        self._put(change.path, change.value, is_drop=change.is_drop)

    def undo_useless(self, errors: Sequence[ValidationError]) -> bool:
        """Undo the changes whose condition these errors meet; return whether any was undone."""
        exact = {_path_of(error) for error in errors}
        against: dict[_Condition, set[Path]] = {
            "unless_mistyped": {
                _path_of(error) for error in errors if isinstance(error.kind, _MISTYPED)
            },
            "unless_invalid": {prefix for path in exact for prefix in _prefixes(path)},
            "unless_required": {
                (*_path_of(error), error.kind.property)
                for error in errors
                if isinstance(error.kind, Kind.Required)
            },
            "unless_parent_invalid": exact,
        }
        undone: dict[Path, int] = {}
        for number, (change, previous) in reversed(list(enumerate(self._changes))):
            if change.error_path in against[change.condition]:
                self._put(change.path, previous)
                undone[change.path] = number
        # Undoing a change restores the old value, so the later changes inside the value are lost as
        # well.
        self._changes = [
            (change, previous)
            for number, (change, previous) in enumerate(self._changes)
            if all(undone.get(path, number + 1) > number for path in _prefixes(change.path))
        ]
        return bool(undone)

    def _put(self, path: Path, value: JsonValue, *, is_drop: bool = False) -> None:
        parent = self.at(path[:-1]) if path else self._box
        key = path[-1] if path else 0
        if isinstance(parent, dict):
            parent[str(key)] = value
            if is_drop:
                del parent[str(key)]
        if isinstance(parent, list):
            parent[int(key)] = value


@dataclass(slots=True)
class _Coercer:
    """Coerces a value to a schema. Coercions to branches of unions share the same budgets."""

    schema: Schema
    trials: list[int] = field(default_factory=lambda: [_TRIALS])
    depth: int = 0
    budget: ListingBudget = field(default_factory=ListingBudget)

    def coerce(self, value: JsonValue) -> Coercion:
        draft = _Draft(copy_value(value))
        errors = list(self.schema.errors(draft.value, self.budget))
        for _ in range(_ROUNDS):
            if not self._improve(draft, errors):
                break
            errors = list(self.schema.errors(draft.value, self.budget))
        # The nudge lists the remaining errors, so they must show the values that the model wrote.
        if errors and draft.undo_useless(errors):
            errors = list(self.schema.errors(draft.value, self.budget))
        paths = dict.fromkeys(path for change in draft.changes for path in change.paths)
        cost = sum(change.cost for change in draft.changes)
        return Coercion(draft.value, tuple(paths), tuple(errors), cost)

    def _improve(self, draft: _Draft, errors: Sequence[ValidationError]) -> bool:
        """Change every path at most once; return whether any value was changed."""
        changed: set[Path] = set()
        counts: Counter[Path] = Counter()
        for error in errors:
            path = _path_of(error)
            counts[path] += 1
            if counts[path] <= _MOST_ERRORS and changed.isdisjoint(_prefixes(path)):
                for change in self._changes(error, path, draft.at(path)):
                    draft.make(change)
                    changed.add(change.path)
        return bool(changed)

    def _changes(self, error: ValidationError, path: Path, value: JsonValue) -> Iterator[_Change]:
        """Propose the change that may fix an error; each unknown member is a separate change."""
        if (value is None or _is_textual_null(error, value)) and _is_member(error, path):
            yield _drop(path, "unless_required")
        elif isinstance(value, dict) and (unknown := _unknown_members(error, value)):
            for name in unknown:
                yield _drop((*path, name), "unless_parent_invalid")
        elif change := (
            self._convert(error, path, value)
            or _unwrap(error, path, value)
            or _serialize(error, path, value)
        ):
            yield change

    def _convert(self, error: ValidationError, path: Path, value: JsonValue) -> _Change | None:
        match error.kind:
            case Kind.Type(types=types):
                new = to_type(value, types)
                item = None if new is not None else to_list(value, types)
                return _replace(path, new) or _replace(path, item, "unless_invalid")
            case Kind.Enum() | Kind.Constant():
                return _replace(path, to_option(value, list_allowed_values(error)))
            case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
                return self._coerce_to_branch(error, value, len(branches))
            case _:
                return None

    def _coerce_to_branch(
        self, error: ValidationError, value: JsonValue, branches: int
    ) -> _Change | None:
        """Coerce to the branch of a union with the lowest cost; if several have it, to the first.

        Branches in which errors remain are ignored. Returns None if errors remain in all branches.
        """
        coercions = [
            coercion
            for number in range(branches)
            if (coercion := self._try_branch((*error.schema_path, number), value))
            and not coercion.errors
        ]
        if not coercions:
            return None
        best = min(coercions, key=lambda coercion: coercion.cost)
        path = _path_of(error)
        paths = tuple((*path, *inner) for inner in best.paths)
        return _Change(path, best.value, "unless_invalid", paths, best.cost)

    def _try_branch(self, branch: Path, value: JsonValue) -> Coercion | None:
        if self.depth == _UNION_DEPTH or not self.trials[0]:
            return None
        self.trials[0] -= 1
        schema = self.schema.part(branch, self.budget)
        if schema is None:
            return None
        try:
            return _Coercer(schema, self.trials, self.depth + 1, self.budget).coerce(value)
        except TooLargeToExplain:
            return None


def _unwrap(error: ValidationError, path: Path, value: JsonValue) -> _Change | None:
    """Unwrap an object with one member: `{"item": [...]}`, or `{"city": {"city": "Rome"}}`."""
    match value, path:
        case dict(), _ if value.keys() == {_ITEM} and "array" in _expected_types(error):
            inner = value[_ITEM]
            inner = inner if isinstance(inner, list) else [inner]
        case dict(), (*_, name) if isinstance(error.kind, _MISTYPED) and value.keys() == {name}:
            inner = value[str(name)]
        case _:
            return None
    return _replace(path, copy_value(inner), "unless_invalid")


def _serialize(error: ValidationError, path: Path, value: JsonValue) -> _Change | None:
    text = _to_text(value) if "string" in _expected_types(error) else None
    change = _replace(path, text, "unless_invalid")
    return None if change is None else replace(change, cost=_COST_OF_TEXT)


def _expected_types(error: ValidationError) -> Sequence[str]:
    return error.kind.types if isinstance(error.kind, Kind.Type) else ()


def _replace(
    path: Path, value: JsonValue, condition: _Condition = "unless_mistyped"
) -> _Change | None:
    return None if value is None else _Change(path, value, condition, (path,))


def _drop(path: Path, condition: _Condition) -> _Change:
    return _Change(path, None, condition, (path,), cost=1, is_drop=True)


def _is_textual_null(error: ValidationError, value: JsonValue) -> bool:
    """Return whether the value is the text "null" or "None" and the schema expects no text.

    In formats with tags, such as Qwen3-Coder's, all values are text.
    """
    expected = _expected_types(error)
    return (
        value in _NOTHING and bool(expected) and "string" not in expected and "null" not in expected
    )


def _is_member(error: ValidationError, path: Path) -> bool:
    """Return whether the path is that of a property, so that null may mean "absent"."""
    return bool(path) and ("properties", path[-1]) in pairwise(error.evaluation_path)


def _unknown_members(error: ValidationError, value: JsonObject) -> list[str]:
    if isinstance(error.kind, Kind.AdditionalProperties):
        return error.kind.unexpected
    return list(value) if forbids_members(error) else []


def _path_of(error: ValidationError) -> Path:
    return tuple(error.instance_path)


def _prefixes(path: Path) -> list[Path]:
    return [path[:length] for length in range(len(path) + 1)]
