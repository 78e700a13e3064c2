"""How large a message is, in pieces that a tokenizer might cut it into; what guessing works with.

Pieces and not bytes: for the same model, tokens differ by a third per byte between prose, code and
tables, and by less than a tenth per piece. A message is measured once, whichever model it is for.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterable
from operator import attrgetter
from typing import NamedTuple, TypeVar

from proxy.context.rough_tokens import count_gradually, count_rough_tokens
from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

MEDIUM = 2_048  # tokens for a picture or a sound, more than most models take

_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_THOUGHT_SIGNS = (b'"reasoning', b'"thinking"')
_MEDIA_SIGNS = (b'"image_url"', b'"input_audio"')  # the kind of a part, and its member
_source_of = attrgetter("source")


class RoughSize(NamedTuple):
    """The pieces of a message; many templates leave `thoughts` out. `media` is in tokens."""

    words: int
    thoughts: int
    media: int

    @property
    def pieces(self) -> int:
        return self.words + self.thoughts


def countable(message: Message) -> str:
    """Return what a tokenizer has to count of a message: thoughts, words, names and arguments."""
    calls = (f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in message.calls)
    return "\n".join(part for part in (_thoughts(message), message.text, *calls) if part)


def weight(message: Message) -> RoughSize:
    parts = weigh_gradually(message)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: RoughSize = end.value
            return found


def weigh_gradually(message: Message) -> Generator[None, None, RoughSize]:
    """Weigh a message of any size, and yield wherever somebody else may run."""
    words = yield from count_gradually(message.text)
    for call in message.calls:
        words += yield from count_gradually(call.name)
        words += yield from count_gradually(call.arguments)
    thoughts = yield from count_gradually(_thoughts(message))
    media = sum(map(message.source.count, _MEDIA_SIGNS)) // 2
    return RoughSize(words, thoughts, MEDIUM * media)


def rough_size_of_tools(tools: tuple[Tool, ...]) -> int:
    return sum(count_rough_tokens(tool.source.decode(errors="replace")) for tool in tools)


def _thoughts(message: Message) -> str:
    is_thinker = message.role == "assistant"
    if not is_thinker or not any(sign in message.source for sign in _THOUGHT_SIGNS):
        return ""
    members = json.split_object(message.source)
    values = (json.parse(members[name]) for name in _THOUGHTS if name in members)
    return "\n".join(value for value in values if isinstance(value, str))


Key = TypeVar("Key")
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
        return self.weigh_all((message,))[0]

    def weigh_all(self, messages: Iterable[Message]) -> list[RoughSize]:
        sizes: list[RoughSize] = []
        for message in messages:
            key = hash(message.source)
            known = self._messages.get(key)
            if known is None:
                known = weight(message)
                remember(self._messages, key, known, self._capacity)
            else:
                self._messages.move_to_end(key)
            sizes.append(known)
        return sizes

    def weigh_gradually(self, messages: Iterable[Message]) -> Generator[None, None, None]:
        """Weigh the long messages among these, and yield wherever somebody else may run."""
        for message in messages:
            if len(message.source) > _LONG and (key := hash(message.source)) not in self._messages:
                weighed = yield from weigh_gradually(message)
                remember(self._messages, key, weighed, self._capacity)

    def weigh_tools(self, tools: tuple[Tool, ...]) -> int:
        key = key_of_tools(tools)
        known = self._tools.get(key)
        if known is None:
            known = rough_size_of_tools(tools)
        remember(self._tools, key, known, self._capacity)
        return known


def remember(kept: OrderedDict[Key, Kept], key: Key, value: Kept, most: int) -> None:
    """Keep a value as the latest, at the expense of the oldest if there are more than `most`."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def key_of_tools(tools: tuple[Tool, ...]) -> int:
    return hash(tuple(map(_source_of, tools)))
