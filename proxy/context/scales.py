"""Weighs each message once, whichever model it is for: what it weighs is the same for all.

What is forgotten is weighed again, to the same result.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from proxy.context.weights import Weight, weight, weight_of_tools
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

Kept = TypeVar("Kept")

CAPACITY = 16_384  # messages, 184 bytes for each: the histories of a hundred long sessions


class Scales:
    """Remembers the weights of the latest messages, and of the latest sets of tools."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._messages: OrderedDict[int, Weight] = OrderedDict()
        self._tools: OrderedDict[int, int] = OrderedDict()

    def weigh(self, message: Message) -> Weight:
        """Weigh a message."""
        key = hash(message.source)
        return self._recalled(self._messages, key, lambda: weight(message))

    def weigh_tools(self, tools: tuple[Tool, ...]) -> int:
        """Weigh the tools of a request."""
        return self._recalled(self._tools, key_of_tools(tools), lambda: weight_of_tools(tools))

    def _recalled(self, kept: OrderedDict[int, Kept], key: int, weigh: Callable[[], Kept]) -> Kept:
        known = kept.get(key)
        if known is None:
            known = kept[key] = weigh()
            if len(kept) > self._capacity:
                kept.popitem(last=False)
        else:
            kept.move_to_end(key)
        return known


def key_of_tools(tools: tuple[Tool, ...]) -> int:
    """Return what tells one set of tools from another."""
    return hash(tuple(tool.source for tool in tools))
