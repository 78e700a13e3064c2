"""Rewrites conversations into the form that an engine or its chat template accepts.

Some engines reject valid OpenAI messages. Each function prevents one kind of rejection;
`backends/capabilities` decides which functions an engine needs. Accepted messages keep their bytes,
and a message is rewritten in the same way in every request, so that the prompt is append-only.

    acknowledge_results   tool, user                      tool, assistant "OK.", user
    shorten_ids           "id": "call_8f3a..."            "id": "k3x09bq2z"
    think_instead         reasoning, text, calls          the text is part of the reasoning
    add_thoughts          calls without reasoning         "reasoning_content": " "
    fill_empty_answers    assistant without text, calls   "content": "(no answer)"
    hide_pictures         an image of an earlier turn     a text part in place of it
    move_pictures         an image in a tool result       a user message after the results
"""

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b

from msgspec.structs import replace

from proxy.conversation import json, roles
from proxy.conversation.messages import Message, Messages
from proxy.conversation.parts import REASONING_MEMBERS
from proxy.guardrails import contents

# The text is short because every later prompt contains it, and constant because of the prefix
# cache.
_ACKNOWLEDGED = contents.plain_message("assistant", "OK.")
_NO_ANSWER = "(no answer)"
_BLANK = " "  # Kimi and DeepSeek reject an empty string
_ID = re.compile(r"[A-Za-z0-9]{9}")  # the only form that Mistral's templates accept
_ID_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PARTS = re.compile(rb'"content"\s*:\s*\[')
_PICTURE = b'"image_url"'
_HIDDEN = {"type": "text", "text": "[An image that this model cannot read.]"}
_PICTURE_BELOW = "The image is in the next message."
_PICTURE_ABOVE = "Image from the result of the tool call {}:"


def _each(rewrite: Callable[[Message], Message]) -> Callable[[Messages], Messages]:
    """Rewrite every message of a conversation."""
    return lambda messages: tuple(map(rewrite, messages))


def acknowledge_results(messages: Messages) -> Messages:
    """Insert an assistant message between a tool result and a user message.

    Mistral's templates require a message of the assistant after each round of tools. Otherwise they
    fail: "Unexpected role 'user' after role 'tool'" (mistral-common 1.8).
    """
    rewritten: list[Message] = []
    for message in messages:
        if message.role == "user" and rewritten and rewritten[-1].role in roles.RESULTS:
            rewritten.append(_ACKNOWLEDGED)
        rewritten.append(message)
    return tuple(rewritten)


@_each
def shorten_ids(message: Message) -> Message:
    """Replace call ids that are not nine letters or digits (a rule of Mistral's templates)."""
    members = contents.members_of(message)
    changed = dict(members)
    calls = json.parse(members.get("tool_calls", b"null"))
    if isinstance(calls, list):
        objects = [call for call in calls if isinstance(call, dict)]
        short = [{**call, "id": _short_id(f"{call.get('id', '')}")} for call in objects]
        changed["tool_calls"] = json.dump([*short])
    if message.tool_call_id is not None and "tool_call_id" in members:
        changed["tool_call_id"] = json.dump(_short_id(message.tool_call_id))
    if changed == members:
        return message
    calls_typed = tuple(replace(call, id=_short_id(call.id)) for call in message.calls)
    return contents.replace_members(replace(message, calls=calls_typed), changed)


