"""Compiles JSON schemas (draft 2020-12), checks values and lists their errors.

`compile_schema` compiles a schema once and caches it. It refuses a schema if the estimates of
`workload` and `patterns` show that compiling or checking would block the event loop. Formats are
not checked, and remote references are never fetched.

Real schemas deviate from the specification in three ways that are accepted here:

    {"type": "integer", "default": "auto"}    "auto" is valid, although it is no integer
    {"description": "Defaults to None.", ...}  null is valid for any type
    {"type": "array", "enum": ["a", "b"]}     the items of the array must be "a" or "b"
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
    STEPS_PER_UNIT,
    TRIES,
    PatternCost,
    Patterns,
    choose_patterns,
)
from proxy.guardrails.schemas.rewriting import (
    IrremovablePattern,
    remove_patterns,
    remove_unknown_types,
)
from proxy.guardrails.schemas.workload import (
    ListingBudget,
    Workload,
)
from proxy.guardrails.schemas.workload import Path as Path

_PROBLEM_LIMIT = 200  # characters of a message, which may quote a large part of the schema
_TOO_LONG_TO_MATCH = "its patterns would take too long to match with this value"
_TOO_MUCH_WORK = "its branches multiply: checking this value would take too long"

_PATTERN = b'"pattern'  # the start of `pattern` and of `patternProperties`
# Only a schema whose text contains these strings can have errors that are accepted
# (`_AcceptedErrors`). "efault" occurs in the keyword `default`, and in the word "Default" or
# "default" of a description.
_DEFAULT, _ENUM, _ARRAY = b"efault", b'"enum"', b'"array"'
# Schemas generated from Python docstrings state a null default only in the description.
_NO_DEFAULT = re.compile(r"[Dd]efaults?(?: value)?(?: is| to|:|=)\s*[`'\"]?(?:None|null)\b")
# The cache limits the total size of its documents. A compiled schema takes 15 bytes of memory per
# byte of its document. A unit of a compiled pattern takes 32 bytes, or 64 bytes at its limit, so a
# unit counts as four bytes of a document.
_DOCUMENT_BYTES_PER_UNIT = 4
_LIMIT_ERRORS = (Kind.BacktrackLimitExceeded, Kind.RegexEngineFailure)


class UnusableSchema(ValueError):
    """A schema that the validator cannot compile, or that takes too long to check."""


class TooLongToMatch(UnusableSchema):
    """A value is too long for the patterns of its schema. Without patterns it can be checked."""


class TooLargeToExplain(Exception):
    """A value violates its schema, and a list of the errors would take too long."""


class Schema:
    """A compiled schema."""

    def __init__(self, schema: JsonSchema, registry: Registry, workload: Workload) -> None:
        self.problem = ""  # the reason why a part of the schema is not checked
        self._schema = schema
        self._registry = registry
        self._workload = workload
        source = workload.source
        self._may_accept_errors = _DEFAULT in source or (_ENUM in source and _ARRAY in source)
        self._without_patterns: Schema | None = None
        self._validators: dict[int, Draft202012Validator] = {}
        self._validator_for(TRIES[0])  # raises ValueError for an invalid schema

    @property
    def pattern_size(self) -> int:
        """The memory of the schema's patterns in all its validators, in units of 32 bytes."""
        cost = self._workload.pattern_cost()
        return cost.size * len(TRIES) if cost.steps_per_try else cost.size

    def is_valid(self, value: JsonValue, text: str = "") -> bool:
        """Return whether a value satisfies the schema; `text` is its JSON text, if known.

        Raises TooLongToMatch if only the patterns take too long, and UnusableSchema if the check
        takes too long even without the patterns.
        """
        workload = self._workload
        if workload.may_multiply_checks and not workload.is_checkable(value):
            raise UnusableSchema(_TOO_MUCH_WORK)
        validator = self._validator_for(workload.plan_matching(value, text)[0])
        if validator.is_valid(value):
            return True
        # The errors have to be listed only if some of them may be ignored.
        if not (workload.patterns.costs or self._may_accept_errors):
            return False
        try:
            if any(self.errors(value)):
                return False
        except TooLargeToExplain:
            return False
        if workload.patterns.costs and any(map(_is_limit_error, validator.iter_errors(value))):
            raise TooLongToMatch(_TOO_LONG_TO_MATCH)
        return True

    def errors(
        self, value: JsonValue, budget: ListingBudget | None = None
    ) -> Iterator[ValidationError]:
        """Yield every violation; a pattern that exceeds its limit counts as matched.

        Raises TooLargeToExplain for an invalid value that is too large, and TooLongToMatch.
        Several lists for the same value share a `budget`.
        """
        if not self._workload.is_checkable(value):
            raise TooLargeToExplain
        tries, steps = self._workload.plan_matching(value)
        if budget is not None and not budget.covers_steps(2 * steps):
            raise TooLargeToExplain
        validator = self._validator_for(tries)
        if validator.is_valid(value):
            return
        if not self._workload.is_listable(value, budget):
            raise TooLargeToExplain
        accepted = _AcceptedErrors(self._schema, value, self._workload)
        for error in validator.iter_errors(value):
            is_accepted = self._may_accept_errors and accepted.contains(error)
            if not (_is_limit_error(error) or is_accepted):
                yield error

    def integers(self, value: JsonValue) -> Set[Path]:
        """Return the paths of numbers written as `5.0` where an integer is expected.

        JSON Schema accepts such numbers, but strictly typed clients do not (openai/codex#33452).
        """
        return self._workload.integers(value)

    def follow(self) -> None:
        """Build the graph of its sub-schemas in advance; raises TooManySchemas."""
        self._workload.graph()

    def part(self, path: Path, budget: ListingBudget | None = None) -> "Schema | None":
        """Compile the sub-schema at `path` with its references.

        Returns None if the sub-schema does not exist or is invalid, or if its patterns exceed the
        budget.
        """
        try:
            workload = self._workload.part(path)
            steps = workload.pattern_cost().size * STEPS_PER_UNIT
            if budget is not None and not budget.covers_steps(steps):
                return None
            return Schema({"$ref": f"{ROOT}#{pointer(path)}"}, self._registry, workload)
        except (ValueError, LookupError):
            return None

    def without_patterns(self) -> "Schema":
        """Return the schema without its patterns; raises UnusableSchema.

        The `problem` of the returned schema reports that a value was too long for the patterns.
        """
        if self._without_patterns is None:
            schema = json.parse(self._workload.source)
            try:
                compiled = _compile_root(
                    remove_patterns(schema, self._workload.patterns.costs), NO_PATTERNS
                )
            except ValueError as error:
                raise UnusableSchema(f"{_TOO_LONG_TO_MATCH}, and {error}") from error
            compiled.problem = _TOO_LONG_TO_MATCH
            self._without_patterns = compiled
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


