"""Tells the model the errors of its arguments or its answer, in one phrase each.

`describe_violations` translates the errors of the validator. A `Violation` consists of the JSON
pointer, the expectation, and the value that the pointer refers to:

    /city: is required but missing
    /unit: expected one of "c", "f", got "kelvin"
    /when: is not a known parameter
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import cast

from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.schema import Path, forbids_members, list_allowed_values, pointer

# Only the first errors are described, because they are part of the prompt of the retry.
_MOST_VIOLATIONS = 5
_MOST_OPTIONS = 20
_LONGEST_VALUE = 80
_LONGEST_POINTER = 120
_LONGEST_EXPECTATION = 1_000
_DEEPEST_UNION = 20  # levels of unions within unions

_ABSENT = "is required but missing"
_EXPECTATIONS = {
    "required": "an object with the member {}",
    "additionalProperties": "an object without the members {}",
    "unevaluatedProperties": "an object without the members {}",
    "falseSchema": "nothing at all",
    "minimum": "a number that is at least {}",
    "maximum": "a number that is at most {}",
    "exclusiveMinimum": "a number greater than {}",
    "exclusiveMaximum": "a number less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "text that matches the pattern {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "items that are all different",
    "minProperties": "at least {} members",
    "maxProperties": "at most {} members",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """An error: what the schema expects at `pointer`, and the value that the model wrote.

    `got` is None if the phrase does not include the value.
    """

    pointer: str
    expected: str
    got: str | None = None

    @property
    def is_absence(self) -> bool:
        return self.expected == _ABSENT

    def __str__(self) -> str:
        return self.about("the arguments")

    def about(self, root: str) -> str:
        """Return the violation as a phrase; `root` is the name of the root value."""
        path = self.pointer or root
        return f"{path}: {self.expected}" + (f", got {self.got}" if self.got is not None else "")


TOO_LARGE = Violation("", "expected less at once: so much is wrong that it cannot be listed")


def describe_violations(errors: Iterable[ValidationError]) -> tuple[Violation, ...]:
    """Describe the first five violations of a schema, missing members first."""
    sorted_errors = sorted(errors, key=lambda error: not isinstance(error.kind, Kind.Required))
    return tuple(islice(chain.from_iterable(map(_describe, sorted_errors)), _MOST_VIOLATIONS))


def _describe(error: ValidationError, depth: int = 0) -> Iterator[Violation]:
    path = tuple(error.instance_path)
    match error.kind:
        case Kind.Required(property=name):
            yield _violation((*path, name), _ABSENT)
        case (
            Kind.AdditionalProperties(unexpected=names)
            | Kind.UnevaluatedProperties(unexpected=names)
        ):
            for name in names:
                yield _violation((*path, name), "is not a known parameter")
        case Kind.PropertyNames(error=about_name):
            expected = f"is no name that is allowed here, expected {_describe_expected(about_name)}"
            yield _violation((*path, str(about_name.instance)), expected)
        case Kind.FalseSchema() if forbids_members(error):
            yield _violation(path, "expected no parameters at all")
        case Kind.FalseSchema():
            yield _violation(path, "is not allowed")
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            yield from _describe_branches(error, branches, depth)
        case _:
            yield _violation(path, f"expected {_describe_expected(error)}", _show_instance(error))


def _describe_branches(
    error: ValidationError, branches: Sequence[Sequence[ValidationError]], depth: int
) -> Iterator[Violation]:
    """Describe the errors of the closest branch. If several are equally close, describe all.

    The closest branch expects the type of the value, and has the fewest errors.
    """
    path = tuple(error.instance_path)
    same_type = [
        branch for branch in branches if not any(_is_other_type(inner, path) for inner in branch)
    ]
    fewest = min(map(len, same_type), default=0)
    closest = [branch for branch in same_type if len(branch) == fewest]
    if len(closest) == 1 and depth < _DEEPEST_UNION:
        yield from chain.from_iterable(_describe(inner, depth + 1) for inner in closest[0])
        return
    yield _violation(path, f"expected {_describe_union(error, branches)}", _show_instance(error))


def _is_other_type(error: ValidationError, path: Path) -> bool:
    return isinstance(error.kind, Kind.Type) and tuple(error.instance_path) == path


def _describe_expected(error: ValidationError, depth: int = 0) -> str:
    match error.kind:
        case Kind.Type(types=types):
            return " or ".join(types)
        case Kind.Enum() | Kind.Constant():
            options = list_allowed_values(error)
            shown = [_show(option) for option in options[:_MOST_OPTIONS]]
            shown += ["..."] if len(options) > _MOST_OPTIONS else []
            return ("one of " if len(options) > 1 else "") + ", ".join(shown)
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            return _describe_union(error, branches, depth)
        case Kind.OneOfMultipleValid(context=branches):
            return f"only one of {len(branches)} forms to fit, not several"
        case Kind.PropertyNames(error=about_name) if depth < _DEEPEST_UNION:
            return f"member names that are {_describe_expected(about_name, depth + 1)}"
        case _:
            keyword = error.kind.name
            phrase = _EXPECTATIONS.get(keyword, f"what the schema demands with {keyword!r}")
            return phrase.format(_show(error.kind.value)) if "{}" in phrase else phrase


def _describe_union(
    error: ValidationError, branches: Sequence[Sequence[ValidationError]], depth: int = 0
) -> str:
    """Describe the alternatives, or only count them if an error is about a part of the value."""
    path = tuple(error.instance_path)
    first_errors = [branch[0] for branch in branches if branch]
    is_simple = all(tuple(inner.instance_path) == path for inner in first_errors)
    if not is_simple or depth == _DEEPEST_UNION:
        return f"one of {len(branches)} different forms"
    phrases = list(dict.fromkeys(_describe_expected(inner, depth + 1) for inner in first_errors))
    more = ["..."] if len(phrases) > _MOST_OPTIONS else []
    return _shorten(" or ".join(phrases[:_MOST_OPTIONS] + more), _LONGEST_EXPECTATION)


def _violation(path: Path, expected: str, got: str | None = None) -> Violation:
    return Violation(_shorten(pointer(path), _LONGEST_POINTER), expected, got)


def _show_instance(error: ValidationError) -> str:
    return _show(cast("JsonValue", error.instance))


def _show(value: JsonValue) -> str:
    try:
        return _shorten(json.dump_text(value), _LONGEST_VALUE)
    except (TypeError, ValueError):
        return "what JSON cannot write"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
