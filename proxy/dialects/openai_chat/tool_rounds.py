"""Messages of tool rounds that Temper ran, in answers and in the client's history.

A client that sends `{"temper": {"tool_rounds": true}}` gets these messages in the member
`tool_rounds` of the answer's message. It sends this message back with its next request:

    {"role": "assistant", "content": "Noon.", "tool_rounds": [{"role": "assistant", ...}, ...]}

Temper inserts the messages of the rounds before this message. So the prompt is the same as before.
"""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.replies import RoundMessages
from proxy.errors import InvalidRequest

MEMBER = "tool_rounds"
_FAILED = "failed"


class Expanded(NamedTuple):
    """A body in which the rounds have become messages.

    `failed` says for each result whether the tool failed, by the index of the result's message.
    """

    body: bytes
    failed: dict[int, bool]


def describe_rounds(
    messages: tuple[Message, ...], servers: Mapping[str, str] | None = None
) -> RoundMessages:
    return RoundMessages(tuple(map(_describe, messages)), servers or {})


def expand(body: bytes) -> Expanded:
    """Insert the rounds of a history before the messages that contain them.

    Raises InvalidRequest for rounds that are not messages.
    """
    members = json.split_object(body)
    messages: list[bytes] = []
    failed: dict[int, bool] = {}
    for index, source in enumerate(json.split_array(members["messages"])):
        # `failed` is not a member of chat completions, so it must not reach an engine
        for message in _unfold(source, f"messages.{index}.{MEMBER}"):
            flag = message.pop(_FAILED, b"") if message.get("role") == b'"tool"' else b""
            if flag in (b"true", b"false"):
                failed[len(messages)] = flag == b"true"
            messages.append(json.join_object(message) if message else source)
    members["messages"] = json.join_array(messages)
    return Expanded(json.join_object(members), failed)


def _unfold(source: bytes, param: str) -> list[dict[str, bytes]]:
    """Return the messages of the rounds in a message, followed by the message itself.

    Returns [{}] for a message without rounds; the caller then leaves the message unchanged.
    """
    try:
        members = json.split_object(source)
    except ValueError:  # not an object; later, the validation of the request reports this
        return [{}]
    if MEMBER not in members:
        return [{}]
    rounds = members.pop(MEMBER)
    try:
        messages = [json.split_object(message) for message in json.split_array(rounds)]
    except ValueError:
        raise InvalidRequest(
            "Must be the list of messages from the response, unchanged.", param
        ) from None
    return [*messages, members]


def _describe(message: Message) -> JsonObject:
    source_object = json.parse(message.source)
    assert isinstance(source_object, dict)  # noqa: S101 - Temper has written the message
    return source_object if message.failed is None else {**source_object, _FAILED: message.failed}
