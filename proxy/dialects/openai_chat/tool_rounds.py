"""Rounds of tools that ran here, in a client's history: told with an answer, and sent back with it.

A client that asks for `{"temper": {"tool_rounds": true}}` gets the messages of the rounds as the
member `tool_rounds` of the answer's message. In a history they stand before that message again, so
the prompt is the one that it was.
"""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.replies import RoundMessages
from proxy.errors import InvalidRequest

MEMBER = "tool_rounds"
_FAILED = "failed"


class Expanded(NamedTuple):
    """A body in which rounds stand as messages; `failed` tells of results, by their places."""

    body: bytes
    failed: dict[int, bool]


def describe_rounds(
    messages: tuple[Message, ...], servers: Mapping[str, str] | None = None
) -> RoundMessages:
    return RoundMessages(tuple(map(_describe, messages)), servers or {})


def has_rounds(messages: JsonValue) -> bool:
    known = messages if isinstance(messages, list) else []
    return bool([members for members in known if isinstance(members, dict) and MEMBER in members])


def expand(body: bytes) -> Expanded:
    """Put the rounds of a history where they belong.

    Raises InvalidRequest for rounds that are no messages.
    """
    members = json.split_object(body)
    messages: list[bytes] = []
    failed: dict[int, bool] = {}
    for index, source in enumerate(json.split_array(members["messages"])):
        for members in _unfold(source, f"messages.{index}.{MEMBER}"):
            flag = members.pop(_FAILED, b"") if members.get("role") == b'"tool"' else b""
            if flag in (b"true", b"false"):
                failed[len(messages)] = flag == b"true"
            messages.append(json.join_object(members) if members else source)
    members["messages"] = json.join_array(messages)
    return Expanded(json.join_object(members), failed)


def _unfold(source: bytes, param: str) -> list[dict[str, bytes]]:
    """Return a message with its rounds before it; nothing of it where it has none."""
    try:
        members = json.split_object(source)
    except ValueError:
        return [{}]
    if MEMBER not in members:
        return [{}]
    rounds = members.pop(MEMBER)
    try:
        messages = [json.split_object(members) for members in json.split_array(rounds)]
    except ValueError:
        raise InvalidRequest("Expected messages, as they came with the answer.", param) from None
    return [*messages, members]


def _describe(message: Message) -> JsonObject:
    source_object = json.parse(message.source)
    assert isinstance(source_object, dict)  # noqa: S101 - it is a message of ours
    return source_object if message.failed is None else {**source_object, _FAILED: message.failed}
