"""Messages made longer or put together; parts that are not text keep their bytes.

The content of a message is a string, an array of parts, or null.
"""

from collections.abc import Sequence
from itertools import takewhile

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message

_NOTHING = b"null"


def plain_message(role: str, text: str) -> Message:
    """Make a message that says `text`."""
    return Message(role, text, json.dump({"role": role, "content": text}))


def joined(messages: Sequence[Message], separator: str) -> Message:
    """Return the first of several messages, with the contents of all behind its own.

    Contents have `separator` between them; what those of the first few make is the beginning of the
    whole. Of the others nothing else is kept.
    """
    contents = [json.split_object(one.source).get("content", _NOTHING) for one in messages]
    return _with_content(messages[0], _joined(contents, separator))


def introduced(message: Message, text: str, separator: str) -> Message:
    """Return a message with `text` in front of its own content."""
    own = json.split_object(message.source).get("content", _NOTHING)
    return _with_content(message, _joined([json.dump(text), own], separator))


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


def _joined(contents: Sequence[bytes], separator: str) -> bytes:
    """Put contents into one: a string, or the parts of all from the first that has some."""
    plain = list(takewhile(lambda content: not _is_list(content), contents))
    text = json.dump(separator.join(filter(None, map(_text, plain))))
    if len(plain) == len(contents):
        return text
    parts = _parts(text)
    for content in contents[len(plain) :]:
        more = _parts(content)
        parts += [_text_part(separator), *more] if parts and more else more
    return json.join_array(parts)


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
