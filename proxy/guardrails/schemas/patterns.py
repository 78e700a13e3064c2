"""Decides which regular expressions of a schema are compiled, and how often they may backtrack.

`estimate` computes the cost of a pattern from its text in linear time, without compiling it. A
pattern is a sequence of atoms, groups and repeats. An engine without backtracking expands a counted
repeat, so `(a{1,50}){1,40}` becomes 2,000 copies of an atom. The number of copies determines the
memory of the compiled program. It also determines the number of states that are active for each
character of a value. `choose_patterns` selects the patterns that fit into the budget of a schema.
`PatternCost.plan` limits how often a pattern may backtrack: the longer the text, the fewer tries.
"""

# An estimate may be too high but must not be too low. So constructs that engines interpret
# differently (`(?#`, the flag `x`) are refused, and an unknown construct counts as a construct that
# needs backtracking. If an estimate is too low nevertheless, the engine stops at its memory limit,
# which is twice the estimate (`size_limit` in `schema.py`).

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from jsonschema_rs import Draft202012Validator, FancyRegexOptions

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonValue

# A validator is compiled for one limit of tries. Only these limits are used, so that few validators
# are compiled.
TRIES = (10_000, 1_000, 100, 10)
STEPS_PER_UNIT = 30  # compiling a unit of a pattern takes as long as visiting 30 states
_STEPS_TO_BACKTRACK = bounds.PATTERN_STEPS // 4  # a step of the backtracking engine takes longer

# The number of times that a pattern may backtrack, and the number of steps of all patterns. If the
# first number is 0, the value is not matched at all.
Matching: TypeAlias = tuple[int, int]
FREE: Matching = TRIES[0], 0
IMPOSSIBLE: Matching = 0, 0

# Sizes are multiples of 32 bytes, the size of one literal. They were measured with regex-automata
# 0.4: a search found the smallest `size_limit` with which 10 and 20 copies of an atom compile.
BYTES_PER_UNIT = 32
# The engine that runs a program needs 16 to 23 KiB, even for `^a`. For a pattern that backtracks,
# there is another engine of 4 KiB for each atom.
_ENGINE, _INNER_ENGINE = 512, 128
_RANGE = 1  # an ASCII range or character in a class
_WIDE = 10  # a character beyond ASCII; `[\u00a1-\uffff]` takes 19 as UTF-8 bytes
_NEGATED = 70  # `.`, `[^a]` and `\S`: all of Unicode, as UTF-8 bytes
_PROPERTY = 1_600  # `\p{L}` has 650 ranges
_CLASSES = {"d": 3, "w": 3, "s": 25, "D": 40, "W": 40, "S": _NEGATED}
# In patterns with lookarounds or backreferences, `\d` and `\w` are not translated to ASCII classes.
_UNTRANSLATED = {"d": 160, "D": 400, "w": _PROPERTY, "W": _PROPERTY}
_ANY_CASE = 8  # `k` also matches the Kelvin sign
_REPEAT = 3  # for each copy of the repeated atom
_GROUP = 10
_BRANCH = 2
# For each class such as `\d` outside brackets, jsonschema-rs parses and copies the complete pattern
# again (0.4 ns per character): 8 kB of `\d` took 12 s. These are the lengths of the copies.
_TRANSLATED = {"d": 6, "D": 7, "w": 13, "W": 14, "s": 120, "S": 121}
_CHARACTERS_PER_UNIT = 4

_UPPER_LIMIT = 10**9  # above all bounds, and small enough for fast arithmetic
_DIGITS = 9  # maximum digits of a repeat count; longer counts are too large

_TOO_LONG = f"it has more than {bounds.PATTERN_CHARACTERS:,} characters"
_TOO_LARGE = "it is too large after its repeats are expanded"
_TOO_LARGE_TOGETHER = "the patterns of the schema are too large in total"
_NO_PATTERN = "it is not a regular expression that can be compiled"
_SHOWN = 40  # characters of a pattern in a message
_CACHE_SIZE = 1_024

