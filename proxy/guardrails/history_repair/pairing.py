"""Pairs the calls of a history with their results.

`pair_calls` gives each result the id of its call, and moves late results to their call. It writes a
note for a call without a result, and for a result without a call. A note depends only on the
messages before it, so the prompt prefix stays the same from request to request.

    assistant: calls a (id "1"), b (id "")     assistant: calls a (id "1"), b (id "call_0_1")
    tool: {"name": "b", ...}                   tool: {"tool_call_id": "call_0_1", ...}
    user: ...                                  tool: {"tool_call_id": "1", "Error: no result ..."}
                                               user: ...
"""

from collections import deque
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from proxy.conversation import json, roles
from proxy.conversation.messages import Message, Messages, tool_result
from proxy.facts import Fact, Healed
from proxy.guardrails.contents import convert_to_user, members_of, replace_members, string_of

# The note begins like the result of a failed call, so that neither the model nor a workflow counts
# the call as completed.
UNANSWERED = "Error: no result. This call was never answered."


def introduce_orphan(name: str) -> str:
    """Write the heading of a result without a call; `name` is its tool, "" if unknown."""
    origin = f" of {name}" if name else ""
    return f"Result{origin}, from a tool call that is no longer part of this conversation:"


class _HistoryCall(msgspec.Struct):
    """A call in the history; the id is generated if the client sent none."""

    id: str
    name: str
    is_answered: bool = False


class _CallRound(msgspec.Struct):
    """A message with calls, and the results that directly follow it."""

    message: Message
    calls: list[_HistoryCall]
    results: list[Message] = msgspec.field(default_factory=list)
    orphans: list[Message] = msgspec.field(default_factory=list)


class _WaitingCalls:
    """The calls that wait for a result, in queues by id and by name."""

    def __init__(self) -> None:
        self._by_id: dict[str, deque[_HistoryCall]] = {}
        self._by_name: dict[str, deque[_HistoryCall]] = {}
        self._with_generated_id: deque[_HistoryCall] = deque()

    def begin(self, calls: list[_HistoryCall], client_ids: frozenset[str]) -> None:
        """Add the calls of a new reply. Earlier calls can then be found only by their ids."""
        self._by_name = {"": deque(calls)}
        self._with_generated_id = deque()
        # A result belongs to the latest call with its id, so earlier calls with the same id are
        # forgotten.
        self._by_id |= {call.id: deque() for call in calls}
        for call in calls:
            self._by_id[call.id].append(call)
            if call.id not in client_ids:
                self._with_generated_id.append(call)
            if call.name:
                self._by_name.setdefault(call.name, deque()).append(call)

    def call_for(self, result: Message, name: str) -> _HistoryCall | None:
        # An unknown id can only belong to a call that the client sent without an id.
        if result.tool_call_id:
            return _next(self._by_id.get(result.tool_call_id)) or _next(self._with_generated_id)
        return _next(self._by_name.get(name))


def _next(queue: deque[_HistoryCall] | None) -> _HistoryCall | None:
    while queue and queue[0].is_answered:
        queue.popleft()
    return queue[0] if queue else None


def _is_paired(messages: Messages) -> bool:
    """Return whether each call is answered once, in order, right after its message."""
    expected_ids: list[str] = []
    for message in messages:
        if message.role in roles.RESULTS:
            if message.role != "tool" or not expected_ids:
                return False
            if message.tool_call_id != expected_ids.pop():
                return False
        elif expected_ids:
            return False
        elif message.calls:
            expected_ids = [call.id for call in reversed(message.calls)]
            if "" in expected_ids:
                return False
    return not expected_ids


def pair_calls(messages: Messages, facts: list[Fact]) -> Messages:
    if _is_paired(messages):  # the usual case; avoids the copies below
        return messages
    entries: list[Message | _CallRound] = []
    waiting = _WaitingCalls()
    latest: _CallRound | None = None
    for position, message in enumerate(messages):
        if message.role in roles.RESULTS:
            result = _heal_result(message, waiting, facts)
            if latest is None:
                entries.append(result)
            else:
                (latest.results if result.role == "tool" else latest.orphans).append(result)
        elif message.role == "assistant" and message.calls:
            latest = _begin_round(position, message, waiting, facts)
            entries.append(latest)
        else:
            latest = None
            entries.append(message)
    return tuple(_flatten(entries, facts))


def _flatten(entries: list[Message | _CallRound], facts: list[Fact]) -> Iterator[Message]:
    for entry in entries:
        if isinstance(entry, Message):
            yield entry
            continue
        yield entry.message
        yield from entry.results
        for call in entry.calls:
            if not call.is_answered:
                facts.append(Healed("unanswered_call"))
                yield tool_result(call.id, UNANSWERED)
        yield from entry.orphans


def _begin_round(
    position: int, message: Message, waiting: _WaitingCalls, facts: list[Fact]
) -> _CallRound:
    client_ids = frozenset(call.id for call in message.calls)
    calls = [
        _HistoryCall(call.id or _make_id(position, number, client_ids), call.name)
        for number, call in enumerate(message.calls)
    ]
    waiting.begin(calls, client_ids)
    if "" in client_ids:
        facts.append(Healed("call_id"))
        message = _with_ids(message, calls)
    return _CallRound(message, calls)


def _make_id(position: int, number: int, used_ids: frozenset[str]) -> str:
    """Generate an id from the position of the call: it stays the same in later requests."""
    generated = f"call_{position}_{number}"
    while generated in used_ids:
        generated += "_"
    return generated


def _with_ids(message: Message, calls: list[_HistoryCall]) -> Message:
    members = members_of(message)
    calls_json = json.split_array(members["tool_calls"])
    for index, (original, call) in enumerate(zip(message.calls, calls, strict=True)):
        if not original.id:
            named = {**json.split_object(calls_json[index]), "id": json.dump(call.id)}
            calls_json[index] = json.join_object(named)
    members["tool_calls"] = json.join_array(calls_json)
    typed = tuple(map(lambda original, call: replace(original, id=call.id), message.calls, calls))
    return replace(message, source=json.join_object(members), calls=typed)


def _heal_result(message: Message, waiting: _WaitingCalls, facts: list[Fact]) -> Message:
    name = "" if message.tool_call_id else _name_in(message)
    call = waiting.call_for(message, name)
    if call is None:  # a trimmed history may lack the call of a result
        facts.append(Healed("orphan_result"))
        return convert_to_user(message, introduce_orphan(name or _name_in(message)))
    call.is_answered = True
    if call.id == message.tool_call_id and message.role == "tool":
        return message
    facts.append(Healed("result_id"))
    members = {**members_of(message), "role": b'"tool"', "tool_call_id": json.dump(call.id)}
    return replace_members(replace(message, role="tool", tool_call_id=call.id), members)


def _name_in(result: Message) -> str:
    return string_of(members_of(result).get("name", b""))
