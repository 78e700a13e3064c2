"""Changes messages as bytes: replaces their members, and extends and joins their contents.

A content is a string or a list of parts:

    "content": "Hi"
    "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", ...}]

`history_repair` and `tool_prompts` change messages only with these functions, so that unchanged
parts and members keep the client's exact bytes. If a message were parsed and serialized again, its
white space could change. The engine would then have to process the prompt again from this message
on.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from proxy.conversation import json
from proxy.conversation.messages import Message, user_message
from proxy.conversation.parts import REASONING_MEMBERS

_PARAGRAPH = "\n\n"
_NOTHING = (b"", b"null", b'""', b"[]")


def members_of(message: Message) -> dict[str, bytes]:
    return json.split_object(message.source)


def replace_members(message: Message, members: Mapping[str, bytes]) -> Message:
    text = text_of(members.get("content", b""))
    source = json.join_object(dict(members))
    return Message(message.role, text, source, message.calls, message.tool_call_id, message.failed)


def convert_to_user(message: Message, note: str = "") -> Message:
    """Return a user message with `note` as its first paragraph and the content of `message`."""
    content = members_of(message).get("content", b"")
    return make_message("user", join_contents([json.dump(note), content]))


def merge(messages: Sequence[Message]) -> Message:
    """Merge messages of one role; contents and reasoning are joined in order.

    All other members keep their first value. Only the last message may have calls.
    """
    sources = [members_of(message) for message in messages]
    members: dict[str, bytes] = {}
    for source_members in sources:
        for name, value in source_members.items():
            members.setdefault(name, value)
    members["content"] = join_contents([source.get("content", b"") for source in sources])
    for name in REASONING_MEMBERS:
        reasoning = [source[name] for source in sources if name in source]
        if len(reasoning) > 1 and all(map(is_string, reasoning)):
            members[name] = join_contents(reasoning)
    last = messages[-1]
    if last.calls:
        members["tool_calls"] = sources[-1]["tool_calls"]
    text = text_of(members["content"])
    return Message(last.role, text, json.join_object(members), last.calls)


def join_contents(contents: Sequence[bytes]) -> bytes:
    """Join contents: strings as paragraphs. If any content has parts, the result has parts."""
    # Empty contents are skipped, because Anthropic's API rejects empty text parts.
    present = [content for content in contents if content not in _NOTHING]
    if all(map(is_string, present)):
        return json.dump(_PARAGRAPH.join(map(string_of, present)))
    return json.join_array([part for content in present for part in _parts(content)])


def is_string(value: bytes) -> bool:
    return value.startswith(b'"')


def string_of(value: bytes) -> str:
    parsed = json.parse(value) if is_string(value) else ""
    return parsed if isinstance(parsed, str) else ""


def text_of(content: bytes) -> str:
    """Return the text of a content; text parts are joined by line breaks."""
    if not content.startswith(b"["):
        return string_of(content)
    parts = json.parse(content)
    assert isinstance(parts, list)  # noqa: S101 - it begins with a bracket
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _parts(content: bytes) -> list[bytes]:
    if content.startswith(b"["):
        return json.split_array(content)
    return [_text_part(content)] if string_of(content) else []


def _text_part(text: bytes) -> bytes:
    return json.join_object({"type": b'"text"', "text": text})


def make_message(role: str, content: bytes) -> Message:
    members = {"role": json.dump(role), "content": content}
    return Message(role, text_of(content), json.join_object(members))


def plain_message(role: str, text: str) -> Message:
    return Message(role, text, json.dump({"role": role, "content": text}))


def join_messages(messages: Sequence[Message], separator: str) -> Message:
    """Return the first message with the contents of all other messages appended.

    `separator` separates the contents. The result for the first messages is a prefix of the result
    for all messages. Other members of the appended messages are dropped.
    """
    contents = [members_of(message).get("content", b"") for message in messages]
    return _with_content(messages[0], _join_with(contents, separator))


def prepend_text(message: Message, text: str, separator: str) -> Message:
    content = members_of(message).get("content", b"")
    return _with_content(message, _join_with([json.dump(text), content], separator))


def replace_content(message: Message, text: str) -> Message:
    members = {**members_of(message), "content": json.dump(text)}
    members.pop("tool_calls", None)  # the new text describes the calls
    return Message(message.role, text, json.join_object(members))


def write_as_user(message: Message, text: str) -> Message:
    """Return a user message with `text` and the non-text parts of `message`, such as images."""
    parts = _parts(members_of(message).get("content", b""))
    other_parts = [part for part in parts if "text" not in json.split_object(part)]
    if not other_parts:
        return user_message(text)
    return make_message("user", json.join_array([_text_part(json.dump(text)), *other_parts]))


def _with_content(message: Message, content: bytes) -> Message:
    return replace_members(message, {**members_of(message), "content": content})


def _join_with(contents: Sequence[bytes], separator: str) -> bytes:
    """Join contents into one string. If any content has parts, join them into a list of parts."""
    plain = list(takewhile(lambda content: not content.startswith(b"["), contents))
    text = json.dump(separator.join(filter(None, map(string_of, plain))))
    if len(plain) == len(contents):
        return text
    parts = _parts(text)
    for content in contents[len(plain) :]:
        more = _parts(content)
        parts += [_text_part(json.dump(separator)), *more] if parts and more else more
    return json.join_array(parts)
