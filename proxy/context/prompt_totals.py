"""Prompts whose total is known exactly, found again when a prompt goes on from one of them."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from proxy.conversation.messages import Message

CAPACITY = 4_096  # prompts


class KnownPromptTotals:
    """Remembers the totals of the latest prompts; `tools` is the key of their tools."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._totals: OrderedDict[int, int] = OrderedDict()
        self._latest: tuple[Sequence[Message], int, list[int]] = ((), 0, [0])

    def note(self, messages: Sequence[Message], tools: int, total: int) -> None:
        """Remember the total of a prompt."""
        key = self._keys(messages, tools)[-1]
        self._totals[key] = total
        self._totals.move_to_end(key)
        if len(self._totals) > self._capacity:
            self._totals.popitem(last=False)

    def longest(self, messages: Sequence[Message], tools: int) -> tuple[int, int] | None:
        """Return how many messages of a prompt are known to have which total; None without any."""
        keys = self._keys(messages, tools)
        for count in range(len(keys) - 1, 0, -1):
            total = self._totals.get(keys[count])
            if total is not None:
                return count, total
        return None

    def _keys(self, messages: Sequence[Message], tools: int) -> list[int]:
        """Return the keys of all beginnings of a prompt; one is asked about several times."""
        latest, its_tools, keys = self._latest
        if latest is not messages or its_tools != tools:
            keys = list(_chain(messages, tools))
            self._latest = messages, tools, keys
        return keys


def _chain(messages: Sequence[Message], tools: int) -> Iterator[int]:
    """Give the keys of all beginnings of a prompt, the one without messages first."""
    key = tools
    yield key
    for message in messages:
        key = hash((key, message.source))
        yield key
