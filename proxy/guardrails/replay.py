"""Earlier thoughts of the model: which of them go back to it with the history.

Some templates want them, some models are confused by them, and clients send them or not.
"""

from proxy.conversation import json
from proxy.conversation.messages import Message, Messages
from proxy.guardrails.contents import members_of, replace_members, string_of
from proxy.guardrails.model_quirks import Replay
from proxy.guardrails.reasoning import split_thoughts

_MEMBERS = ("reasoning_content", "reasoning", "thinking")
_PART_KINDS = (b'"thinking"', b'"reasoning"')
# Quotes within JSON strings are escaped, so these are members, or kinds of parts.
_SIGNS = tuple(f'"{name}"'.encode() for name in _MEMBERS)


def replay_thoughts(messages: Messages, replay: Replay) -> Messages:
    """Take the thoughts out of the messages of the assistant, as far as the policy wants it.

    `LAST` keeps those behind the last message of the user. Messages without thoughts stay the same.
    """
    if replay == "full":
        return messages
    spoken = [place for place, message in enumerate(messages) if message.role == "user"]
    end = len(messages) if replay == "none" else max(spoken, default=0)
    return tuple(
        _drop_thoughts(message) if place < end and message.role == "assistant" else message
        for place, message in enumerate(messages)
    )


def _drop_thoughts(message: Message) -> Message:
    _, said = split_thoughts(message.text)
    if said == message.text and not any(sign in message.source for sign in _SIGNS):
        return message
    members = members_of(message)
    kept = {
        name: value for name, value in members.items() if name not in _MEMBERS or value == b"null"
    }
    if "content" in kept:
        kept["content"] = _drop_block(kept["content"])
    return message if kept == members else replace_members(message, kept)


def _drop_block(content: bytes) -> bytes:
    if not content.startswith(b"["):
        return _keep_said(content)
    parts = json.split_array(content)
    kept = [part for part in parts if json.split_object(part).get("type") not in _PART_KINDS]
    first = json.split_object(kept[0]) if kept else {}
    if "text" in first and (said := _keep_said(first["text"])) != first["text"]:
        kept[0] = json.join_object({**first, "text": said})
    return content if kept == parts else json.join_array(kept)


def _keep_said(value: bytes) -> bytes:
    text = string_of(value)
    _, said = split_thoughts(text)
    return value if said == text else json.dump(said)
