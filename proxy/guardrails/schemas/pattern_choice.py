"""Which patterns of a schema are compiled: those that an engine can compile at a bounded cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from jsonschema_rs import Draft202012Validator, FancyRegexOptions

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.pattern_removal import patterns_in
from proxy.guardrails.schemas.patterns import PatternCost, UnreadablePattern, estimate

_TOO_LONG = f"it has more than {bounds.PATTERN_CHARACTERS:,} characters"
_TOO_LARGE = "it is too large when its repeats are written out"
_TOO_LARGE_TOGETHER = "the patterns of the schema are too large together"
_NO_PATTERN = "it is not a regular expression that can be compiled"
_SHOWN = 40  # characters of a pattern
_REMEMBERED = 1_024
_LEAST_MEMORY = 2**15  # for the empty pattern


@dataclass(slots=True)
class PatternChoice:
    """The costs of the patterns to compile, and for each of the others the reason."""

    costs: dict[str, PatternCost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """Which patterns are not checked, and why; empty if all are."""
        if not self.refused:
            return ""
        pattern, reason = next(iter(self.refused.items()))
        shown = pattern if len(pattern) <= _SHOWN else pattern[: _SHOWN - 3] + "..."
        others = f", nor are others ({len(self.refused) - 1:,})" if len(self.refused) > 1 else ""
        return f"the pattern {json.dump_text(shown)} is not checked{others}: {reason}"


def choose_patterns(schema: JsonValue) -> PatternChoice:
    """Choose the patterns to compile: as many as fit into the budget of a schema."""
    choice = PatternChoice()
    left = bounds.PATTERNS_SIZE
    for pattern in dict.fromkeys(patterns_in(schema)):
        if left <= 0:
            choice.refused[pattern] = _TOO_LARGE_TOGETHER
            continue
        cost = _measure(pattern) if len(pattern) <= bounds.PATTERN_CHARACTERS else _TOO_LONG
        if isinstance(cost, str):
            choice.refused[pattern] = cost
            left -= len(pattern) if cost is not _TOO_LONG else 1  # estimating it is work, too
        elif cost.size > left:
            choice.refused[pattern] = _TOO_LARGE_TOGETHER
            left = 0
        else:
            choice.costs[pattern] = cost
            left -= cost.size
    return choice


def memory_limit(costs: Mapping[str, PatternCost]) -> int:
    """Return the memory in bytes that is enough to compile any one of these patterns."""
    return max((cost.memory_limit for cost in costs.values()), default=_LEAST_MEMORY)


@lru_cache(_REMEMBERED)
def _measure(pattern: str) -> PatternCost | str:
    """Return the cost of a pattern, or why it is not compiled."""
    try:
        cost = estimate(pattern)
    except UnreadablePattern as error:
        return str(error)
    if cost.size > bounds.PATTERN_SIZE:
        return _TOO_LARGE
    options = FancyRegexOptions(size_limit=cost.memory_limit)
    try:
        # alone, as otherwise one pattern that cannot be compiled makes the schema unusable
        Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return _NO_PATTERN
    return cost
