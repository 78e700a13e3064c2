"""The caller's JSON schemas, compiled to check values: draft 2020-12.

`compile_schema` compiles a schema once and caches it. `Schema` checks values and lists what is
wrong. Both refuse what would take too long, which `workload` estimates. Formats are not asserted,
and no reference is fetched.
"""

import re
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from typing import NoReturn

from jsonschema_rs import (
    Draft202012Validator,
    FancyRegexOptions,
    Registry,
    ValidationError,
)
from jsonschema_rs import ValidationErrorKind as Kind

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.guardrails.schemas.graph import ROOT, TooManySchemas, UnknownTarget
from proxy.guardrails.schemas.patterns import (
    NO_PATTERNS,
    STEPS_A_UNIT,
    TRIES,
    PatternCost,
    Patterns,
    choose_patterns,
)
from proxy.guardrails.schemas.rewriting import (
    IrremovablePattern,
    remove_patterns,
    without_unknown_types,
)
from proxy.guardrails.schemas.workload import (
    ListingBudget,
    Workload,
)
from proxy.guardrails.schemas.workload import Path as Path

_PROBLEM_LIMIT = 200
_TOO_LONG_TO_MATCH = "its patterns would take too long to match with this value"
_TOO_MUCH_WORK = "its branches multiply: checking this value would take too long"

_PATTERN = b'"pattern'  # or patternProperties
# Part of the keyword, and of "Default" and "default" in a description.
_DEFAULT, _ENUM, _ARRAY = b"efault", b'"enum"', b'"array"'
# How descriptions that were made from Python's docstrings say that a default is null.
_NO_DEFAULT = re.compile(r"[Dd]efaults?(?: value)?(?: is| to|:|=)\s*[`'\"]?(?:None|null)\b")
_BYTES_A_UNIT = 4  # of a pattern, where what is made of a document's byte takes fifteen
_GAVE_UP = (Kind.BacktrackLimitExceeded, Kind.RegexEngineFailure)


class UnusableSchema(ValueError):
    """A schema that the validator cannot compile."""


class TooLongToMatch(UnusableSchema):
    """A value is too long for the patterns of its schema; it can be checked without them."""


class TooLargeToExplain(Exception):
    """A value violates its schema, and is too large to find out where."""