def _short_id(call_id: str) -> str:
    if _ID.fullmatch(call_id):
        return call_id
    # The id is a digest and not a number from a counter, because a digest is the same in every
    # request.
    number = int.from_bytes(blake2b(call_id.encode("utf-8", "surrogatepass")).digest()[:8])
    return "".join(_ID_DIGITS[number // 36**digit % 36] for digit in range(9))


@_each
def think_instead(message: Message) -> Message:
    """Move text next to reasoning and calls into the reasoning.

    The template of gpt-oss renders the text and the reasoning in its analysis channel. It rejects a
    message that has both.
    """
    if not (message.calls and message.text.strip()):
        return message
    members = contents.members_of(message)
    names = [name for name in REASONING_MEMBERS if contents.string_of(members.get(name, b""))]
    if not names:
        return message
    joined = contents.join_contents([members[names[0]], json.dump(message.text)])
    return contents.replace_members(message, {**members, names[0]: joined, "content": b'""'})


@_each
def add_thoughts(message: Message) -> Message:
    """Set `reasoning_content` of messages with calls: to their reasoning, or to a space."""
    if not message.calls:
        return message
    members = contents.members_of(message)
    known = (contents.string_of(members.get(name, b"")) for name in REASONING_MEMBERS)
    thoughts = json.dump(next(filter(None, known), _BLANK))
    if members.get("reasoning_content") == thoughts:
        return message
    return contents.replace_members(message, {**members, "reasoning_content": thoughts})


@_each
def fill_empty_answers(message: Message) -> Message:
    """Add a text to assistant messages that have neither text nor calls.

    For example, a reply that was cut off within its reasoning has neither text nor calls.
    """
    is_empty = message.role == "assistant" and not (message.calls or message.text.strip())
    return contents.replace_content(message, _NO_ANSWER) if is_empty else message


def find_new_picture(messages: Messages) -> str | None:
    """Return the field of a picture that the user sent since the last answer, or None.

    `hide_pictures` keeps pictures of the user since the last answer. It replaces earlier pictures
    and pictures in results.
    """
    start = _last_answer(messages) + 1
    for position, message in enumerate(messages[start:], start):
        if message.role == "user":
            for number, _ in _pictures(message):
                return f"messages.{position}.content.{number}"
    return None


def hide_pictures(messages: Messages) -> Messages:
    """Replace pictures by a note, except pictures in user messages since the last answer."""
    start = _last_answer(messages)
    return tuple(
        _hide_pictures(message) if position < start or message.role != "user" else message
        for position, message in enumerate(messages)
    )


def _last_answer(messages: Messages) -> int:
    return max(
        (index for index, message in enumerate(messages) if message.role == "assistant"), default=-1
    )


def _hide_pictures(message: Message) -> Message:
    if not (hidden_parts := {number for number, _ in _pictures(message)}):
        return message
    members = contents.members_of(message)
    parts = json.split_array(members["content"])
    hidden = json.dump({**_HIDDEN})
    kept = [hidden if number in hidden_parts else part for number, part in enumerate(parts)]
    return contents.replace_members(message, {**members, "content": json.join_array(kept)})


def move_pictures(messages: Messages) -> Messages:
    """Move pictures in tool results into a user message after the results of the same round.

    The results become strings, because some engines reject content parts in a result.
    """
    rewritten: list[Message] = []
    moved: list[bytes] = []
    for message in messages:
        if message.role not in roles.RESULTS and moved:
            rewritten.append(contents.make_message("user", json.join_array(moved)))
            moved = []
        if message.role in roles.RESULTS and (pictures := [part for _, part in _pictures(message)]):
            note = json.dump(_PICTURE_ABOVE.format(message.tool_call_id or ""))
            moved += [json.join_object({"type": b'"text"', "text": note}), *pictures]
        is_moved = message.role in roles.RESULTS and _PARTS.search(message.source) is not None
        text = message.text or _PICTURE_BELOW
        rewritten.append(contents.replace_content(message, text) if is_moved else message)
    if moved:
        rewritten.append(contents.make_message("user", json.join_array(moved)))
    return tuple(rewritten)


def _pictures(message: Message) -> Iterator[tuple[int, bytes]]:
    """Yield the pictures among the parts of a content, with their positions."""
    if _PICTURE not in message.source:
        return
    content = contents.members_of(message).get("content", b"")
    if content.startswith(b"["):
        for number, part in enumerate(json.split_array(content)):
            if json.split_object(part).get("type") == _PICTURE:
                yield number, part
