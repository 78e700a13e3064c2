"""Control tokens of the model's own template in words that are not the template's.

A tool result that contains `<|im_end|>` would end its message and begin another one in any voice.
Texts are searched decoded, so that no JSON escape hides a token.
"""

from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.content import members_of, rewritten, string_of
from proxy.guardrails.rescue.values.literals import Literals, literals_of

_FOREIGN = ("tool", "function", "user")
_WEDGE = "\u200b"  # zero width space: looks the same, and is another token
_NAME = b'"name"'  # quotes within JSON strings are escaped: this is a member


def neutralise(
    messages: tuple[Message, ...], tokens: Sequence[str], facts: list[Fact]
) -> tuple[Message, ...]:
    """Break the tokens in what users and tools said, and in their names."""
    breakable = tuple(token for token in tokens if len(token) > 1)
    if not breakable:
        return messages
    return tuple(
        _neutralise(message, breakable, facts)
        if message.role in _FOREIGN and _may_contain(message, breakable)
        else message
        for message in messages
    )


def _may_contain(message: Message, tokens: Sequence[str]) -> bool:
    return any(token in message.text for token in tokens) or _NAME in message.source


def _neutralise(message: Message, tokens: Sequence[str], facts: list[Fact]) -> Message:
    literals = literals_of(*tokens)
    members = members_of(message)
    cleaned = {
        name: _clean(value, literals) if name in ("content", "name") else value
        for name, value in members.items()
    }
    if cleaned == members:
        return message
    facts.append(Healed("control_token"))
    return rewritten(message, cleaned)


def _clean(value: bytes, literals: Literals) -> bytes:
    """Clean a string, or the texts of parts."""
    if not value.startswith(b"["):
        return _clean_string(value, literals)
    parts = json.split_array(value)
    cleaned = [_clean_part(part, literals) for part in parts]
    return value if cleaned == parts else json.join_array(cleaned)


def _clean_part(part: bytes, literals: Literals) -> bytes:
    members = json.split_object(part)
    text = members.get("text", b"")
    cleaned = _clean_string(text, literals)
    return part if cleaned == text else json.join_object({**members, "text": cleaned})


def _clean_string(value: bytes, literals: Literals) -> bytes:
    text = string_of(value)
    wedged = _wedge(text, literals)
    return value if wedged == text else json.dump(wedged)


def _wedge(text: str, literals: Literals) -> str:
    """Put a wedge behind the first character of every token, overlapping ones included."""
    pieces: list[str] = []
    start = 0
    while (place := literals.find(text, start, is_finished=True)) < len(text):
        pieces.append(text[start : place + 1])
        start = place + 1
    return _WEDGE.join([*pieces, text[start:]])