class Schema:
    """A compiled schema; `part` compiles one of its sub-schemas."""

    def __init__(self, schema: JsonSchema, registry: Registry, workload: Workload) -> None:
        self.problem = ""  # the reason why a part of it is not checked
        self._schema = schema
        self._registry = registry
        self._workload = workload
        source = workload.source
        self._has_exceptions = _DEFAULT in source or (_ENUM in source and _ARRAY in source)
        self._without_patterns: Schema | None = None
        self._validators: dict[int, Draft202012Validator] = {}
        self._validator_for(TRIES[0])  # raises ValueError for a schema that is none

    @property
    def pattern_size(self) -> int:
        """The memory for all its patterns, in units of 32 bytes, for each number of tries."""
        cost = self._workload.pattern_cost()
        return cost.size * len(TRIES) if cost.steps_a_try else cost.size

    def is_valid(self, value: JsonValue, written: str = "") -> bool:
        """Return whether a value, `written` so, satisfies the schema.

        Raises UnusableSchema for too much work; that is TooLongToMatch if only its patterns are too
        much work for the value.
        """
        workload = self._workload
        if workload.is_suspicious and not workload.is_bearable(value):
            raise UnusableSchema(_TOO_MUCH_WORK)
        validator = self._validator_for(workload.plan_matching(value, written)[0])
        if validator.is_valid(value):
            return True
        if not (workload.patterns.costs or self._has_exceptions):
            return False
        try:
            if any(self.errors(value)):
                return False
        except TooLargeToExplain:
            return False
        if workload.patterns.costs and any(map(_gave_up, validator.iter_errors(value))):
            raise TooLongToMatch(_TOO_LONG_TO_MATCH)
        return True

    def errors(
        self, value: JsonValue, budget: ListingBudget | None = None
    ) -> Iterator[ValidationError]:
        """Yield every violation; a pattern that is too hard to match counts as matched.

        A declared default is valid, even if its type or the options say otherwise, and so is an
        array if the options of its items are those of the array.
        Raises TooLargeToExplain, though not if the validator finds no fault; and TooLongToMatch.
        Whoever lists the errors of a value several times gives all of them one budget.
        """
        if not self._workload.is_bearable(value):
            raise TooLargeToExplain
        tries, steps = self._workload.plan_matching(value)
        if budget is not None and not budget.covers_steps(2 * steps):
            raise TooLargeToExplain
        validator = self._validator_for(tries)
        if validator.is_valid(value):
            return
        if not self._workload.is_listable(value, budget):
            raise TooLargeToExplain
        exceptions = _Exceptions(self._schema, value, self._workload)
        for error in validator.iter_errors(value):
            if not (_gave_up(error) or (self._has_exceptions and exceptions.include(error))):
                yield error

    def integers(self, value: JsonValue) -> Set[Path]:
        """Return the places of whole numbers written as `5.0` where an integer is due.

        JSON Schema takes them for integers, strictly typed clients do not (openai/codex#33452).
        """
        return self._workload.integers(value)

    def follow(self) -> None:
        """Find out which of its schemas check what; raises TooManySchemas."""
        self._workload.graph()

    def part(self, path: Path, budget: ListingBudget | None = None) -> "Schema | None":
        """Compile the sub-schema at `path` with its references; None if that is impossible.

        It is also impossible if the budget does not cover the time for its patterns.
        """
        try:
            workload = self._workload.part(path)
            steps = workload.pattern_cost().size * STEPS_A_UNIT
            if budget is not None and not budget.covers_steps(steps):
                return None
            return Schema({"$ref": f"{ROOT}#{pointer(path)}"}, self._registry, workload)
        except (ValueError, LookupError):
            return None

    def without_patterns(self) -> "Schema":
        """Return the schema with all patterns counted as matched; raises UnusableSchema.

        Its problem is that a value was too long for them.
        """
        if self._without_patterns is None:
            schema = json.parse(self._workload.source)
            try:
                rest = _compile_root(
                    remove_patterns(schema, self._workload.patterns.costs), NO_PATTERNS
                )
            except ValueError as error:
                raise UnusableSchema(f"{_TOO_LONG_TO_MATCH}, and {error}") from error
            rest.problem = _TOO_LONG_TO_MATCH
            self._without_patterns = rest
        return self._without_patterns

    def _validator_for(self, tries: int) -> Draft202012Validator:
        """Return the validator whose patterns may backtrack so many times."""
        if not tries:
            raise TooLongToMatch(_TOO_LONG_TO_MATCH)
        if tries not in self._validators:
            limit = PatternCost.largest(self._workload.patterns.costs.values()).memory_limit
            self._validators[tries] = Draft202012Validator(
                self._schema,
                validate_formats=False,
                retriever=_refuse,
                registry=self._registry,
                pattern_options=FancyRegexOptions(backtrack_limit=tries, size_limit=limit),
            )
        return self._validators[tries]


def _gave_up(error: ValidationError) -> bool:
    return isinstance(error.kind, _GAVE_UP)


class _Exceptions:
    """The errors of a value that are none, by the schemas on the way to each of them.

    A place that holds its declared default is valid, but not the whole: empty arguments are not the
    default of those that are required. With `{"type": "array", "enum": ["a", "b"]}` no value at all
    would be valid, so these are the options of the items.
    """

    def __init__(self, schema: JsonSchema, value: JsonValue, workload: Workload) -> None:
        graph = workload.graph()
        self._schema = schema
        self._value = value
        self._references = graph.references
        self._is_whole = workload.start is graph.document
        self._known: dict[tuple[int, int], bool] = {}

    def include(self, error: ValidationError) -> bool:
        kind = error.kind
        branches = kind.context if isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid) else ()
        if any(all(map(self.include, branch)) for branch in branches):
            return True
        values = [*_values_on(self._value, error.instance_path)]
        schema: JsonObject = {}
        with suppress(UnknownTarget):
            for schema, depth in self._references.schemas_on(self._schema, error.evaluation_path):
                if (depth or not self._is_whole) and self._is_default(values[depth], schema):
                    return True
        return isinstance(kind, Kind.Enum) and _are_options(values[-1], schema)

    def _is_default(self, value: JsonValue, schema: JsonObject) -> bool:
        key = id(value), id(schema)
        if key not in self._known:
            self._known[key] = _is_default(value, schema)
        return self._known[key]


