"""The digest: one line for each step that was removed from the conversation.

    [Note: earlier steps of this conversation, shortened. They are done.]
    - (12 steps before these are left out)
    - read_file path: src/app.py -> def main(): | port = 8080
    - run_tests -> failed: Error: 1 failed, 3 passed

The digest is a user message, because every chat template accepts a user message at this position.
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
# the longest head of a digest, so that its tokens can be counted before the digest is written
_HEAD = user_message(f"{_INTRODUCTION}\n{_LEFT_OUT.format(count=9_999)}\n")
# the most pieces (see `rough_tokens`) of each part of a line
_NAME, _ARGUMENTS, _OUTCOME, _MESSAGE = 14, 14, 36, 60
_OUTCOME_BEGINS = " -> "
# an id, a path or a code, recognized as a word with a letter and a digit
_VALUE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])\S{5,}")
_NOTHING = "-"
_AROUND_VALUE = ":,;|()[]\"'"

Line: TypeAlias = tuple[int, Message, int]  # the index of the unit, the text and its tokens


@dataclass(slots=True)
class Digest:
    """Describes the latest removed units, as many as fit into `room` tokens.

    The lines of the latest units are complete (`recent`). The lines of older units contain only
    ids, paths and codes (`kept`), and use up to half of `room`. The oldest units have no line;
    `left_out` is their number. Tokens are counted per line, so the size is known without writing
    the digest: `head`, `lines` and `values` are the tokens of the introduction, of `recent` and of
    `kept`.
    """

    counts: TokenCounts
    texts: TextCache
    has_failed: Callable[[str], bool]
    room: int
    left_out: int = 0
    head: int = 0
    lines: int = 0
    values: int = 0
    recent: deque[Line] = field(default_factory=deque)
    kept: deque[Line] = field(default_factory=deque)

    @property
    def size(self) -> int:
        """The tokens of the digest; 0 if no unit was added."""
        return self.head + self.lines + self.values

    def copy(self) -> "Digest":
        return replace(self, recent=self.recent.copy(), kept=self.kept.copy())

    def add(self, unit: Unit) -> None:
        self.head = self.head or self.counts.of(_HEAD)
        sources = [result.message.source for result in unit.results]
        line = self.texts.get(
            hash((unit.message.source, *sources)),
            lambda: user_message(_line(unit, self.has_failed)),
        )
        tokens = self._tokens_of(line)
        self.recent.append((unit.indexes[0], line, tokens))
        self.lines += tokens
        while self.size > self.room and (self.recent or self.kept):
            if self.recent and (not self.kept or 2 * self.values <= self.room):
                self._reduce()
            else:
                self.values -= self.kept.popleft()[2]
                self.left_out += 1

    def _reduce(self) -> None:
        """Replace the oldest complete line by the ids, paths and codes in its outcome."""
        index, line, tokens = self.recent.popleft()
        self.lines -= tokens
        short = self.texts.get(hash((line.source, _NOTHING)), lambda: _values_in(line))
        if short.text != _NOTHING:
            tokens = self._tokens_of(short)
            self.kept.append((index, short, tokens))
            self.values += tokens
        else:
            self.left_out += 1

    def _tokens_of(self, line: Message) -> int:
        return self.counts.of(line) - self.counts.overhead + 1  # 1 for the line end

    def message(self) -> Message:
        ordered = sorted([(index, line.text) for index, line, _ in (*self.kept, *self.recent)])
        lines = [line for _, line in ordered]

        def write() -> Message:
            omission = [_LEFT_OUT.format(count=self.left_out)] if self.left_out else []
            return user_message("\n".join([_INTRODUCTION, *omission, *lines]))

        return self.texts.get(hash((self.left_out, *lines)), write)


def _line(unit: Unit, has_failed: Callable[[str], bool]) -> str:
    if not unit.is_group:
        words = " ".join(unit.message.text.split())
        return clip(f"- {unit.message.role}: {words}", _MESSAGE)
    lines: list[str] = []
    for result in unit.results:
        arguments = clip(on_one_line(result.call.arguments).strip("{}"), _ARGUMENTS)
        call = f"- {clip(result.call.name, _NAME)} {arguments}".rstrip()
        failed = "failed: " if has_failed(result.message.text) else ""
        outcome = failed + gist(result.message.text, _OUTCOME)
        lines.append(f"{call}{_OUTCOME_BEGINS}{outcome}".rstrip())
    return "\n".join(lines)


def _values_in(line: Message) -> Message:
    """Extract the ids, paths and codes from the outcomes of a line: `- ord-3417 src/part_89.py`."""
    outcomes = [text.partition(_OUTCOME_BEGINS)[2] for text in line.text.split("\n")]
    words = [word.strip(_AROUND_VALUE) for text in outcomes for word in _VALUE.findall(text)]
    values = dict.fromkeys(word for word in words if not word.endswith(ELLIPSIS))
    return user_message(" ".join([_NOTHING, *values]))
