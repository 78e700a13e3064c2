"""The digest: what was done in the steps that are no longer in the conversation, a line for each.

It is the user's message, because every chat template takes one there.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from proxy.context.compaction import TokenCounts
from proxy.context.rough_tokens import ELLIPSIS, clip
from proxy.context.shortening import TextCache, gist, on_one_line
from proxy.context.units import Unit
from proxy.conversation.messages import Message, user_message

_INTRODUCTION = "[Note: earlier steps of this conversation, shortened. They are done.]"
_LEFT_OUT = "- ({count} steps before these are left out)"
_HEAD = user_message(f"{_INTRODUCTION}\n{_LEFT_OUT.format(count=9_999)}\n")
_NAME, _ARGUMENTS, _OUTCOME, _SAID = 14, 14, 36, 60  # pieces
_OUTCOME_BEGINS = " -> "
# an id, a path, a code: a word with a number in it
_VALUE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])\S{5,}")
_NOTHING = "-"
_AROUND_VALUE = ":,;|()[]\"'"

Line: TypeAlias = tuple[int, Message, int]  # the place of its unit, the words, and what they cost


@dataclass(slots=True)
class Digest:
    """Tells of the latest units, as many as `room` tokens allow.

    Of those before them it has `kept` the ids, paths and codes, in up to half of its room and one
    line; `left_out` is how many it says nothing of. What a line costs is counted for each, so that
    the digest need not be written to know its size: `lines` and `values` are in tokens.
    """

    counts: TokenCounts
    texts: TextCache
    has_failed: Callable[[str], bool]
    room: int
    left_out: int = 0
    head: int = 0
    lines: int = 0
    values: int = 0
    told: deque[Line] = field(default_factory=deque)
    kept: deque[Line] = field(default_factory=deque)

    @property
    def size(self) -> int:
        """How many tokens it costs; nothing as long as it tells of nothing."""
        return self.head + self.lines + self.values

    def copy(self) -> "Digest":
        return replace(self, told=self.told.copy(), kept=self.kept.copy())

    def add(self, unit: Unit) -> None:
        self.head = self.head or self.counts.of(_HEAD)
        sources = [result.message.source for result in unit.results]
        line = self.texts.get(
            hash((unit.message.source, *sources)),
            lambda: user_message(_line(unit, self.has_failed)),
        )
        price = self._price(line)
        self.told.append((unit.places[0], line, price))
        self.lines += price
        while self.size > self.room and (self.told or self.kept):
            if self.told and (not self.kept or 2 * self.values <= self.room):
                self._reduce()
            else:
                self.values -= self.kept.popleft()[2]
                self.left_out += 1

    def _reduce(self) -> None:
        """Keep nothing of the oldest unit that is told of but the values in its outcome."""
        place, line, price = self.told.popleft()
        self.lines -= price
        short = self.texts.get(hash((line.source, _NOTHING)), lambda: _values_in(line))
        if short.text != _NOTHING:
            price = self._price(short)
            self.kept.append((place, short, price))
            self.values += price
        else:
            self.left_out += 1

    def _price(self, line: Message) -> int:
        return self.counts.of(line) - self.counts.overhead + 1  # and its end

    def message(self) -> Message:
        told = sorted([(place, line.text) for place, line, _ in (*self.kept, *self.told)])
        lines = [line for _, line in told]

        def write() -> Message:
            before = [_LEFT_OUT.format(count=self.left_out)] if self.left_out else []
            return user_message("\n".join([_INTRODUCTION, *before, *lines]))

        return self.texts.get(hash((self.left_out, *lines)), write)


def _line(unit: Unit, has_failed: Callable[[str], bool]) -> str:
    if not unit.is_group:
        said = " ".join(unit.message.text.split())
        return clip(f"- {unit.message.role}: {said}", _SAID)
    lines: list[str] = []
    for result in unit.results:
        arguments = clip(on_one_line(result.call.arguments).strip("{}"), _ARGUMENTS)
        called = f"- {clip(result.call.name, _NAME)} {arguments}".rstrip()
        failed = "failed: " if has_failed(result.message.text) else ""
        outcome = failed + gist(result.message.text, _OUTCOME)
        lines.append(f"{called}{_OUTCOME_BEGINS}{outcome}".rstrip())
    return "\n".join(lines)


def _values_in(told: Message) -> Message:
    """Pick the ids, paths and codes out of the outcomes in the lines of a unit."""
    outcomes = [line.partition(_OUTCOME_BEGINS)[2] for line in told.text.split("\n")]
    words = [word.strip(_AROUND_VALUE) for one in outcomes for word in _VALUE.findall(one)]
    values = dict.fromkeys(word for word in words if not word.endswith(ELLIPSIS))
    return user_message(" ".join([_NOTHING, *values]))