_TOKEN = re.compile(
    r"""
      \(\?(?P<bare>[a-zA-Z-]+)\)
    | (?P<open>\((?:\?(?:P?<(?![=!])[^>]*>|(?P<flags>[a-zA-Z-]*):|(?P<look><?[=!]|>))|(?![?*])))
    | (?P<close>\))
    | \\(?P<escape>[pPxuU]\{[^{}]*\}|c[A-Za-z]|.)
    | (?P<set>\[\^?\]?(?:\\.|[^\\\]])*\])
    | (?P<repeat>[*+?]|\{\s*(?P<least>[0-9]*)\s*(?P<range>,\s*(?P<most>[0-9]*)\s*)?\})
      (?P<mode>[?+]?)
    | (?P<branch>\|)
    | (?P<other>[^\\\[(])
    """,
    re.VERBOSE | re.DOTALL,
)
_SET_ITEM = re.compile(r"\\(?P<escape>[pPxuU]\{[^{}]*\}|c[A-Za-z]|.)|(?P<other>.)", re.DOTALL)
_KNOWN_FLAGS = frozenset("imsuU-")
# Any other letter or digit, as in `\1` and `\k<name>`, counts as a backreference.
_KNOWN_ESCAPES = frozenset("bBdDsSwWpPxuUcfnrtvzA")


class UnreadablePattern(ValueError):
    """Raised for a pattern whose size cannot be estimated."""


@dataclass(frozen=True, slots=True)
class PatternCost:
    """The cost of a pattern, or the total of several patterns.

    - `size`: memory in units of 32 bytes
    - `steps`: the states that a match visits for each character
    - `steps_per_try`: the states that a try of a backtracking pattern visits for each character
    """

    size: int = 0
    steps: int = 0
    steps_per_try: int = 0

    @property
    def memory_limit(self) -> int:
        """The memory limit of the compiled program in bytes, twice the estimate."""
        return 2 * BYTES_PER_UNIT * max(self.size, _ENGINE)

    def plan(self) -> Matching:
        """Choose how often patterns may backtrack; the cost must be that of a complete value."""
        if self.steps > bounds.PATTERN_STEPS:
            return IMPOSSIBLE
        for tries in TRIES:
            tried_steps = tries * self.steps_per_try
            if tried_steps <= _STEPS_TO_BACKTRACK:
                return tries, self.steps + tried_steps
        return IMPOSSIBLE

    def __add__(self, other: "PatternCost") -> "PatternCost":
        return PatternCost(
            self.size + other.size,
            self.steps + other.steps,
            self.steps_per_try + other.steps_per_try,
        )

    def __mul__(self, times: int) -> "PatternCost":
        """Return the cost of matching the same patterns several times."""
        return PatternCost(self.size, self.steps * times, self.steps_per_try * times)

    @classmethod
    def largest(cls, costs: Iterable["PatternCost"]) -> "PatternCost":
        """Return the largest size and the largest numbers of steps."""
        listed = [cls(), *costs]
        return cls(
            max(cost.size for cost in listed),
            max(cost.steps for cost in listed),
            max(cost.steps_per_try for cost in listed),
        )


NO_COST = PatternCost()


def estimate(pattern: str) -> PatternCost:
    """Estimate the cost of a pattern; raises UnreadablePattern."""
    cost = _Scan().read(pattern)
    return _Scan(backtracks=True).read(pattern) if cost.steps_per_try else cost


