"""How heavy a message is, in pieces that a tokenizer might cut it into; what guessing works with.

Pieces and not bytes: for the same model, tokens differ by a third per byte between prose, code and
tables, and by less than a tenth per piece.
"""

from collections.abc import Generator
from typing import NamedTuple

from proxy.context.rough_tokens import count_rough_tokens, counting
from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

MEDIUM = 2_048  # tokens for a picture or a sound, more than most models take

_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_THOUGHT_SIGNS = (b'"reasoning', b'"thinking"')
_MEDIA_SIGNS = (b'"image_url"', b'"input_audio"')  # the kind of a part, and its member


class RoughSize(NamedTuple):
    """The pieces of a message; many templates leave `thoughts` out. `media` is in tokens."""

    words: int
    thoughts: int
    media: int

    @property
    def pieces(self) -> int:
        """All pieces, those of thoughts included."""
        return self.words + self.thoughts


def countable(message: Message) -> str:
    """Return what a tokenizer has to count of a message: thoughts, words, names and arguments."""
    calls = (f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in message.calls)
    return "\n".join(part for part in (_thoughts(message), message.text, *calls) if part)


def weight(message: Message) -> RoughSize:
    """Weigh the words, names and arguments of a message, its thoughts, and what it shows."""
    parts = weighing(message)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: RoughSize = end.value
            return found


def weighing(message: Message) -> Generator[None, None, RoughSize]:
    """Weigh a message of any size, and yield wherever somebody else may run."""
    words = yield from counting(message.text)
    for call in message.calls:
        words += yield from counting(call.name)
        words += yield from counting(call.arguments)
    thoughts = yield from counting(_thoughts(message))
    return RoughSize(words, thoughts, _media(message))


def rough_size_of_tools(tools: tuple[Tool, ...]) -> int:
    """Weigh tools."""
    return sum(count_rough_tokens(tool.source.decode(errors="replace")) for tool in tools)


def _media(message: Message) -> int:
    """Return what the pictures and sounds of a message cost at most, in tokens."""
    return MEDIUM * (sum(map(message.source.count, _MEDIA_SIGNS)) // 2)


def _thoughts(message: Message) -> str:
    is_thinker = message.role == "assistant"
    if not is_thinker or not any(sign in message.source for sign in _THOUGHT_SIGNS):
        return ""
    members = json.split_object(message.source)
    values = (json.parse(members[name]) for name in _THOUGHTS if name in members)
    return "\n".join(value for value in values if isinstance(value, str))
