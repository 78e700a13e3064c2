"""Converts a schema to a graph of the sub-schemas that check a value, its members and its items.

`References` resolves references within the document; no reference is fetched. `Graph` creates a
`SchemaNode` for each sub-schema that can be reached from the root, and links it to the nodes that
check the same value, its members and its items. The graph counts the checks that a value requires.
It does not validate values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Literal, TypeAlias
from urllib.parse import unquote, urljoin

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

ROOT = "urn:temper:schema"

_DEFAULT = "json-schema:///"  # the validator's base URI for a document without `$id`
_META = ("https://json-schema.org/", "http://json-schema.org/")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_REFERENCES = ("$ref", "$dynamicRef")
_WITHIN = ("additionalProperties", "items", "patternProperties", "prefixItems", "properties")
_BY_NAME = frozenset(["dependentSchemas", "dependencies", "patternProperties", "properties"])


class UnknownTarget(LookupError):
    """Raised for a reference to an unknown target."""


class References:
    """Finds the targets of references within one document."""

    def __init__(self, document: JsonValue) -> None:
        self._bases: dict[int, str] = {}
        self._resources: dict[str, JsonValue] = dict.fromkeys(("", ROOT, _DEFAULT), document)
        self._anchors: dict[tuple[str, str], JsonObject] = {}
        self._dynamic: dict[str, list[JsonObject]] = {}
        self._index_names(document)

    def target(self, source: JsonObject, reference: str) -> JsonValue:
        """Return the target of a reference in `source`.

        Meta-schemas are not fetched. A reference to a meta-schema has the target True, the schema
        that accepts all values.
        """
        base = self._bases.get(id(source), "")
        address, _, fragment = reference.partition("#")
        if address.startswith(_META):
            return True
        resource = urljoin(base, address) if address else base
        if resource not in self._resources:
            raise UnknownTarget(reference)
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if (resource, fragment) not in self._anchors:
                raise UnknownTarget(reference)
            return self._anchors[resource, fragment]
        steps = fragment.split("/")[1:]
        names = [step.replace("~1", "/").replace("~0", "~") for step in steps]
        return follow(self._resources[resource], names)

    def dynamic_targets(self, source: JsonObject, reference: str) -> list[JsonValue]:
        """Return all possible targets of `$dynamicRef` in `source`."""
        named = self._dynamic.get(reference.partition("#")[2], [])
        return [*named] or [self.target(source, reference)]

    def schemas_on(
        self, schema: JsonValue, path: Iterable[str | int]
    ) -> Iterator[tuple[JsonObject, int]]:
        """Yield the schemas on an evaluation path, each with the depth of the value it checks.

        Raises UnknownTarget for a path that does not exist.
        """
        depth = 0
        steps = iter(path)
        for keyword in steps:
            if not isinstance(schema, dict):
                return
            yield schema, depth
            depth += keyword in _WITHIN
            inner = schema.get(str(keyword))
            if isinstance(inner, str):  # a reference, or the end of the path
                schema = self.target(schema, inner) if keyword in _REFERENCES else None
            elif isinstance(inner, list) or keyword in _BY_NAME:
                schema = follow(inner, [str(step) for step in islice(steps, 1)])
            else:
                schema = inner

    def _index_names(self, document: JsonValue) -> None:
        """Index every sub-schema with an `$id` or anchor, and the base URI of each reference."""
        pending = [(document, "")]
        while pending:
            value, base = pending.pop()
            if isinstance(value, list):
                pending += [(item, base) for item in value]
            elif isinstance(value, dict):
                base = self._index(value, base)
                pending += [(member, base) for member in value.values()]

    def _index(self, schema: JsonObject, base: str) -> str:
        """Index a sub-schema; return the base URI inside it."""
        if isinstance(name := schema.get("$id"), str):
            base = urljoin(base, name).partition("#")[0]
            self._resources.setdefault(base, schema)
        if base:
            self._bases[id(schema)] = base
        for keyword in _ANCHORS:
            if isinstance(anchor := schema.get(keyword), str):
                self._anchors[base, anchor] = schema
        if isinstance(dynamic := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(dynamic, []).append(schema)
        return base


def follow(document: JsonValue, path: list[str]) -> JsonValue:
    """Return the value at a path; raises UnknownTarget for a path that does not exist."""
    value = document
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise UnknownTarget(step)
    return value


Kind: TypeAlias = Literal["member", "item"]
Label: TypeAlias = str | int  # the name of a member, or the number of an item
# The part of a value that linked nodes check: the value itself, its keys, each member or item, or
# only the members or items that no node in `labeled` checks.
Link: TypeAlias = Literal["value", "keys", "each member", "each item", "other member", "other item"]

_MOST_NODES = 20_000  # linking them takes 0.2 s
_MOST_CHECKS = 10**9  # above all limits, and small enough for fast arithmetic
# Each error about an `enum` or `const` contains a copy of the allowed values. So a long `enum`
# counts as several errors.
_BYTES_PER_ERROR = 120
# jsonschema-rs takes 2.6 times as long for a branch next to one of the keywords `_UNEVALUATED`.
_UNEVALUATED_FACTOR = 3

_ON_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_LINKS: dict[str, Link] = {
    **dict.fromkeys((*_ON_VALUE, "dependentSchemas", "dependencies"), "value"),
    "propertyNames": "keys",
    **dict.fromkeys(("patternProperties", "unevaluatedProperties"), "each member"),
    "additionalProperties": "other member",
    **dict.fromkeys(("contains", "unevaluatedItems"), "each item"),
    "items": "other item",
}
_UNIONS = frozenset(["anyOf", "oneOf"])
_UNEVALUATED = frozenset(["unevaluatedProperties", "unevaluatedItems"])
_WITH_ERRORS = frozenset(["required", "dependentRequired", "dependencies", "enum", "const"])


class TooManySchemas(ValueError):
    """Raised for a schema that is too large or too deep for a check."""


@dataclass(slots=True, eq=False)
class SchemaNode:
    """A sub-schema, linked to the nodes that check the same value, its members and its items.

    - `errors`: the maximum number of errors of its keywords
    - `checks_per_branch`: how often each of its branches is checked
    - `labeled`: the nodes that check single members or items, by name or number
    - `patterns` match text, `name_patterns` the names of members
    - `types`: the value of the keyword `type`, as a tuple
    """

    errors: int = 1
    is_union: bool = False
    checks_per_branch: int = 1
    labeled: dict[Label, int] = field(default_factory=dict)
    patterns: list[str] = field(default_factory=list)
    name_patterns: list[str] = field(default_factory=list)
    types: tuple[JsonValue, ...] = ()
    links: dict[Link, list[int]] = field(default_factory=dict)

    def within(self, kind: Kind, label: Label | None) -> list[int]:
        """Return the nodes that check a member or item with this label."""
        known = None if label is None else self.labeled.get(label)
        others = self.at("other member" if kind == "member" else "other item")
        each = self.at("each member" if kind == "member" else "each item")
        return (others if known is None else [known]) + each

    def at(self, link: Link) -> list[int]:
        return self.links.get(link, [])

    def followers(self) -> Iterator[int]:
        return chain(self.labeled.values(), *self.links.values())


class Graph:
    """The nodes that can be reached from the root of a document; raises TooManySchemas.

    Each of the following lists has one entry for each node. Cycles are followed once.

    - `ranks`: a link to a node that checks the same value leads to a lower rank, except in cycles
    - `checks`: the number of checks of a value with one member or item on each level
    - `lengths`: the number of nodes in the longest chain of links that begins with the node

    `is_complete` is false if the target of a reference is unknown.
    """

    def __init__(self, document: JsonValue) -> None:
        self.document = document
        self.is_complete = True
        self.nodes: list[SchemaNode] = []
        self._numbers: dict[int, int] = {}
        self.references = References(document)
        self._follow(document)
        self.ranks = _ranks([node.at("value") for node in self.nodes])
        followers = [list(node.followers()) for node in self.nodes]
        ranks = _ranks(followers)
        self.checks = [1] * len(self.nodes)
        self.lengths = [1] * len(self.nodes)
        for number in sorted(range(len(ranks)), key=ranks.__getitem__):
            if followers[number]:
                later = {
                    follower for follower in followers[number] if ranks[follower] < ranks[number]
                }
                self.lengths[number] += max(
                    (self.lengths[follower] for follower in later), default=0
                )
                self._sum_up(number, later)

    def number_of(self, schema: JsonValue) -> int:
        """Return the number of a schema's node; raises LookupError if it is not reachable."""
        return self._numbers[_key(schema)]

    def patterns_from(self, number: int) -> set[str]:
        """Return the patterns of a node and of all nodes that are reachable from it."""
        patterns: set[str] = set()
        seen, pending = {number}, [number]
        while pending:
            node = self.nodes[pending.pop()]
            patterns.update(node.patterns, node.name_patterns)
            new = set(node.followers()) - seen
            seen |= new
            pending += new
        return patterns

    def _follow(self, document: JsonValue) -> None:
        pending: list[JsonValue] = []

        def number_of(schema: JsonValue) -> int:
            key = _key(schema)
            if key not in self._numbers:
                self._numbers[key] = len(self.nodes)
                self.nodes.append(SchemaNode())
                pending.append(schema)
            return self._numbers[key]

        number_of(document)
        while pending:
            schema = pending.pop()
            if isinstance(schema, dict):
                node = self.nodes[number_of(schema)]
                if targets := self._targets(schema):
                    node.links["value"] = [number_of(target) for target in targets]
                for keyword, value in schema.items():
                    _describe(node, keyword, value, number_of)
            if len(self.nodes) > _MOST_NODES:
                raise TooManySchemas(f"it consists of more than {_MOST_NODES} schemas")

    def _targets(self, schema: JsonObject) -> list[JsonValue]:
        targets: list[JsonValue] = []
        try:
            if isinstance(fixed := schema.get("$ref"), str):
                targets.append(self.references.target(schema, fixed))
            if isinstance(dynamic := schema.get("$dynamicRef"), str):
                targets += self.references.dynamic_targets(schema, dynamic)
        except UnknownTarget:
            self.is_complete = False
        return targets

    def _sum_up(self, number: int, later: set[int]) -> None:
        """Add up the checks of a node; a link that closes a cycle counts as one check."""
        node, checks = self.nodes[number], self.checks

        def over(*links: Link) -> int:
            return sum(
                checks[target] if target in later else 1
                for link in links
                for target in node.at(link)
            )

        labeled = max(
            (checks[target] for target in node.labeled.values() if target in later), default=0
        )
        inner = over("each member", "other member"), over("each item", "other item")
        total = node.checks_per_branch * over("value") + over("keys") + labeled + max(inner)
        self.checks[number] = min(1 + total, _MOST_CHECKS)


