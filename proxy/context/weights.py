"""How heavy a message is, in bytes that a tokenizer will see; what counting works with.

Bytes and not characters: a letter of most scripts costs a token or two, and has as many bytes.
"""

from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

MEDIUM = 2_048  # tokens for a picture or a sound, more than most models take

_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_THOUGHT_SIGNS = (b'"reasoning', b'"thinking"')
_MEDIA_SIGNS = (b'"image_url"', b'"input_audio"')  # the kind of a part, and its member


def countable(message: Message) -> str:
    """Return what a tokenizer has to count of a message: thoughts, words, names and arguments."""
    calls = (f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in message.calls)
    return "\n".join(part for part in (_thoughts(message), message.text, *calls) if part)


def weight(message: Message) -> int:
    """Weigh the words, names, arguments and thoughts of a message, in bytes."""
    return words_weight(message) + _size(_thoughts(message))


def words_weight(message: Message) -> int:
    """Weigh what every template writes of a message; many leave thoughts out."""
    calls = sum(_size(call.name) + _size(call.arguments) for call in message.calls)
    return _size(message.text) + calls


def media(message: Message) -> int:
    """Return what the pictures and sounds of a message cost at most, in tokens."""
    return MEDIUM * (sum(map(message.source.count, _MEDIA_SIGNS)) // 2)


def weight_of_tools(tools: tuple[Tool, ...]) -> int:
    """Weigh tools, in bytes."""
    return sum(len(tool.source) for tool in tools)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _thoughts(message: Message) -> str:
    is_thinker = message.role == "assistant"
    if not is_thinker or not any(sign in message.source for sign in _THOUGHT_SIGNS):
        return ""
    members = json.split_object(message.source)
    values = (json.parse(members[name]) for name in _THOUGHTS if name in members)
    return "\n".join(value for value in values if isinstance(value, str))
