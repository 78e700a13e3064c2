"""Computes the duration of a simulated prompt and reply, and the cached part of a prompt."""

from collections import OrderedDict
from dataclasses import dataclass

CHARACTERS_PER_TOKEN = 4
PROMPT_PER_SECOND = 500.0
GENERATED_PER_SECOND = 30.0


@dataclass(frozen=True, slots=True)
class ReplyCost:
    """The tokens of a request, and the seconds that its prompt and its reply take."""

    prompt: int
    cached: int
    generated: int = 0

    @property
    def prompt_seconds(self) -> float:
        """The time to the first token."""
        return (self.prompt - self.cached) / PROMPT_PER_SECOND

    @property
    def seconds(self) -> float:
        """The time to the last token."""
        return self.prompt_seconds + self.generated / GENERATED_PER_SECOND


def tokens_in(text: str) -> int:
    """Count the tokens in a text: one token for every four characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


class Slots:
    """The last prompt of each slot, which is cached.

    A request uses the slot with the longest common prefix if this prefix is longer than half of the
    prompt, and otherwise the slot that was unused for the longest time.
    """

    def __init__(self, slots: int) -> None:
        self._prompts: OrderedDict[int, str] = OrderedDict((slot, "") for slot in range(slots))

    def take(self, prompt: str) -> int:
        """Put a prompt into a slot; returns the number of its tokens that the slot had cached."""
        common = {slot: _common(prompt, other) for slot, other in self._prompts.items()}
        best = max(common, key=lambda slot: common[slot])
        slot = best if 2 * common[best] > len(prompt) else next(iter(self._prompts))
        cached = common[slot] // CHARACTERS_PER_TOKEN
        self._prompts[slot] = prompt
        self._prompts.move_to_end(slot)
        return min(cached, tokens_in(prompt) - 1)


def _common(text: str, other: str) -> int:
    """Return the length of the common prefix, by binary search."""
    least, most = 0, min(len(text), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if text[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
