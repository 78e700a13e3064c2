"""What a conversation tells of the tools that were run in it: the only memory that guardrails have.

Clients send the whole history with every request, so nothing needs to be kept between requests.
"""

from collections.abc import Sequence

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message

_FAILURE_WORDS = ("error", "[error", "<error", "exception", "traceback", "failed")
_FAILURE_KEYS = ("isError", "is_error")


class CompletedCall(msgspec.Struct, frozen=True):
    """A tool call that was run; `arguments` is None where the history holds no object."""

    name: str
    arguments: JsonObject | None
    result: str
    has_failed: bool


def completed_calls(messages: Sequence[Message]) -> tuple[CompletedCall, ...]:
    """List the calls that have a result, in the order of the results."""
    completed: list[CompletedCall] = []
    waiting: dict[str, tuple[str, JsonObject | None]] = {}
    for message in messages:
        for call in message.calls:
            waiting[call.id] = (call.name, object_of(call.arguments))
        found = waiting.pop(message.tool_call_id or "", None)
        if message.role == "tool" and found is not None:
            name, arguments = found
            failed = has_failed(message.text)
            completed.append(CompletedCall(name, arguments, message.text, failed))
    return tuple(completed)


def rounds_since_user(messages: Sequence[Message]) -> int:
    """Count the replies with tool calls since the user spoke last."""
    rounds = 0
    for message in messages:
        rounds = 0 if message.role == "user" else rounds + bool(message.calls)
    return rounds


def object_of(arguments: str) -> JsonObject | None:
    """Read the arguments of a call in the history; nothing stands for no arguments."""
    try:
        value: JsonValue = json.parse(arguments) if arguments.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def has_failed(result: str) -> bool:
    """Tell whether a result reports a failure, in the ways in which tools commonly do."""
    text = result.lstrip()
    if not text.startswith("{"):
        return text.casefold().startswith(_FAILURE_WORDS)
    report = object_of(text)
    if report is None:
        return False
    if any(report.get(key) is True for key in _FAILURE_KEYS):
        return True
    return bool(report.get("error")) or report.get("status") == "error"