def _values_on(value: JsonValue, path: Iterable[str | int]) -> Iterator[JsonValue]:
    yield value
    for step in path:
        if isinstance(value, dict):
            value = value[str(step)]
        elif isinstance(value, list):
            value = value[int(step)]
        yield value


def _is_default(value: JsonValue, schema: JsonObject) -> bool:
    if "default" in schema:
        return _is_same(value, schema["default"])
    described = schema.get("description")
    return value is None and isinstance(described, str) and bool(_NO_DEFAULT.search(described))


def _are_options(value: JsonValue, schema: JsonObject) -> bool:
    """Return whether a value is an array of options, although none of these is an array."""
    options = schema.get("enum")
    if schema.get("type") != "array" or not (isinstance(value, list) and isinstance(options, list)):
        return False
    has_arrays = any(isinstance(option, list) for option in options)
    return not has_arrays and all(any(_is_same(one, other) for other in options) for one in value)


def _is_same(value: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same in JSON, where `true` is not 1."""
    return value == other and repr(value) == repr(other)


def compile_schema(schema: JsonSchema) -> Schema:
    """Compile a schema, or return it from the cache; raises UnusableSchema."""
    try:
        document = json.dump(schema)
        if len(document) > bounds.SCHEMA_BYTES:
            raise UnusableSchema(f"it has more than {bounds.SCHEMA_BYTES:,} bytes")
        return _compile_cached(document)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise UnusableSchema(reason[:_PROBLEM_LIMIT]) from error


def prepare_checks(schema: JsonSchema) -> None:
    """Do once what checks of values need, so that none has to do it first."""
    with suppress(UnusableSchema, TooManySchemas):
        compile_schema(schema).follow()


def _compile_document(document: bytes) -> Schema:
    schema = json.parse(document)
    patterns = choose_patterns(schema) if _PATTERN in document else NO_PATTERNS
    problems = [patterns.problem]
    if patterns.refused:
        schema, document = _without_refused(schema, patterns), b""
    try:
        compiled = _compile_root(schema, patterns, document)
    except ValueError as error:
        usable = without_unknown_types(schema)
        if usable == schema:
            raise
        compiled = _compile_root(usable, patterns)
        problems.append(str(error).partition("\n")[0])
    compiled.problem = "; ".join(filter(None, problems))[:_PROBLEM_LIMIT]
    return compiled


def _without_refused(schema: JsonValue, patterns: Patterns) -> JsonValue:
    try:
        return remove_patterns(schema, patterns.refused)
    except IrremovablePattern as error:
        raise UnusableSchema(f"{error}, and {patterns.problem}") from error


_compile_cached = DocumentCache(
    _compile_document,
    largest=bounds.SCHEMA_BYTES,
    further=lambda schema: schema.pattern_size * _BYTES_A_UNIT,
)


def _compile_root(schema: JsonValue, patterns: Patterns, document: bytes = b"") -> Schema:
    """Compile a schema; `document` is how it was written, if that is known."""
    if not isinstance(schema, dict | bool):
        raise UnusableSchema("a schema is an object or a boolean")
    workload = Workload.of(schema, document or json.dump(schema), patterns)
    return Schema(schema, Registry([(ROOT, schema)], retriever=_refuse), workload)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched")


def list_allowed_values(error: ValidationError) -> list[JsonValue]:
    """Return the values that the violated `enum` or `const` allows."""
    value: JsonValue = error.kind.value
    return value if isinstance(value, list) and error.kind.name == "enum" else [value]


def forbids_members(error: ValidationError) -> bool:
    """Return whether an object has members although its schema allows none."""
    is_keyword = error.evaluation_path[-1:] == ["additionalProperties"] != error.instance_path[-1:]
    return isinstance(error.kind, Kind.FalseSchema) and is_keyword


def pointer(path: Path) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
