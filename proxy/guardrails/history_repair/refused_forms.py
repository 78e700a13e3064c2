"""Rewrites conversations in the form that an engine or its chat template accepts.

Each function answers a refusal that some engine gave for valid OpenAI messages. Untouched messages
keep their bytes, and a message is rewritten the same way every time, so a prompt only grows.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b

from msgspec.structs import replace

from proxy.conversation import json, roles
from proxy.conversation.messages import Message, Messages
from proxy.guardrails import contents

_ACKNOWLEDGED = contents.plain_message("assistant", "OK.")
_NO_ANSWER = "(no answer)"
_BLANK = " "  # Kimi and DeepSeek refuse an empty string
_ID = re.compile(r"[A-Za-z0-9]{9}")
_ID_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PARTS = re.compile(rb'"content"\s*:\s*\[')
_PICTURE = b'"image_url"'
_HIDDEN = {"type": "text", "text": "[An image that this model cannot read.]"}
_PICTURE_BELOW = "The image is in the next message."
_PICTURE_ABOVE = "Image from the result of the tool call {}:"


def acknowledge_results(messages: Messages) -> Messages:
    """Put an assistant message between a tool result and a user message.

    Mistral's templates end each round of tools with the assistant: "Unexpected role 'user' after
    role 'tool'" (mistral-common 1.8).
    """
    sent: list[Message] = []
    for message in messages:
        if message.role == "user" and sent and sent[-1].role in roles.RESULTS:
            sent.append(_ACKNOWLEDGED)
        sent.append(message)
    return tuple(sent)


def shorten_ids(messages: Messages) -> Messages:
    """Replace call ids that are not nine letters and digits, as Mistral's templates demand."""
    return tuple(map(_shorten_ids, messages))


def _shorten_ids(message: Message) -> Message:
    members = contents.members_of(message)
    changed = dict(members)
    calls = json.parse(members.get("tool_calls", b"null"))
    if isinstance(calls, list):
        changed["tool_calls"] = json.dump(
            [
                {**call, "id": _short_id(f"{call.get('id', '')}")}
                for call in calls
                if isinstance(call, dict)
            ]
        )
    if message.tool_call_id is not None and "tool_call_id" in members:
        changed["tool_call_id"] = json.dump(_short_id(message.tool_call_id))
    if changed == members:
        return message
    calls_typed = tuple(replace(call, id=_short_id(call.id)) for call in message.calls)
    return contents.replace_members(replace(message, calls=calls_typed), changed)


def _short_id(call_id: str) -> str:
    if _ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(blake2b(call_id.encode("utf-8", "surrogatepass")).digest()[:8])
    return "".join(_ID_DIGITS[number // 36**place % 36] for place in range(9))


def think_instead(messages: Messages) -> Messages:
    """Move text beside thinking and calls into the thinking.

    The template of gpt-oss renders both in its analysis channel, and refuses both at once.
    """
    return tuple(_think_instead(one) if one.calls else one for one in messages)


def _think_instead(message: Message) -> Message:
    members = contents.members_of(message)
    thoughts = {name: members.get(name, b"") for name in contents.THOUGHT_MEMBERS}
    names = [name for name, value in thoughts.items() if contents.string_of(value)]
    if not names or not message.text.strip():
        return message
    joined = contents.join_contents([members[names[0]], json.dump(message.text)])
    return contents.replace_members(message, {**members, names[0]: joined, "content": b'""'})


def add_thoughts(messages: Messages) -> Messages:
    """Add `reasoning_content` to assistant messages with calls that lack it."""
    return tuple(_add_thoughts(one) if one.calls else one for one in messages)


def _add_thoughts(message: Message) -> Message:
    members = contents.members_of(message)
    known = (contents.string_of(members.get(name, b"")) for name in contents.THOUGHT_MEMBERS)
    thoughts = json.dump(next(filter(None, known), _BLANK))
    if members.get("reasoning_content") == thoughts:
        return message
    return contents.replace_members(message, {**members, "reasoning_content": thoughts})


def fill_empty_answers(messages: Messages) -> Messages:
    """Give assistant messages a text that have neither text nor calls, such as cut-off thoughts."""
    return tuple(
        contents.replace_content(one, _NO_ANSWER)
        if one.role == "assistant" and not (one.calls or one.text.strip())
        else one
        for one in messages
    )


def find_new_picture(messages: Messages) -> str | None:
    """Name the field of a picture that the user has sent since the last answer, None without one.

    Nothing can replace it. A picture before that, or in a tool result, can be left out.
    """
    start = max((at + 1 for at, one in enumerate(messages) if one.role == "assistant"), default=0)
    for position, message in enumerate(messages[start:], start):
        if message.role == "user":
            for number, _ in _pictures(message):
                return f"messages.{position}.content.{number}"
    return None


def hide_pictures(messages: Messages) -> Messages:
    """Replace pictures by a note, but for those that the user has just sent."""
    start = max((at for at, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return tuple(
        _hide_pictures(one) if position < start or one.role != "user" else one
        for position, one in enumerate(messages)
    )


def _hide_pictures(message: Message) -> Message:
    if not (places := {number for number, _ in _pictures(message)}):
        return message
    members = contents.members_of(message)
    parts = json.split_array(members["content"])
    hidden = json.dump({**_HIDDEN})
    kept = [hidden if number in places else part for number, part in enumerate(parts)]
    return contents.replace_members(message, {**members, "content": json.join_array(kept)})


def move_pictures(messages: Messages) -> Messages:
    """Move pictures in tool results into a user message after these results.

    The results become strings: some engines take no parts in them.
    """
    sent: list[Message] = []
    moved: list[bytes] = []
    for message in messages:
        if message.role not in roles.RESULTS and moved:
            sent.append(_picture_message(moved))
            moved = []
        if message.role in roles.RESULTS and (pictures := [part for _, part in _pictures(message)]):
            note = json.dump(_PICTURE_ABOVE.format(message.tool_call_id or ""))
            moved += [json.join_object({"type": b'"text"', "text": note}), *pictures]
        is_moved = message.role in roles.RESULTS and _PARTS.search(message.source) is not None
        text = message.text or _PICTURE_BELOW
        sent.append(contents.replace_content(message, text) if is_moved else message)
    return (*sent, _picture_message(moved)) if moved else tuple(sent)


def _picture_message(parts: list[bytes]) -> Message:
    members = {"role": b'"user"', "content": json.join_array(parts)}
    return Message("user", contents.text_of(members["content"]), json.join_object(members))


def _pictures(message: Message) -> Iterator[tuple[int, bytes]]:
    """Yield the pictures among the parts of a content, with their positions."""
    if _PICTURE not in message.source:
        return
    content = contents.members_of(message).get("content", b"")
    if content.startswith(b"["):
        for number, part in enumerate(json.split_array(content)):
            if json.split_object(part).get("type") == _PICTURE:
                yield number, part
