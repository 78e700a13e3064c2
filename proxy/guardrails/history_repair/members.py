"""What a single message lacks or has wrong: arguments, the type of a call, content.

llama-server answers 500 to every later turn once a history holds arguments that are not JSON, so
one bad call of the past would end a conversation; and 400 where a content is missing.
"""

import re

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.content import members_of, rewritten

# Within JSON strings quotes are escaped, so these are found in the structure of a message only.
_CONTENT = re.compile(rb'"content"\s*:\s*["\[]')
_TYPE = re.compile(rb'"type"\s*:\s*"function"')
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*"')


def heal_members(message: Message, facts: list[Fact]) -> Message:
    """Mend a message by itself, whatever stands around it."""
    if message.calls:
        return message if _has_plain_calls(message) else _heal_calls(message, facts)
    if message.text or _CONTENT.search(message.source):
        return message
    members = members_of(message)
    content = members.get("content")
    if message.role == "assistant" and (content is not None or "tool_calls" in members):
        return _heal_calls(message, facts)
    facts.append(Healed("content"))
    return rewritten(message, {**members, "content": b'""'})


def _has_plain_calls(message: Message) -> bool:
    """Return whether every call plainly has its type and arguments that are JSON text."""
    count = len(message.calls)
    return (
        len(_TYPE.findall(message.source)) == count
        and len(_ARGUMENTS.findall(message.source)) == count
        and all(_heal_text(call.arguments) == call.arguments for call in message.calls)
    )


def _heal_calls(message: Message, facts: list[Fact]) -> Message:
    members = members_of(message)
    calls = json.parse(members.get("tool_calls", b"null"))
    if not isinstance(calls, list):
        return message
    healed = [_heal_call(call, facts) for call in calls]
    if healed == calls:
        return message
    typed = tuple(replace(call, arguments=_heal_text(call.arguments)) for call in message.calls)
    mended = {**members, "tool_calls": json.dump(healed)}
    return rewritten(replace(message, calls=typed), mended)


def _heal_call(call: JsonValue, facts: list[Fact]) -> JsonValue:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    assert isinstance(function, dict)  # noqa: S101 - checked one line above
    written = function.get("arguments")
    arguments = _heal_arguments(written)
    if arguments == written and "type" in call:
        return call
    facts.append(Healed("arguments" if arguments != written else "type"))
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


def _heal_arguments(written: JsonValue) -> JsonValue:
    if written is None or isinstance(written, str):
        return _heal_text(written or "")
    return written


def _heal_text(written: str) -> str:
    """Make arguments JSON: nothing means none, and what cannot be parsed is kept as a string."""
    if not written.strip():
        return "{}"
    try:
        json.parse(written)
    except ValueError:
        kept: JsonObject = {"unparsable": written}
        return json.dump_text(kept)
    return written
