"""Estimates the time that the validator needs for a schema and a value, before it runs.

`Workload` decides whether a value may be checked (`is_checkable`), whether its errors may be listed
(`is_listable`), and how patterns are matched (`plan_matching`). It examines the schema once. If
some value could take much work, each value is examined as well: a walk through the value counts the
work at each location.
"""

# Branches multiply the work. If each of n definitions refers to the next definition twice, a schema
# of a few hundred bytes takes 2^n checks. `unevaluatedProperties` checks its branches again even
# without a reference. Therefore the schema is converted to a graph, and the walk counts for each
# location how often each node checks it. The validator's memoization is ignored, so the estimate is
# an upper bound.

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TypeAlias

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.graph import Graph, Kind, Label, TooManySchemas, follow
from proxy.guardrails.schemas.patterns import (
    FREE,
    IMPOSSIBLE,
    NO_COST,
    NO_PATTERNS,
    TRIES,
    Matching,
    PatternCost,
    Patterns,
    patterns_in,
)

Path: TypeAlias = tuple[Label, ...]
Counts: TypeAlias = Mapping[int, int]  # from the number of a node to its number of checks

_LONGEST_CHAIN = 2_000  # nested schemas; the time to compile them is quadratic
# No walk is needed if a value with one member or item on each level takes at most this many checks.
_FEW_CHECKS = 1_000
_MULTIPLYING = (b'"$ref"', b'"$dynamicRef"', b'"unevaluated')  # keywords that multiply checks
# The validator lists all errors at once. Each error contains a copy of the wrong value, and one
# more copy for each union around the value. A copy takes 0.3 to 1 microseconds, and the error
# itself takes ten times as long as a copy. So 10,000 wrong items of an array take 0.1 s, and 2,000
# wrong names in an object 1.5 s.
_COPIES_PER_ERROR = 10
_MOST_CHECKS = 10**9  # above all limits, and small enough for fast arithmetic
_LARGEST_EXACT = 2**53  # a larger float may differ from the number in the JSON text
_ENOUGH_TRIES = TRIES[1]  # no walk is needed if the upper bound of the cost allows this many tries
_LARGEST_PART = 10_000  # limit for a sub-schema's patterns, which are compiled a second time


@dataclass(slots=True, eq=False)
class _Checks:
    """The checks of the values at one location.

    - `counts`: node -> how often it checks the values; `total` is the sum of these counts
    - `unions`: the number of unions around the location
    - `errors`: the maximum number of errors
    - `labels`: the member names and indexes with separate schemas
    - `names`: the checks of the names of members
    - `patterns`: the costs per character of text and of member names; None until computed
    """

    counts: Counts
    unions: int
    total: int
    errors: int
    labels: frozenset[Label]
    names: "_Checks | None" = None
    patterns: tuple[PatternCost, PatternCost] | None = None
    inner: dict[tuple[Kind, Label | None], "_Checks"] = field(default_factory=dict)


