"""Weighs each message once, whichever model it is for: what it weighs is the same for all.

What is forgotten is weighed again, to the same result.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterable
from typing import TypeVar

from proxy.context.rough_size import RoughSize, rough_size_of_tools, weighing, weight
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

Kept = TypeVar("Kept")

_LONG = 65_536  # bytes, which take a few milliseconds
CAPACITY = 16_384  # messages, 184 bytes for each: the histories of a hundred long sessions


class MessageSizes:
    """Remembers the weights of the latest messages, and of the latest sets of tools."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._messages: OrderedDict[int, RoughSize] = OrderedDict()
        self._tools: OrderedDict[int, int] = OrderedDict()

    def weigh(self, message: Message) -> RoughSize:
        """Weigh a message."""
        key = hash(message.source)
        known = self._messages.get(key)
        if known is None:
            return self._kept(self._messages, key, weight(message))
        self._messages.move_to_end(key)
        return known

    def weighing(self, messages: Iterable[Message]) -> Generator[None, None, None]:
        """Weigh the long messages among these, and yield wherever somebody else may run."""
        for message in messages:
            if len(message.source) > _LONG and (key := hash(message.source)) not in self._messages:
                self._kept(self._messages, key, (yield from weighing(message)))

    def weigh_tools(self, tools: tuple[Tool, ...]) -> int:
        """Weigh the tools of a request."""
        key = key_of_tools(tools)
        known = self._tools.get(key)
        if known is None:
            return self._kept(self._tools, key, rough_size_of_tools(tools))
        self._tools.move_to_end(key)
        return known

    def _kept(self, kept: OrderedDict[int, Kept], key: int, value: Kept) -> Kept:
        kept[key] = value
        if len(kept) > self._capacity:
            kept.popitem(last=False)
        return value


def key_of_tools(tools: tuple[Tool, ...]) -> int:
    """Return what tells one set of tools from another."""
    return hash(tuple(tool.source for tool in tools))