def _key(schema: JsonValue) -> int:
    """Return the key of a schema; all schemas without keywords (True, False) share the key 0."""
    return id(schema) if isinstance(schema, dict) else 0


def _describe(
    node: SchemaNode, keyword: str, value: JsonValue, number_of: Callable[[JsonValue], int]
) -> None:
    """Add a keyword of a schema to its node; `number_of` returns the number of another node."""
    if keyword in _WITH_ERRORS:
        node.errors = max(node.errors, _errors(keyword, value))
    if keyword in ("properties", "prefixItems"):
        listed = enumerate(value) if isinstance(value, list) else ()
        for label, schema in value.items() if isinstance(value, dict) else listed:
            node.labeled[label] = number_of(schema)
    elif keyword == "pattern" and isinstance(value, str):
        node.patterns.append(value)
    elif keyword == "type":
        node.types = tuple(value) if isinstance(value, list) else (value,)
    elif (link := _LINKS.get(keyword)) is not None:
        node.links.setdefault(link, []).extend(map(number_of, _schemas(keyword, value)))
        node.is_union |= keyword in _UNIONS
        factor = _UNEVALUATED_FACTOR if keyword in _UNEVALUATED else node.checks_per_branch
        node.checks_per_branch = factor
        if keyword == "patternProperties" and isinstance(value, dict):
            node.name_patterns.extend(value)


def _schemas(keyword: str, value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and keyword in _BY_NAME:
        return value.values()
    return (value,)


def _errors(keyword: str, value: JsonValue) -> int:
    """Return the maximum number of errors of a keyword."""
    if keyword in ("enum", "const"):
        return len(json.dump(value)) // _BYTES_PER_ERROR
    lists = value.values() if isinstance(value, dict) else [value]
    return sum(len(names) for names in lists if isinstance(names, list))


def _ranks(followers: Sequence[Sequence[int]]) -> list[int]:
    """Assign numbers to nodes so that links lead only to lower numbers, except in cycles."""
    ranks = [-1] * len(followers)
    seen = [False] * len(followers)
    count = 0
    for start in range(len(followers)):
        path = [] if seen[start] else [(start, iter(followers[start]))]
        seen[start] = True
        while path:
            node, targets = path[-1]
            follower = next((target for target in targets if not seen[target]), None)
            if follower is None:
                path.pop()
                ranks[node] = count
                count += 1
            else:
                seen[follower] = True
                path.append((follower, iter(followers[follower])))
    return ranks