@dataclass(slots=True)
class _Sum:
    """The total size and states of a sequence of atoms. A repeat applies to the last atom."""

    size: int = 0
    states: int = 0
    last_size: int = 0
    last_states: int = 0

    def add(self, size: int, states: int) -> None:
        self.size = min(self.size + size, _UPPER_LIMIT)
        self.states = min(self.states + states, _UPPER_LIMIT)
        self.last_size, self.last_states = size, states

    def repeat(self, copies: int) -> None:
        size = min((self.last_size + _REPEAT) * copies, _UPPER_LIMIT)
        states = min((self.last_states + 1) * copies, _UPPER_LIMIT)
        self.size -= self.last_size
        self.states -= self.last_states
        self.add(size, states)


@dataclass(slots=True)
class _Scan:
    """Scans the text of a pattern; `groups` is the stack of open groups."""

    backtracks: bool = False
    is_any_case: bool = False
    engines: int = 0  # the additional engines that the pattern needs if it backtracks
    classes: int = 0  # the number of classes such as `\d` outside brackets
    length: int = 0  # the total length of the translations of these classes
    groups: list[_Sum] = field(default_factory=lambda: [_Sum()])

    def read(self, pattern: str) -> PatternCost:
        position = 0
        while position < len(pattern):
            token = _TOKEN.match(pattern, position)
            if token is None:
                raise UnreadablePattern("it is not a regular expression, or has unusual syntax")
            self._read_token(token)
            position = token.end()
        if len(self.groups) > 1:
            raise UnreadablePattern("it has an unclosed group")
        (total,) = self.groups
        size = total.size * (_ANY_CASE if self.is_any_case else 1)
        if self.backtracks:
            size += self.engines * _INNER_ENGINE
        else:
            size += self.classes * (len(pattern) + self.length) // _CHARACTERS_PER_UNIT
        size, states = min(size + _ENGINE, _UPPER_LIMIT), max(total.states, 1)
        return PatternCost(size, 0, states) if self.backtracks else PatternCost(size, states)

    def _read_token(self, token: re.Match[str]) -> None:
        match token.lastgroup:
            case "bare":
                self._set_flags(token["bare"])
            case "open":
                self._open(token)
            case "close":
                self._close()
            case "mode":
                self._repeat(token)
            case "branch":
                self.groups[-1].add(_BRANCH, 1)
            case _:
                self._add_atom(token)

    def _open(self, token: re.Match[str]) -> None:
        self.backtracks |= token["look"] is not None
        self._set_flags(token["flags"] or "")
        self.engines += 1
        self.groups.append(_Sum())

    def _set_flags(self, flags: str) -> None:
        if not _KNOWN_FLAGS.issuperset(flags):
            raise UnreadablePattern(f"it uses the unsupported flags {flags!r}")
        self.is_any_case |= "i" in flags

    def _close(self) -> None:
        if len(self.groups) == 1:
            raise UnreadablePattern("it closes a group that is not open")
        group = self.groups.pop()
        self.groups[-1].add(group.size + _GROUP, group.states + 1)

    def _repeat(self, token: re.Match[str]) -> None:
        least, most = token["least"] or "", token["most"] or ""
        if token["repeat"].startswith("{") and not (least or most):  # `{}` and `{,}` are text
            self.groups[-1].add(len(token[0]), len(token[0]))
            return
        self.backtracks |= token["mode"] == "+"  # a possessive repeat, such as `a++`
        if len(least) > _DIGITS or len(most) > _DIGITS:
            raise UnreadablePattern("it has a repeat count that is too large")
        is_open = token["range"] is not None and not most
        self.groups[-1].repeat(max(int(least or 0) + is_open, int(most or 0), 1))

    def _add_atom(self, token: re.Match[str]) -> None:
        self.engines += 1
        if (escape := token["escape"]) is not None:
            name = escape[0]
            self.backtracks |= name.isalnum() and name not in _KNOWN_ESCAPES
            self.classes += name in _TRANSLATED or name == "c"
            self.length += _TRANSLATED.get(name, 0)
            self.groups[-1].add(self._size_of_escape(escape), 2)
        elif (set_text := token["set"]) is not None:
            self.groups[-1].add(self._size_of_set(set_text), 2)
        elif token[0] == ".":
            self.groups[-1].add(_NEGATED, 2)
        else:
            self.groups[-1].add(_size_of(token[0]), 1)

    def _size_of_escape(self, escape: str) -> int:
        name = escape[0]
        if self.backtracks and name in _UNTRANSLATED:
            return _UNTRANSLATED[name]
        if name in "pP":
            return _PROPERTY
        return _CLASSES.get(name) or (_WIDE if name in "xuU" else _size_of(name))

    def _size_of_set(self, set_text: str) -> int:
        size = _NEGATED if set_text.startswith("[^") else _RANGE
        for item in _SET_ITEM.finditer(set_text, 1, len(set_text) - 1):
            escape = item["escape"]
            size += self._size_of_escape(escape) if escape else _size_in_set(item["other"])
        return size


