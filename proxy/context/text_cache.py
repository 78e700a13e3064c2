"""What was written in place of old messages, kept by what it stands for: every turn needs it again.

Nothing is decided here. What is forgotten is rewritten, with the same words.
"""

from collections import OrderedDict
from collections.abc import Callable

from proxy.context.shortening import stub, with_content
from proxy.context.units import Result
from proxy.conversation.messages import Message

CAPACITY = 16_384  # short messages


class TextCache:
    """Remembers short messages; keys are hashes, because what they stand for may be long."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[int, Message] = OrderedDict()

    def stub(self, result: Result) -> Message:
        """Return the stub of a result."""
        message, call = result.message, result.call
        key = hash((message.source, call.name, call.arguments))
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        return self.get(key, lambda: with_content(message, stub(call, message.text)))

    def get(self, key: int, write: Callable[[], Message]) -> Message:
        """Return what was written under a key, or write it."""
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = write()
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return known
