"""Compiled JSON schemas (draft 2020-12): they check values and list the errors.

`compile_schema` compiles a schema once and caches it. Both compiling and checking refuse work that
would keep the event loop busy, by the estimates of `workload` and `patterns`. Formats are not
asserted, and references are never fetched.

Real schemas break the letter of the specification in three ways that are accepted here:

    {"type": "integer", "default": "auto"}           the default is valid, of any type
    {"type": "string", "description": "Defaults to None."}            and so is null here
    {"type": "array", "enum": ["a", "b"]}            the options are those of the items
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
# Marks of schemas that may need an exception. "efault" is in the keyword `default`, and in
# "Default" and "default" of a description.
_DEFAULT, _ENUM, _ARRAY = b"efault", b'"enum"', b'"array"'
# Schemas generated from Python docstrings state a null default only in the description.
_NO_DEFAULT = re.compile(r"[Dd]efaults?(?: value)?(?: is| to|:|=)\s*[`'\"]?(?:None|null)\b")
# Patterns are compiled into programs of 32 bytes per unit. The cache counts documents, of which
# each byte takes 15 bytes of memory compiled, so a unit counts as a few bytes of a document.
_BYTES_A_UNIT = 4
_GAVE_UP = (Kind.BacktrackLimitExceeded, Kind.RegexEngineFailure)


class UnusableSchema(ValueError):
    """A schema that the validator cannot compile, or that takes too long to check."""


class TooLongToMatch(UnusableSchema):
    """A value is too long for the patterns of its schema; without them it can be checked."""


class TooLargeToExplain(Exception):
    """A value violates its schema and is too large for a list of the errors."""


class Schema:
    """A compiled schema; `part` compiles one of its sub-schemas."""

    def __init__(self, schema: JsonSchema, registry: Registry, workload: Workload) -> None:
        self.problem = ""  # why a part of the schema is not checked
        self._schema = schema
        self._registry = registry
        self._workload = workload
        source = workload.source
        self._has_exceptions = _DEFAULT in source or (_ENUM in source and _ARRAY in source)
        self._without_patterns: Schema | None = None
        self._validators: dict[int, Draft202012Validator] = {}
        self._validator_for(TRIES[0])  # raises ValueError for an invalid schema

    @property
    def pattern_size(self) -> int:
        """Memory of all its patterns, for each number of tries, in units of 32 bytes."""
        cost = self._workload.pattern_cost()
        return cost.size * len(TRIES) if cost.steps_a_try else cost.size

    def is_valid(self, value: JsonValue, text: str = "") -> bool:
        """Return whether a value satisfies the schema; `text` is its JSON text, if known.

        Raises TooLongToMatch if only the patterns take too long, otherwise UnusableSchema.
        """
        workload = self._workload
        if workload.is_suspicious and not workload.is_bearable(value):
            raise UnusableSchema(_TOO_MUCH_WORK)
        validator = self._validator_for(workload.plan_matching(value, text)[0])
        if validator.is_valid(value):
            return True
        # The list of errors is needed only if some of them may not count.
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

        Raises TooLargeToExplain for an invalid value that is too large, and TooLongToMatch.
        Repeated listings for one value share one `budget`.
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
        """Return the paths of whole numbers spelled `5.0` where an integer is expected.

        JSON Schema accepts them; strictly typed clients do not (openai/codex#33452).
        """
        return self._workload.integers(value)

    def follow(self) -> None:
        """Build the graph of its sub-schemas in advance; raises TooManySchemas."""
        self._workload.graph()

    def part(self, path: Path, budget: ListingBudget | None = None) -> "Schema | None":
        """Compile the sub-schema at `path` with its references; None if that is impossible.

        It is also impossible if the budget does not cover compiling its patterns.
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
        """Return the schema with every pattern counted as matched; raises UnusableSchema.

        Its `problem` reports that a value was too long for the patterns.
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
        """Return the validator that lets patterns backtrack `tries` times."""
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
    """Errors that do not count, found by the schemas on the way to each of them.

    A member that holds its declared default is valid, but not the whole object: `{}` as the default
    of all arguments does not excuse missing members. No value at all satisfies `{"type": "array",
    "enum": ["a", "b"]}`, so the options are taken for those of the items.
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
    """Return whether a value is an array of options, although no option is an array."""
    options = schema.get("enum")
    if schema.get("type") != "array" or not (isinstance(value, list) and isinstance(options, list)):
        return False
    has_arrays = any(isinstance(option, list) for option in options)
    return not has_arrays and all(
        any(_is_same(item, option) for option in options) for item in value
    )


def _is_same(value: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are equal in JSON, where `true` differs from 1."""
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
    """Compile a schema before the first reply arrives, so that no reply waits for it."""
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
    """Compile a schema; `document` is its JSON text, if known."""
    if not isinstance(schema, dict | bool):
        raise UnusableSchema("a schema must be an object or a boolean")
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