def _size_of(character: str) -> int:
    return 2 * len(character.encode("utf-8", "surrogatepass"))


def _size_in_set(character: str) -> int:
    return _RANGE if character.isascii() else _WIDE


def patterns_in(document: JsonValue) -> Iterator[str]:
    """Yield all patterns of a schema, including duplicates.

    Patterns inside examples and other data are included, because a reference may lead to them.
    """
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if isinstance(pattern := value.get("pattern"), str):
                yield pattern
            if isinstance(by_pattern := value.get("patternProperties"), dict):
                yield from by_pattern
            pending += value.values()
        elif isinstance(value, list):
            pending += value


@dataclass(frozen=True, slots=True)
class Patterns:
    """The costs of the compiled patterns, and for each refused pattern the reason."""

    costs: Mapping[str, PatternCost] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """A message about the patterns that are not checked; "" if all patterns are checked."""
        if not self.refused:
            return ""
        pattern, reason = next(iter(self.refused.items()))
        shown = pattern if len(pattern) <= _SHOWN else pattern[: _SHOWN - 3] + "..."
        others = f" (and {len(self.refused) - 1:,} more)" if len(self.refused) > 1 else ""
        return f"the pattern {json.dump_text(shown)}{others} is not checked: {reason}"

    def total(self, used: Iterable[str]) -> PatternCost:
        """Return the total cost of several patterns; refused patterns cost nothing."""
        return sum((self.costs[pattern] for pattern in used if pattern in self.costs), NO_COST)


NO_PATTERNS = Patterns()


def choose_patterns(schema: JsonValue) -> Patterns:
    """Choose the patterns to compile, in their order, until the budget of a schema is spent."""
    costs: dict[str, PatternCost] = {}
    refused: dict[str, str] = {}
    remaining = bounds.PATTERNS_SIZE
    for pattern in dict.fromkeys(patterns_in(schema)):
        if remaining <= 0:
            refused[pattern] = _TOO_LARGE_TOGETHER
            continue
        cost = _measure(pattern) if len(pattern) <= bounds.PATTERN_CHARACTERS else _TOO_LONG
        if isinstance(cost, str):
            refused[pattern] = cost
            remaining -= len(pattern) if cost is not _TOO_LONG else 1  # the estimate took time, too
        elif cost.size > remaining:
            refused[pattern] = _TOO_LARGE_TOGETHER
            remaining = 0
        else:
            costs[pattern] = cost
            remaining -= cost.size
    return Patterns(costs, refused)


@lru_cache(_CACHE_SIZE)
def _measure(pattern: str) -> PatternCost | str:
    """Return the cost of a pattern, or the reason why it is refused."""
    try:
        cost = estimate(pattern)
    except UnreadablePattern as error:
        return str(error)
    if cost.size > bounds.PATTERN_SIZE:
        return _TOO_LARGE
    options = FancyRegexOptions(size_limit=cost.memory_limit)
    try:
        # The pattern is compiled alone, because an invalid pattern makes its whole schema unusable.
        Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return _NO_PATTERN
    return cost
