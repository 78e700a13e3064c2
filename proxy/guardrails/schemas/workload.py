"""Estimates how much work a schema and a value are for the validator, before it does the work.

`Workload` decides whether a value may be checked (`is_bearable`), whether its errors may be listed
(`is_listable`), and how patterns are matched (`plan_matching`). It examines the schema once; only
if that is not enough a walk along the value counts the work at each location in it.
"""

# Branches multiply. A definition that refers to a second one twice, which refers to a third one
# twice, and so on, has a few hundred bytes and takes 2^n checks; `unevaluatedProperties` examines
# its branches again even without a reference. Therefore the schema becomes a graph, and a value is
# walked through it: each location is checked by certain nodes, each of them a number of times. What
# the validator memoizes is ignored, so the estimate is an upper bound.

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
Counts: TypeAlias = Mapping[int, int]  # how often each node checks something

_LONGEST_CHAIN = 2_000  # of schemas within schemas: compiling takes the square of it
_UNSUSPICIOUS = 1_000  # checks of a value, of one location in it, of one in that, and so on
_SUSPICIOUS = (b'"$ref"', b'"$dynamicRef"', b'"unevaluated')  # can multiply checks
# The validator lists all errors at once, each with a copy of what it is about, and for each union
# around it there is one more copy. A copy takes 0.3 to 1 microseconds, an error itself ten times
# that: 10,000 wrong items of an array 0.1 s, and 2,000 wrong names in an object 1.5 s.
_COPIES_AN_ERROR = 10
_ENOUGH = 10**9  # counting stops here
_LARGEST_EXACT = 2**53  # a float beyond it may differ from the number that was written
_MANY_TRIES = TRIES[1]  # with so many, there is no need to find out which text is matched
_LARGEST_PART = 10_000  # size of the patterns that are compiled again for a part of a schema


