"""Removes patterns from a schema, as if every value matched them.

The result accepts everything that the schema accepts, so no valid value is rejected because of a
pattern that is not checked. Where that is impossible, the schema cannot be used.
"""

from collections.abc import Collection, Iterator

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.keywords import change_schemas

# A value is rejected if *more* of these match. References may lead to a removed pattern.
_INVERTING = frozenset(["if", "not", "oneOf"])
_REFERENCES = frozenset(["$ref", "$dynamicRef"])
_EVERY_NAME = ""  # the pattern that matches all names


class IrremovablePattern(ValueError):
    """Without the pattern the schema would reject values that it accepts."""


def patterns_in(document: JsonValue) -> Iterator[str]:
    """Yield all patterns of a schema, repeated ones repeatedly.

    Everything that may be a pattern counts, also in examples: a reference can lead there.
    """
    rest = [document]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if isinstance(pattern := value.get("pattern"), str):
                yield pattern
            if isinstance(by_pattern := value.get("patternProperties"), dict):
                yield from by_pattern
            rest += value.values()
        elif isinstance(value, list):
            rest += value


def remove_patterns(schema: JsonValue, patterns: Collection[str]) -> JsonValue:
    """Return the schema without these patterns; raises IrremovablePattern."""
    removed = _Removal(patterns).remove(schema)
    if not frozenset(patterns).isdisjoint(patterns_in(removed)):
        raise IrremovablePattern("a pattern is where no schema is expected")
    return removed


class _Removal:
    def __init__(self, patterns: Collection[str]) -> None:
        self._patterns = patterns
        self._effects = 0  # patterns removed, and references to where that may have happened

    def remove(self, schema: JsonValue) -> JsonValue:
        if not isinstance(schema, dict):
            return schema
        self._effects += not _REFERENCES.isdisjoint(schema)
        result: JsonObject = {}
        for keyword, value in schema.items():
            if keyword == "pattern" and isinstance(value, str) and value in self._patterns:
                self._effects += 1
            else:
                result[keyword] = self._remove_in(schema, keyword, value)
        return result

    def _remove_in(self, schema: JsonObject, keyword: str, value: JsonValue) -> JsonValue:
        effects = self._effects
        if keyword == "patternProperties" and isinstance(value, dict):
            value = self._remove_names(value)
        changed = change_schemas(keyword, value, self.remove)
        is_inverting = keyword in _INVERTING or (keyword == "contains" and "maxContains" in schema)
        if is_inverting and self._effects > effects:
            raise IrremovablePattern(f"a pattern cannot be left out within {keyword!r}")
        return changed

    def _remove_names(self, by_pattern: JsonObject) -> JsonObject:
        """Return `patternProperties` in which other names count as known, whatever their value."""
        rest = {name: schema for name, schema in by_pattern.items() if name not in self._patterns}
        if len(rest) == len(by_pattern):
            return by_pattern
        self._effects += 1
        return {_EVERY_NAME: True, **rest}
