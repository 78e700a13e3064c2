"""The digest: what was done in the steps that are no longer in the conversation, a line for each.

It is the user's message, because every chat template takes one there.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.context.compaction import Counts
from proxy.context.pieces import clip
from proxy.context.salience import on_one_line
from proxy.context.shortening import gist
from proxy.context.units import Unit
from proxy.context.written import Written
from proxy.conversation.messages import Message, user_message

_INTRODUCTION = "[Note: earlier steps of this conversation, shortened. They are done.]"
_LEFT_OUT = "- ({count} steps before these are left out)"
_HEAD = user_message(f"{_INTRODUCTION}\n{_LEFT_OUT.format(count=9_999)}\n")
_NAME, _ARGUMENTS, _OUTCOME, _SAID = 14, 14, 36, 60  # pieces


@dataclass(slots=True)
class Digest:
    """Tells of the latest units, as many as `room` tokens allow; `left_out` is how many it has not.

    What a line costs is counted for each, so that the digest need not be written to know its size.
    """

    counts: Counts
    written: Written
    has_failed: Callable[[str], bool]
    room: int
    left_out: int = 0
    head: int = 0
    lines: int = 0
    told: deque[tuple[int, Message, int]] = field(default_factory=deque)

    @property
    def size(self) -> int:
        """How many tokens it costs; nothing as long as it tells of nothing."""
        return self.head + self.lines

    def copy(self) -> "Digest":
        """Return another one that tells of the same."""
        told = self.told.copy()
        settings = self.counts, self.written, self.has_failed, self.room
        return Digest(*settings, self.left_out, self.head, self.lines, told)

    def add(self, unit: Unit) -> None:
        """Tell of one more unit."""
        self.head = self.head or self.counts.of(_HEAD)
        sources = [result.message.source for result in unit.results]
        line = self.written.get(
            hash((unit.message.source, *sources)),
            lambda: user_message(_line(unit, self.has_failed)),
        )
        price = self.counts.of(line) - self.counts.overhead + 1  # and its end
        self.told.append((unit.places[0], line, price))
        self.lines += price
        while self.lines > self.room - self.head and self.told:
            self.lines -= self.told.popleft()[2]
            self.left_out += 1

    def message(self) -> Message:
        """Write it, in the order of history."""
        told = sorted([(place, line.text) for place, line, _ in self.told])
        lines = [line for _, line in told]

        def write() -> Message:
            before = [_LEFT_OUT.format(count=self.left_out)] if self.left_out else []
            return user_message("\n".join([_INTRODUCTION, *before, *lines]))

        return self.written.get(hash((self.left_out, *lines)), write)


def _line(unit: Unit, has_failed: Callable[[str], bool]) -> str:
    """Tell of a unit, in a line for each of its calls."""
    if not unit.is_group:
        said = " ".join(unit.message.text.split())
        return clip(f"- {unit.message.role}: {said}", _SAID)
    lines: list[str] = []
    for result in unit.results:
        arguments = clip(on_one_line(result.call.arguments).strip("{}"), _ARGUMENTS)
        outcome = "failed: " if has_failed(result.message.text) else ""
        called = f"- {clip(result.call.name, _NAME)} {arguments}".rstrip()
        lines.append(f"{called} -> {outcome}{gist(result.message.text, _OUTCOME)}".rstrip())
    return "\n".join(lines)