def _is_limit_error(error: ValidationError) -> bool:
    return isinstance(error.kind, _LIMIT_ERRORS)


class _AcceptedErrors:
    """Errors that are ignored because of a schema on their path (see the start of the module).

    A declared default is valid for a member, but not for the complete value: if `{}` is the default
    of all arguments, required arguments are still required. No value satisfies `{"type": "array",
    "enum": ["a", "b"]}`, so its options are applied to the items.
    """

    def __init__(self, schema: JsonSchema, value: JsonValue, workload: Workload) -> None:
        graph = workload.graph()
        self._schema = schema
        self._value = value
        self._references = graph.references
        self._is_root = workload.start is graph.document
        self._known: dict[tuple[int, int], bool] = {}

    def contains(self, error: ValidationError) -> bool:
        kind = error.kind
        branches = kind.context if isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid) else ()
        if any(all(map(self.contains, branch)) for branch in branches):
            return True
        values = [*_values_on(self._value, error.instance_path)]
        schema: JsonObject = {}
        with suppress(UnknownTarget):
            for schema, depth in self._references.schemas_on(self._schema, error.evaluation_path):
                if (depth or not self._is_root) and self._is_default(values[depth], schema):
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
    """Return whether a value is an array of options that are not arrays themselves."""
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
    """Compile a schema in advance, so that no reply waits for it."""
    with suppress(UnusableSchema, TooManySchemas):
        compile_schema(schema).follow()


def _compile_document(document: bytes) -> Schema:
    schema = json.parse(document)
    patterns = choose_patterns(schema) if _PATTERN in document else NO_PATTERNS
    problems = [patterns.problem]
    if patterns.refused:
        # `document` is the text of the schema with the refused patterns, so it is not used here.
        schema, document = _without_refused(schema, patterns), b""
    try:
        compiled = _compile_root(schema, patterns, document)
    except ValueError as error:
        usable = remove_unknown_types(schema)
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
    further=lambda schema: schema.pattern_size * _DOCUMENT_BYTES_PER_UNIT,
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
    """Return whether the error says that an object has members but must have none."""
    is_keyword = error.evaluation_path[-1:] == ["additionalProperties"] != error.instance_path[-1:]
    return isinstance(error.kind, Kind.FalseSchema) and is_keyword


def pointer(path: Path) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