@dataclass(slots=True)
class ListingBudget:
    """The remaining work for lists of the errors of one value.

    `copies` is the number of copies of parts of the value. `steps` is the number of steps for
    matching patterns. The steps of a list count twice: the validator first decides whether the
    value is valid, and then lists the errors.
    """

    copies: int = field(default_factory=lambda: bounds.COPIES)
    steps: int = field(default_factory=lambda: 6 * bounds.PATTERN_STEPS)

    def covers_steps(self, steps: int) -> bool:
        """Subtract steps from the budget; return whether it covered them."""
        self.steps -= steps
        return self.steps >= 0


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of a validator for a schema, or for its sub-schema `start`.

    - `graph` builds the graph at the first call; raises TooManySchemas
    - `source`: the JSON text of the complete schema
    - `most`: the highest possible cost of the `patterns` per byte of a value's text
    """

    graph: Callable[[], Graph]
    source: bytes
    start: JsonValue
    patterns: Patterns = NO_PATTERNS
    most: PatternCost = NO_COST
    may_multiply_checks: bool = False

    @classmethod
    def of(cls, schema: JsonValue, source: bytes, patterns: Patterns = NO_PATTERNS) -> "Workload":
        """Examine a schema with the JSON text `source`; raises ValueError if it is unusable.

        Only references and `unevaluated...` multiply checks. For a schema without these keywords,
        the graph is not built until an error has to be explained.
        """
        make_graph = cache(partial(Graph, schema))
        if not any(mark in source for mark in _MULTIPLYING):
            most = patterns.total(patterns_in(schema)) if patterns.costs else NO_COST
            return cls(make_graph, source, schema, patterns, most)
        graph = make_graph()
        start = graph.number_of(schema)
        if graph.lengths[start] > _LONGEST_CHAIN:
            raise TooManySchemas(f"a chain of more than {_LONGEST_CHAIN} schema references")
        if not graph.is_complete:
            raise ValueError("a reference has an unknown target")
        checks = graph.checks[start]
        most = PatternCost.largest(patterns.costs.values()) * checks
        return cls(make_graph, source, schema, patterns, most, checks > _FEW_CHECKS)

    def part(self, path: Iterable[str | int]) -> "Workload":
        """Return the workload of a sub-schema; raises LookupError if it does not exist.

        Raises ValueError if its patterns are too large to be compiled separately.
        """
        graph = self.graph()
        start = follow(graph.document, [str(step) for step in path])
        graph.number_of(start)
        part = replace(self, start=start)
        if part.pattern_cost().size > _LARGEST_PART:
            raise ValueError(
                "the patterns of this sub-schema are too large to compile it separately"
            )
        return part

    def pattern_cost(self) -> PatternCost:
        """Return the cost of the patterns below `start`, or of all if their total size is small."""
        cost = self.patterns.total(self.patterns.costs)
        if cost.size <= _LARGEST_PART:
            return cost
        graph = self.graph()
        return self.patterns.total(graph.patterns_from(graph.number_of(self.start)))

    def plan_matching(self, value: JsonValue, text: str = "") -> Matching:
        """Choose how to match a value with the patterns; `text` is its JSON text, if known."""
        if not self.patterns.costs:
            return FREE
        size = _most_bytes(text) if text else _most_text(value)
        matching = (self.most * size).plan()
        if matching[0] >= _ENOUGH_TRIES:
            return matching
        try:
            return self._sum_up_patterns(value).plan()
        except TooManySchemas:
            return IMPOSSIBLE

    def _sum_up_patterns(self, value: JsonValue) -> PatternCost:
        """Return the cost of matching all text and all names in a value."""
        cost = NO_COST
        walk = _Walk(self.graph(), self.start)
        for item, checks, *_ in walk.locations(value):
            text, names = checks.patterns or walk.add_patterns(checks, self.patterns)
            if isinstance(item, str):
                cost += text * _length(item)
            elif isinstance(item, dict) and names != NO_COST:
                cost += names * sum(map(_length, item))
            if cost.steps > bounds.PATTERN_STEPS:
                break
        return cost

    def integers(self, value: JsonValue) -> Set[Path]:
        """Return the paths of numbers such as `5.0` where the schema expects an integer."""
        paths: set[Path] = set()
        path: list[Label] = []
        with suppress(TooManySchemas):
            walk = _Walk(self.graph(), self.start)
            for item, checks, depth, label in walk.locations(value):
                path[max(depth - 1, 0) :] = [label] if depth else []
                if isinstance(item, float) and item.is_integer() and abs(item) <= _LARGEST_EXACT:
                    types = walk.types(checks)
                    if "integer" in types and "number" not in types:
                        paths.add(tuple(path))
        return paths

    def is_checkable(self, value: JsonValue) -> bool:
        """Return whether the validator takes little time to check a value, valid or invalid."""
        if not self.may_multiply_checks:
            return True
        walk = _Walk(self.graph(), self.start, bounds.CHECKS)
        for item, checks, *_ in walk.locations(value):
            walk.remaining -= checks.total
            if checks.names is not None:
                walk.remaining -= checks.names.total * _size(item)
            if walk.remaining < 0:
                return False
        return True

    def is_listable(self, value: JsonValue, budget: ListingBudget | None = None) -> bool:
        """Charge the budget for listing a value's errors; return whether the budget is sufficient.

        Each error costs a copy of its value, and one more copy for each union around the value.
        """
        budget = budget or ListingBudget()
        copies_left, budget.copies = budget.copies, 0  # if the list is too long, all is spent
        if copies_left <= 0:
            return False
        try:
            walk = _Walk(self.graph(), self.start, copies_left)
        except TooManySchemas:
            return False
        copies = [0]  # for each level around a location, how often its value is copied
        for item, checks, depth, _ in walk.locations(value):
            errors = checks.errors
            if checks.names is not None:
                errors += checks.names.errors * _size(item)
            del copies[depth + 1 :]
            copies.append(copies[depth] + errors * (1 + checks.unions))
            walk.remaining -= 1 + copies[-1] + errors * _COPIES_PER_ERROR
            # each part costs at least the copies of the containers around it
            parts = len(item) if isinstance(item, dict | list) else 0
            if walk.remaining < parts * (1 + copies[-1]):
                return False
        budget.copies = walk.remaining
        return True


class _Walk:
    """A walk through a value that counts the checks of each location, within a budget."""

    def __init__(self, graph: Graph, start: JsonValue, limit: int = 0) -> None:
        self._graph = graph
        self._start = start
        self.remaining = limit
        self._known: dict[tuple[frozenset[tuple[int, int]], int], _Checks] = {}

    def locations(self, value: JsonValue) -> Iterator[tuple[JsonValue, _Checks, int, Label]]:
        """Yield each location in a value with its checks, its depth and its label."""
        top = self._checks({self._graph.number_of(self._start): 1}, 0)
        yield value, top, 0, 0
        stack = [(top, _parts(value))]
        while stack:
            checks, parts = stack[-1]
            if (part := next(parts, None)) is None:
                stack.pop()
                continue
            kind, label, item = part
            inner = self._inner(checks, kind, label)
            yield item, inner, len(stack), label
            if isinstance(item, dict | list):
                stack.append((inner, _parts(item)))

    def _inner(self, checks: _Checks, kind: Kind, name: Label) -> _Checks:
        """Return the checks of a member or item inside a location."""
        label = name if name in checks.labels else None  # all other names share one entry
        checks_inside = checks.inner.get((kind, label))
        if checks_inside is None:
            self.remaining -= len(checks.counts)
            counts: dict[int, int] = defaultdict(int)
            for number, times in checks.counts.items():
                for target in self._graph.nodes[number].within(kind, label):
                    counts[target] += times
            checks_inside = checks.inner[kind, label] = self._checks(counts, checks.unions)
        return checks_inside

    def _checks(self, starts: Counts, unions: int) -> _Checks:
        key = (frozenset(starts.items()), unions)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._follow(starts, unions)
        return known

    def _follow(self, starts: Counts, unions: int) -> _Checks:
        """Add the nodes that check the same value.

        The nodes are followed in descending order of their ranks, and links lead to lower ranks. So
        the number of checks of a node is final before the node is followed.
        """
        ranks = self._graph.ranks
        counts, depths = dict(starts), dict.fromkeys(starts, unions)
        names: dict[int, int] = defaultdict(int)
        pending = [(-ranks[number], number) for number in starts]
        heapify(pending)
        while pending:
            _, number = heappop(pending)
            node, times = self._graph.nodes[number], counts[number]
            depths[number] += node.is_union
            for target in node.at("keys"):
                names[target] += times
            for target in node.at("value"):
                if ranks[target] < ranks[number]:
                    if target not in counts:
                        counts[target], depths[target] = 0, unions
                        heappush(pending, (-ranks[target], target))
                    checks = counts[target] + times * node.checks_per_branch
                    counts[target] = min(checks, _MOST_CHECKS)
                    depths[target] = max(depths[target], depths[number])
        nodes = [(self._graph.nodes[number], times) for number, times in counts.items()]
        return _Checks(
            counts,
            max(depths.values(), default=unions),
            sum(counts.values()),
            sum(node.errors * times for node, times in nodes),
            frozenset(chain.from_iterable(node.labeled for node, _ in nodes)),
            self._checks(names, unions) if names else None,
        )

    def add_patterns(self, checks: _Checks, patterns: Patterns) -> tuple[PatternCost, PatternCost]:
        """Store and return the costs of patterns per character of text and of member names."""
        text = names = NO_COST
        for number, times in checks.counts.items():
            node = self._graph.nodes[number]
            text += patterns.total(node.patterns) * times
            names += patterns.total(node.name_patterns) * times
        if checks.names is not None:
            names += self.add_patterns(checks.names, patterns)[0]
        checks.patterns = text, names
        return checks.patterns

    def types(self, checks: _Checks) -> Set[JsonValue]:
        """Return the types in the schemas of a location."""
        nodes = [self._graph.nodes[number] for number in checks.counts]
        return {*chain.from_iterable(node.types for node in nodes)}


def _parts(value: JsonValue) -> Iterator[tuple[Kind, Label, JsonValue]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield "member", name, part
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield "item", number, part


def _most_bytes(text: str) -> int:
    """Return an upper bound of the size of a text in UTF-8, without copying it."""
    return len(text) if text.isascii() else 4 * len(text)


def _most_text(value: JsonValue) -> int:
    """Return an upper bound of the bytes of text in a value, with names and quotes."""
    if isinstance(value, str):
        return _most_bytes(value) + 2
    if isinstance(value, dict):  # not copied, because a member may be a complete file
        size = sum(map(len, value)) if all(map(str.isascii, value)) else len(json.dump([*value]))
        for member in value.values():
            if isinstance(member, str):
                size += _most_bytes(member) + 4
            elif isinstance(member, dict | list):
                size += len(json.dump(member))
        return size
    return len(json.dump(value))


def _length(text: str) -> int:
    """Return the length in UTF-8, with the two quotation marks of JSON."""
    return len(text.encode("utf-8", "surrogatepass")) + 2


def _size(value: JsonValue) -> int:
    return len(value) if isinstance(value, dict) else 0
