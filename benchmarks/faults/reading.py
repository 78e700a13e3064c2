"""Reads a response strictly into a `Received`. Pure functions that never raise.

The response must have everything that clients rely on: the role in the first chunk and in no other,
the same `id` in all chunks, complete calls with distinct ids, no event after the end or after an
error, and `[DONE]` only if there was a finish reason.
"""

from typing import NoReturn

from benchmarks.faults.demands import Call, Received
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

_REPORT = "x-temper "
_ENVELOPE = frozenset({"message", "type", "param", "code"})
_IDENTITY = ("id", "created", "model", "system_fingerprint")


class Malformed(ValueError):
    """A response that violates the protocol."""


def read_body(status: int, body: bytes, report: dict[str, str]) -> Received:
    """Read a response body; `report` are the values of the `x-temper-` headers."""
    received = Received(status, report=report)
    try:
        document = _object(json.parse(body), "the body")
        if "error" in document or status != 200:
            received.error = _error(document)
            if status < 400:
                _refuse(f"an error under the status {status}")
        else:
            _read_completion(received, document)
    except ValueError as error:
        received.problem = f"status {status}, {_with_end(error, body)}"
    return received


def read_stream(body: bytes) -> Received:
    """Read a finished stream."""
    received = Received(200, is_stream=True)
    stream = _Stream(received)
    try:
        *events, incomplete_event = body.decode().split("\n\n")
        if incomplete_event:
            _refuse(f"half an event: {incomplete_event[:200]!r}")
        for event in events:
            stream.read(event)
    except ValueError as error:
        received.problem = _with_end(error, body)
    received.text, received.thoughts = "".join(stream.text_parts), "".join(stream.thought_parts)
    return received


def _with_end(error: ValueError, body: bytes) -> str:
    return f"{error} (the end: {body[-200:]!r})"


class _Stream:
    def __init__(self, received: Received) -> None:
        self.text_parts: list[str] = []
        self.thought_parts: list[str] = []
        self._received = received
        self._identity: list[JsonValue] = []
        self._calls: list[JsonObject] = []
        self._ids: set[str] = set()

    def read(self, event: str) -> None:
        """Read one event; raises Malformed."""
        received = self._received
        if received.is_done or received.error is not None:
            _refuse(f"something followed the end: {event[:200]}")
        if event.startswith(f": {_REPORT}"):
            facts = event.removeprefix(f": {_REPORT}").split("; ")
            received.report = dict(_pair(fact) for fact in facts)
        elif event == "data: [DONE]":
            if not received.reason:
                _refuse("[DONE] without a finish reason")
            received.is_done = True
        elif event.startswith("data: "):
            self._read_chunk(_object(json.parse(event.removeprefix("data: ")), "a chunk"))
        elif not event.startswith(": "):
            _refuse(f"no event: {event[:200]!r}")

    def _read_chunk(self, chunk: JsonObject) -> None:
        if "error" in chunk:
            self._received.error = _error(chunk)
            return
        is_first = not self._identity
        identity = _identity(chunk, "chat.completion.chunk")
        if not is_first and identity != self._identity:
            _refuse("two identities")
        self._identity = identity
        for choice in _list(chunk.get("choices"), "choices"):
            self._read_choice(_object(choice, "a choice"), is_first=is_first)

    def _read_choice(self, choice: JsonObject, *, is_first: bool) -> None:
        received = self._received
        if received.reason or choice.get("index") != 0:
            _refuse("a choice after the end, or with another index than 0")
        delta = _object(choice.get("delta"), "a delta")
        if ("role" in delta) is not is_first:
            _refuse("the role is missing in the first chunk, or repeated")
        self.text_parts.append(_text(delta.get("content")))
        self.thought_parts.append(_text(delta.get("reasoning_content")))
        for call in _list(delta.get("tool_calls", []), "tool_calls"):
            self._read_call(_object(call, "a call"))
        received.reason = _text(choice.get("finish_reason"))
        if received.reason not in ("", "length"):  # clients do not run calls of a cut-off reply
            received.calls = [_call(call) for call in self._calls]

    def _read_call(self, delta: JsonObject) -> None:
        """Read a delta of a call; the first delta has the id and the name."""
        function = _object(delta.get("function"), "a function")
        is_first = "name" in function
        if delta.get("index") != len(self._calls) - (not is_first):
            _refuse("the deltas of the calls are not in order")
        if is_first:
            _identify(delta, self._ids)
            self._calls.append({**delta, "function": {**function}})
            return
        call = _object(self._calls[-1]["function"], "a function")
        call["arguments"] = _text(call.get("arguments")) + _text(function.get("arguments"))


def _read_completion(received: Received, document: JsonObject) -> None:
    _identity(document, "chat.completion")
    choices = _list(document.get("choices"), "choices")
    choice = _object(choices[0] if len(choices) == 1 else None, "the only choice")
    message = _object(choice.get("message"), "the message")
    if message.get("role") != "assistant":
        _refuse("a message without its role")
    received.text = _text(message.get("content"))
    received.thoughts = _text(message.get("reasoning_content"))
    ids: set[str] = set()
    calls = _list(message.get("tool_calls", []), "tool_calls")
    for call in calls:
        _identify(_object(call, "a call"), ids)
    received.calls = [_call(_object(call, "a call")) for call in calls]
    received.reason = _text(choice.get("finish_reason"))
    _object(document.get("usage"), "the usage")
    if not received.reason:
        _refuse("no finish reason")
    received.is_done = True


def _identify(call: JsonObject, used: set[str]) -> None:
    call_id = _text(call.get("id"))
    if not call_id or call_id in used or call.get("type") != "function":
        _refuse(f"a call without an id of its own, or a type: {call}")
    used.add(call_id)


def _call(call: JsonObject) -> Call:
    """Read a complete call, whose arguments must be a JSON object."""
    function = _object(call.get("function"), "a function")
    arguments = json.parse(_text(function.get("arguments")))
    return Call(_text(function.get("name")), _object(arguments, "the arguments"))


def _error(document: JsonObject) -> JsonObject:
    error = _object(document.get("error"), "the error")
    if not error.keys() >= _ENVELOPE or not error["message"]:
        _refuse(f"an error in another envelope: {error}")
    return error


def _identity(document: JsonObject, kind: str) -> list[JsonValue]:
    if document.get("object") != kind or not document.get("id"):
        _refuse(f"no {kind}: {str(document)[:200]}")
    return [document.get(name) for name in _IDENTITY]


def _pair(fact: str) -> tuple[str, str]:
    name, _, value = fact.partition("=")
    return name, value


def _object(value: JsonValue, what: str) -> JsonObject:
    return value if isinstance(value, dict) else _refuse(f"{what} is no object: {value!r:.200}")


def _list(value: JsonValue, what: str) -> list[JsonValue]:
    return value if isinstance(value, list) else _refuse(f"{what} is no list: {value!r:.200}")


def _text(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _refuse(f"no text: {value!r:.200}")


def _refuse(problem: str) -> NoReturn:
    raise Malformed(problem)
