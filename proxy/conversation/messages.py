"""One message of the history: typed attributes, and the client's bytes."""

from typing import Literal, TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.parts import Part, read_parts
from proxy.conversation.tools import ToolCall

# Instructions, a prompt of the user, tool calls, the result of a call, or an answer of the model.
MessageType: TypeAlias = Literal["system", "prompt", "calls", "result", "answer"]

_TYPES: dict[str, MessageType] = {
    "user": "prompt",
    "tool": "result",
    "function": "result",
    "assistant": "answer",
}


class Message(msgspec.Struct, frozen=True):
    """A message of the conversation.

    `text` has the texts of the content, joined with line ends. `source` is the client's JSON
    object. It is sent unchanged to chat-completions engines, so that they can reuse their prompt
    cache. `failed` says whether the tool of a result failed; None if the client did not send this.
    """

    role: str
    text: str
    source: bytes
    calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    failed: bool | None = None

    @property
    def type(self) -> MessageType:
        return "calls" if self.calls else _TYPES.get(self.role, "system")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the content and the reasoning; parsed at each access."""
        # Not cached: an encoder reads the parts at most twice, and cached parts would occupy memory
        # as long as the caches hold the message (decision 0031).
        return tuple(read_parts(self.source))

    @property
    def name(self) -> str:
        """The name of a result's tool, or of another message's author; "" if there is no `name`."""
        name = json.parse(json.split_object(self.source).get("name", b"null"))
        return name if isinstance(name, str) else ""


Messages: TypeAlias = tuple[Message, ...]


def user_message(text: str) -> Message:
    return Message("user", text, json.dump({"role": "user", "content": text}))


def tool_result(call_id: str, text: str, *, failed: bool | None = None) -> Message:
    source = json.dump({"role": "tool", "tool_call_id": call_id, "content": text})
    return Message("tool", text, source, tool_call_id=call_id, failed=failed)


def call_object(call: ToolCall) -> JsonObject:
    """Return a call as an element of `tool_calls`."""
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def assistant_message(
    text: str, calls: tuple[ToolCall, ...] = (), *, reasoning: str = ""
) -> Message:
    source: JsonObject = {"role": "assistant", "content": text}
    if reasoning:
        source["reasoning_content"] = reasoning
    if calls:
        source["tool_calls"] = [call_object(call) for call in calls]
    return Message("assistant", text, json.dump(source), calls)
