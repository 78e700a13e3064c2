"""Messages made longer or put together; parts that are not text keep their bytes.

The content of a message is a string, an array of parts, or null.
"""

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message

_NOTHING = b"null"


def plain_message(role: str, text: str) -> Message:
    """Make a message that says `text`."""
    return Message(role, text, json.dump({"role": role, "content": text}))


def joined(first: Message, second: Message, separator: str) -> Message:
    """Return `first`, with the content of `second` behind its own.

    Where both have content, that of `first` is the beginning of the whole, and `separator` is
    between them. Of `second` nothing else is kept.
    """
    members = json.split_object(first.source)
    behind = json.split_object(second.source).get("content", _NOTHING)
    content = _joined(members.get("content", _NOTHING), behind, separator)
    return _with_content(first, content)


def introduced(message: Message, text: str, separator: str) -> Message:
    """Return a message with `text` in front of its own content."""
    own = json.split_object(message.source).get("content", _NOTHING)
    return _with_content(message, _joined(json.dump(text), own, separator))


def rewritten(message: Message, text: str) -> Message:
    """Return a message whose calls and whose content have become `text`."""
    members = json.split_object(message.source)
    members.pop("tool_calls", None)
    source = json.join_object({**members, "content": json.dump(text)})
    return Message(message.role, text, source)


def retold(message: Message, role: str, text: str) -> Message:
    """Make a message of another role that says `text` and has the parts that are not text."""
    content = json.split_object(message.source).get("content", _NOTHING)
    others = [part for part in _parts(content) if b"text" not in _keys(part)]
    plain = plain_message(role, text)
    return _with_content(plain, json.join_array([_text_part(text), *others])) if others else plain


def _with_content(message: Message, content: bytes) -> Message:
    members = json.split_object(message.source)
    source = json.join_object({**members, "content": content})
    return Message(message.role, _text(content), source, message.calls, message.tool_call_id)


def _joined(first: bytes, second: bytes, separator: str) -> bytes:
    if not (_is_list(first) or _is_list(second)):
        texts = [text for text in (_text(first), _text(second)) if text]
        return json.dump(separator.join(texts))
    parts, more = _parts(first), _parts(second)
    between = [_text_part(separator)] if parts and more else []
    return json.join_array([*parts, *between, *more])


def _parts(content: bytes) -> list[bytes]:
    if _is_list(content):
        return json.split_array(content)
    text = _text(content)
    return [_text_part(text)] if text else []


def _text(content: bytes) -> str:
    value = json.parse(content)
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _is_list(content: bytes) -> bool:
    return content.startswith(b"[")


def _keys(part: bytes) -> list[bytes]:
    return [name.encode() for name in json.split_object(part)]


def _text_part(text: str) -> bytes:
    part: JsonObject = {"type": "text", "text": text}
    return json.dump(part)
