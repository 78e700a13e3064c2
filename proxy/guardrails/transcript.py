"""Reads the executed calls from the history of a conversation.

Clients send the complete history with every request, so the guardrails store nothing between
requests. `list_completed_calls` returns the calls and their results. `find_loop` detects a model
that repeats a call with the same result. Repeated calls are not a loop if there is a user message
between them, if their results differ, or if the result reports work in progress. Many rounds of
calls are not a loop as long as they return new results (`is_stuck`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from proxy.conversation import json
from proxy.conversation.failures import has_failed, reports_failure
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, Messages
from proxy.conversation.parts import Attachment, Image
from proxy.conversation.reminders import has_only_reminders, without_reminders
from proxy.conversation.tools import ToolCall

_PENDING = re.compile(
    r"\b(?:pending|running|queued|waiting|processing|building|starting|loading|in[ _-]progress"
    r"|not (?:yet )?(?:ready|done|finished|complete|available)|still|retry|try again|unfinished)\b"
    r"|\b\d{1,2} ?%",
    re.IGNORECASE,
)
LONGEST_STATUS = 500  # characters; a longer result contains more than a status


class CompletedCall(msgspec.Struct, frozen=True):
    """A tool call with its result; `arguments` is None if they are not a JSON object.

    `turn` is the number of user messages before the call.
    """

    name: str
    arguments: JsonObject | None
    result: str
    has_failed: bool
    turn: int = 0


class Rounds(msgspec.Struct, frozen=True):
    """The numbers of rounds (replies with tool calls) since the last user message.

    `made` counts all rounds. `idle` counts the consecutive latest rounds whose calls and results
    all repeat earlier calls and results.
    """

    made: int = 0
    idle: int = 0


def begins_turn(message: Message) -> bool:
    """Return whether a message is from the user and has content besides the client's reminders."""
    if message.role != "user":
        return False
    if message.text.strip() and not has_only_reminders(message.text):
        return True
    return any(isinstance(part, Image | Attachment) for part in message.parts)


def list_completed_calls(messages: Sequence[Message]) -> tuple[CompletedCall, ...]:
    completed: list[CompletedCall] = []
    waiting: dict[str, tuple[str, JsonObject | None]] = {}
    turn = 0
    for message in messages:
        turn += begins_turn(message)
        for call in message.calls:
            waiting[call.id] = (call.name, parse_arguments(call.arguments))
        call_id = message.tool_call_id
        if call_id and (pending := waiting.pop(call_id, None)) and message.role == "tool":
            name, arguments = pending
            result = without_reminders(message.text)
            completed.append(CompletedCall(name, arguments, result, reports_failure(message), turn))
    return tuple(completed)


def since_user(messages: Sequence[Message]) -> Messages:
    """Return the messages after the last user message."""
    since = [*takewhile(lambda message: not begins_turn(message), reversed(messages))]
    return tuple(reversed(since))


def rounds_since_user(messages: Sequence[Message]) -> Rounds:
    made = idle = 0
    seen: set[tuple[str, str, str]] = set()
    waiting: dict[str, ToolCall] = {}
    for message in since_user(messages):
        if message.calls:
            made, idle = made + 1, idle + 1
            waiting = {call.id: call for call in message.calls}
        elif call := waiting.pop(message.tool_call_id or "", None):
            result = without_reminders(message.text)
            execution = (call.name, call.arguments, result)
            if execution not in seen or is_pending(result):
                idle = 0
            seen.add(execution)
    return Rounds(made, idle)


def count_failed_rounds(messages: Sequence[Message]) -> int:
    """Count the consecutive latest rounds in which every call failed.

    `nudges.warn_of_failures` reports them to the model. `find_loop` does not detect them unless the
    same call is repeated.
    """
    count = 0
    results: list[bool] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.append(has_failed(message.text))
        elif message.calls and results and all(results):
            count += 1
            results.clear()
        elif message.role != "user" or begins_turn(message):
            break
    return count


def is_pending(result: str) -> bool:
    """Return whether a result reports work in progress, so that a repeated call makes sense."""
    return len(result) <= LONGEST_STATUS and _PENDING.search(result) is not None


def read_error(result: str) -> str:
    """Return the text of an error; the text of `{"error": "not found"}` is only "not found"."""
    report = parse_arguments(result) or {}
    error = report.get("error") or result
    return error if isinstance(error, str) else json.dump_text(error)


def parse_arguments(arguments: str) -> JsonObject | None:
    """Parse the arguments of a call in the history; "" means no arguments."""
    try:
        value: JsonValue = json.parse(arguments) if arguments.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


MOST_REPEATS = 3
MOST_ROUNDS = 50  # coding agents need more, so a run is stopped only if its last rounds are idle
MOST_FAILURES = 3
_MOST_IDLE = 5  # idle rounds after which a run is stopped


@dataclass(frozen=True, slots=True)
class Loop:
    """A call that was made `times` times consecutively, each time with the same result."""

    name: str
    arguments: JsonObject
    times: int


def find_loop(completed: Sequence[CompletedCall], limit: int = MOST_REPEATS) -> Loop | None:
    """Return the last call of a conversation if it was made at least `limit` times in a row."""
    if not completed:
        return None
    last = completed[-1]
    times = len([*takewhile(last.__eq__, reversed(completed))])
    if times < limit or last.arguments is None or is_pending(last.result):
        return None
    return Loop(last.name, last.arguments, times)


def is_stuck(rounds: Rounds, most: int = MOST_ROUNDS) -> bool:
    """Return whether there were at least `most` rounds and the latest rounds were idle."""
    return rounds.made >= most and rounds.idle >= max(1, min(_MOST_IDLE, most // 10))
