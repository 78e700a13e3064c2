"""The content of a message, a string or parts: read, prefixed and joined.

Parts that nobody has to alter keep the exact bytes in which the client wrote them.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message

_PARAGRAPH = "\n\n"
_NOTHING = (b"", b"null", b'""', b"[]")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def members_of(message: Message) -> dict[str, bytes]:
    return json.split_object(message.source)


def replace_members(message: Message, members: Mapping[str, bytes]) -> Message:
    text = text_of(members.get("content", b""))
    source = json.join_object(dict(members))
    return Message(message.role, text, source, message.calls, message.tool_call_id, message.failed)


def say_as_user(message: Message, note: str = "") -> Message:
    """Let the user say what a message says, behind a note."""
    members = members_of(message)
    content = join_contents([json.dump(note), members.get("content", b"")])
    members = {"role": b'"user"', "content": content}
    return Message("user", text_of(content), json.join_object(members))


def merge(messages: Sequence[Message]) -> Message:
    """Make one message of several of the same role: contents and thoughts are joined in order.

    Of other members the first one counts. Only the last message may have calls.
    """
    everything = [members_of(message) for message in messages]
    members: dict[str, bytes] = {}
    for one in everything:
        for name, value in one.items():
            members.setdefault(name, value)
    members["content"] = join_contents([one.get("content", b"") for one in everything])
    for name in _THOUGHTS:
        thoughts = [one[name] for one in everything if name in one]
        if len(thoughts) > 1 and all(map(is_string, thoughts)):
            members[name] = join_contents(thoughts)
    last = messages[-1]
    if last.calls:
        members["tool_calls"] = everything[-1]["tool_calls"]
    text, source = text_of(members["content"]), json.join_object(members)
    return Message(last.role, text, source, last.calls)


def join_contents(contents: Sequence[bytes]) -> bytes:
    """Join contents: strings as paragraphs, and all as parts if one of them has parts."""
    present = [content for content in contents if content not in _NOTHING]
    if all(map(is_string, present)):
        return json.dump(_PARAGRAPH.join(map(string_of, present)))
    parts = [_as_parts(content) for content in present]
    return json.join_array([part for some in parts for part in some])


def is_string(value: bytes) -> bool:
    return value.startswith(b'"')


def string_of(value: bytes) -> str:
    """Return a string member, nothing where it is no string."""
    parsed = json.parse(value) if is_string(value) else ""
    return parsed if isinstance(parsed, str) else ""


def text_of(content: bytes) -> str:
    """Return the text of a content, parts joined as the dialect joins them."""
    if not content.startswith(b"["):
        return string_of(content)
    texts = (_text_in(json.parse(part)) for part in json.split_array(content))
    return "\n".join(text for text in texts if text is not None)


def _as_parts(content: bytes) -> list[bytes]:
    if not is_string(content):
        return json.split_array(content)
    return [json.join_object({"type": b'"text"', "text": content})]


def _text_in(part: JsonValue) -> str | None:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else None


_NULL = b"null"


def plain_message(role: str, text: str) -> Message:
    return Message(role, text, json.dump({"role": role, "content": text}))


def join_messages(messages: Sequence[Message], separator: str) -> Message:
    """Return the first of several messages, with the contents of all behind its own.

    Contents have `separator` between them; what those of the first few make is the beginning of the
    whole. Of the others nothing else is kept.
    """
    contents = [json.split_object(one.source).get("content", _NULL) for one in messages]
    return _with_content(messages[0], _join_with(contents, separator))


def prepend_text(message: Message, text: str, separator: str) -> Message:
    own = json.split_object(message.source).get("content", _NULL)
    return _with_content(message, _join_with([json.dump(text), own], separator))


def replace_content(message: Message, text: str) -> Message:
    members = json.split_object(message.source)
    members.pop("tool_calls", None)
    source = json.join_object({**members, "content": json.dump(text)})
    return Message(message.role, text, source)


def change_role(message: Message, role: str, text: str) -> Message:
    """Make a message of another role that says `text` and has the parts that are not text."""
    content = json.split_object(message.source).get("content", _NULL)
    others = [part for part in _parts(content) if b"text" not in _keys(part)]
    plain = plain_message(role, text)
    return _with_content(plain, json.join_array([_text_part(text), *others])) if others else plain


def _with_content(message: Message, content: bytes) -> Message:
    members = json.split_object(message.source)
    source = json.join_object({**members, "content": content})
    return Message(message.role, text_of(content), source, message.calls, message.tool_call_id)


def _join_with(contents: Sequence[bytes], separator: str) -> bytes:
    """Put contents into one: a string, or the parts of all from the first that has some."""
    plain = list(takewhile(lambda content: not _is_list(content), contents))
    text = json.dump(separator.join(filter(None, map(text_of, plain))))
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
    text = text_of(content)
    return [_text_part(text)] if text else []


def _is_list(content: bytes) -> bool:
    return content.startswith(b"[")


def _keys(part: bytes) -> list[bytes]:
    return [name.encode() for name in json.split_object(part)]


def _text_part(text: str) -> bytes:
    part: JsonObject = {"type": "text", "text": text}
    return json.dump(part)
