"""Sizes of messages in pieces: words, signs and digits as in `rough_tokens`.

Token counts are estimated from pieces, because tokens per byte differ by a third between prose,
code and tables. Tokens per piece differ by less than a tenth (for the same model). A message is
measured once for all models.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from proxy.context.rough_tokens import count_gradually, count_rough_tokens
from proxy.conversation.messages import Message
from proxy.conversation.parts import Reasoning
from proxy.conversation.tools import Tool

MEDIUM = 2_048  # assumed tokens of a picture or a sound, more than most models need

# names of members with reasoning; only messages that contain them are parsed
_THOUGHT_SIGNS = (b'"reasoning', b'"thinking"')
# each of them occurs twice in a part: {"type": "image_url", "image_url": {...}}
_MEDIA_SIGNS = (b'"image_url"', b'"input_audio"')
_source_of = attrgetter("source")


class RoughSize(NamedTuple):
    """The pieces of a message's `words` and `thoughts` (reasoning), and the tokens of `media`."""

    words: int
    thoughts: int
    media: int

    @property
    def pieces(self) -> int:
        return self.words + self.thoughts


def countable(message: Message) -> str:
    """Return the text that a tokenizer counts: reasoning, content, names and arguments of calls."""
    calls = (f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in message.calls)
    return "\n".join(part for part in (_thoughts(message), message.text, *calls) if part)


def weight(message: Message) -> RoughSize:
    parts = weigh_gradually(message)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            size: RoughSize = end.value
            return size


def weigh_gradually(message: Message) -> Generator[None, None, RoughSize]:
    """Measure a message; yield regularly, so that a long message does not block other tasks."""
    words = yield from count_gradually(message.text)
    for call in message.calls:
        words += yield from count_gradually(call.name)
        words += yield from count_gradually(call.arguments)
    thoughts = yield from count_gradually(_thoughts(message))
    media = sum(map(message.source.count, _MEDIA_SIGNS)) // 2
    return RoughSize(words, thoughts, MEDIUM * media)


def _thoughts(message: Message) -> str:
    is_thinker = message.role == "assistant"
    if not is_thinker or not any(sign in message.source for sign in _THOUGHT_SIGNS):
        return ""
    thoughts = (part for part in message.parts if isinstance(part, Reasoning))
    return "\n".join(thought.text for thought in thoughts if not thought.signed)


Key = TypeVar("Key")
Value = TypeVar("Value")

_LONG = 65_536  # bytes; measuring more takes several milliseconds
CAPACITY = 16_384  # messages of 184 bytes each: the histories of a hundred long sessions


class LruCache(Generic[Key, Value]):
    """Stores the `most` most recently used values."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def find(self, key: Key) -> Value | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def keep(self, key: Key, value: Value) -> Value:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return value


class MessageSizes:
    """Caches the sizes of the latest messages and sets of tools."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._messages: LruCache[int, RoughSize] = LruCache(capacity)
        self._tools: LruCache[int, int] = LruCache(capacity)

    def weigh(self, message: Message) -> RoughSize:
        return self.weigh_all((message,))[0]

    def weigh_all(self, messages: Iterable[Message]) -> list[RoughSize]:
        sizes: list[RoughSize] = []
        for message in messages:
            key = hash(message.source)
            sizes.append(self._messages.find(key) or self._messages.keep(key, weight(message)))
        return sizes

    def weigh_gradually(self, messages: Sequence[Message]) -> Generator[None, None, None]:
        """Measure long messages and cache their sizes; yield regularly so that other tasks run."""
        # few conversations have a long message, and hashing every message takes time
        if max(map(len, map(_source_of, messages)), default=0) <= _LONG:
            return
        for message in messages:
            key = hash(message.source)
            if len(message.source) > _LONG and self._messages.find(key) is None:
                self._messages.keep(key, (yield from weigh_gradually(message)))

    def weigh_tools(self, tools: tuple[Tool, ...]) -> int:
        key = key_of_tools(tools)
        if (known := self._tools.find(key)) is not None:
            return known
        sources = (tool.source.decode(errors="replace") for tool in tools)
        return self._tools.keep(key, sum(map(count_rough_tokens, sources)))


def key_of_tools(tools: tuple[Tool, ...]) -> int:
    return hash(tuple(map(_source_of, tools)))