@dataclass(slots=True, eq=False)
class _Checks:
    """The nodes that check the values at one location, how often, and inside how many unions.

    `total` checks can have `errors`. `labels` are the names and indexes that matter for the
    content. `patterns` are the costs for a character of text and of a member's name, once known.
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
    """The number of copies of parts of one value that lists of its errors may still make.

    `steps` are those that matching patterns may take, charged twice for each list.
    """

    left: int = field(default_factory=lambda: bounds.COPIES)
    steps: int = field(default_factory=lambda: 6 * bounds.PATTERN_STEPS)

    def covers_steps(self, steps: int) -> bool:
        """Charge the budget with so many steps; return whether it covers them."""
        self.steps -= steps
        return self.steps >= 0


@dataclass(frozen=True, slots=True)
class Workload:
    """The work that a schema, or the part of it at `start`, demands of a validator.

    The `graph` is made on demand; that raises TooManySchemas. `source` is the JSON text of the
    whole schema. Its `patterns` cost `most` for a byte of a value's text.
    """

    graph: Callable[[], Graph]
    source: bytes
    start: JsonValue
    patterns: Patterns = NO_PATTERNS
    most: PatternCost = NO_COST
    is_suspicious: bool = False

    @classmethod
    def of(cls, schema: JsonValue, source: bytes, patterns: Patterns = NO_PATTERNS) -> "Workload":
        """Examine a schema with the JSON text `source`; raises ValueError if it is unusable.

        Only a schema with references or `unevaluated...` can cost more than it seems, so others are
        followed no sooner than an error has to be explained.
        """
        make_graph = cache(partial(Graph, schema))
        if not any(mark in source for mark in _SUSPICIOUS):
            most = patterns.total(patterns_in(schema)) if patterns.costs else NO_COST
            return cls(make_graph, source, schema, patterns, most)
        graph = make_graph()
        start = graph.number_of(schema)
        if graph.lengths[start] > _LONGEST_CHAIN:
            raise TooManySchemas(f"a chain of more than {_LONGEST_CHAIN} schema references")
        if not graph.is_whole:
            raise ValueError("a reference leads to no part of the schema")
        checks = graph.checks[start]
        most = PatternCost.largest(patterns.costs.values()) * checks
        return cls(make_graph, source, schema, patterns, most, checks > _UNSUSPICIOUS)

    def part(self, path: Iterable[str | int]) -> "Workload":
        """Return the workload of a sub-schema; raises LookupError if it does not exist.

        Raises ValueError if its patterns are too large to be compiled separately.
        """
        graph = self.graph()
        start = follow(graph.document, [str(step) for step in path])
        graph.number_of(start)
        part = replace(self, start=start)
        if part.pattern_cost().size > _LARGEST_PART:
            raise ValueError("the patterns of this part are too large to compile separately")
        return part

    def pattern_cost(self) -> PatternCost:
        """Return the cost of its patterns; of a small schema that of all, also for a part."""
        cost = self.patterns.total(self.patterns.costs)
        if cost.size <= _LARGEST_PART:
            return cost
        graph = self.graph()
        return self.patterns.total(graph.patterns_from(graph.number_of(self.start)))

    def plan_matching(self, value: JsonValue, text: str = "") -> Matching:
        """Return how to match a value with the patterns; `text` is its JSON text, if known."""
        if not self.patterns.costs:
            return FREE
        size = _most_bytes(text) if text else _most_text(value)
        matching = (self.most * size).plan()
        if matching[0] >= _MANY_TRIES:
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

    def is_bearable(self, value: JsonValue) -> bool:
        """Return whether a value can be checked in little time, valid or not."""
        if not self.is_suspicious:
            return True
        walk = _Walk(self.graph(), self.start, bounds.CHECKS)
        for item, checks, *_ in walk.locations(value):
            walk.left -= checks.total
            if checks.names is not None:
                walk.left -= checks.names.total * _size(item)
            if walk.left < 0:
                return False
        return True

    def is_listable(self, value: JsonValue, budget: ListingBudget | None = None) -> bool:
        """Return whether the budget covers a list of the errors of a value, and charge it.

        Each error costs a copy of its location and of every union around it.
        """
        budget = budget or ListingBudget()
        left, budget.left = budget.left, 0
        if left <= 0:
            return False
        try:
            walk = _Walk(self.graph(), self.start, left)
        except TooManySchemas:
            return False
        copies = [0]  # of the value on each level around a location
        for item, checks, depth, _ in walk.locations(value):
            errors = checks.errors
            if checks.names is not None:
                errors += checks.names.errors * _size(item)
            del copies[depth + 1 :]
            copies.append(copies[depth] + errors * (1 + checks.unions))
            walk.left -= 1 + copies[-1] + errors * _COPIES_AN_ERROR
            # each part costs at least a copy of everything around it
            parts = len(item) if isinstance(item, dict | list) else 0
            if walk.left < parts * (1 + copies[-1]):
                return False
        budget.left = walk.left
        return True


class _Walk:
    """A walk along a value that counts the checks of each location, within a budget."""

    def __init__(self, graph: Graph, start: JsonValue, left: int = 0) -> None:
        self._graph = graph
        self._start = start
        self.left = left
        self._known: dict[tuple[frozenset[tuple[int, int]], int], _Checks] = {}

    def locations(self, value: JsonValue) -> Iterator[tuple[JsonValue, _Checks, int, Label]]:
        """Yield lazily each location in a value with its checks, its depth and its label."""
        top = self._checks({self._graph.number_of(self._start): 1}, 0)
        yield value, top, 0, 0
        rest = [(top, _parts(value))]
        while rest:
            checks, parts = rest[-1]
            if (part := next(parts, None)) is None:
                rest.pop()
                continue
            kind, at, item = part
            inner = self._inner(checks, kind, at)
            yield item, inner, len(rest), at
            if isinstance(item, dict | list):
                rest.append((inner, _parts(item)))

    def _inner(self, checks: _Checks, kind: Kind, at: Label) -> _Checks:
        label = at if at in checks.labels else None
        checks_inside = checks.inner.get((kind, label))
        if checks_inside is None:
            self.left -= len(checks.counts)
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
        ranks = self._graph.ranks
        counts, depths = dict(starts), dict.fromkeys(starts, unions)
        names: dict[int, int] = defaultdict(int)
        rest = [(-ranks[number], number) for number in starts]
        heapify(rest)
        while rest:
            _, number = heappop(rest)
            node, times = self._graph.nodes[number], counts[number]
            depths[number] += node.is_union
            for target in node.at("keys"):
                names[target] += times
            for target in node.at("value"):
                if ranks[target] < ranks[number]:
                    if target not in counts:
                        counts[target], depths[target] = 0, unions
                        heappush(rest, (-ranks[target], target))
                    counts[target] = min(counts[target] + times * node.looks, _ENOUGH)
                    depths[target] = max(depths[target], depths[number])
        nodes = [(self._graph.nodes[number], times) for number, times in counts.items()]
        return _Checks(
            counts,
            max(depths.values(), default=unions),
            sum(counts.values()),
            sum(node.errors * times for node, times in nodes),
            frozenset(chain.from_iterable(node.labelled for node, _ in nodes)),
            self._checks(names, unions) if names else None,
        )

    def add_patterns(self, checks: _Checks, patterns: Patterns) -> tuple[PatternCost, PatternCost]:
        """Return the cost of patterns for a character of text, and of a member's name."""
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
        """Return the types that the schemas of a location name."""
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
    if isinstance(value, dict):  # not copied, as a member may be a whole file
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
