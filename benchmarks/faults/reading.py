"""Reads a response strictly into a `Seen`. Pure functions that never raise.

The reader insists on everything that clients rely on: the role once and first, one identity,
complete calls with distinct ids, no event after an end or an error, and `[DONE]` only after an end.
"""

from typing import NoReturn

from benchmarks.faults.demands import Call, Seen
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

_REPORT = "x-temper "
_ENVELOPE = frozenset({"message", "type", "param", "code"})
_IDENTITY = ("id", "created", "model", "system_fingerprint")


class Malformed(ValueError):
    """A response that no client has to understand."""


def read_body(status: int, body: bytes, report: dict[str, str]) -> Seen:
    """Read a response body; `report` are the values of the `x-temper-` headers."""
    seen = Seen(status, report=report)
    try:
        document = _object(json.parse(body), "the body")
        if "error" in document or status != 200:
            seen.error = _error(document)
            if status < 400:
                _refuse(f"an error under the status {status}")
        else:
            _read_completion(seen, document)
    except ValueError as error:
        seen.problem = f"status {status}, {_told(error, body)}"
    return seen


def read_stream(body: bytes) -> Seen:
    """Read a stream that has ended, well or not."""
    seen = Seen(200, is_stream=True)
    stream = _Stream(seen)
    try:
        *events, rest = body.decode().split("\n\n")
        if rest:
            _refuse(f"half an event: {rest[:200]!r}")
        for event in events:
            stream.read(event)
    except ValueError as error:
        seen.problem = _told(error, body)
    seen.text, seen.thoughts = "".join(stream.text_parts), "".join(stream.thought_parts)
    return seen


def _told(error: ValueError, body: bytes) -> str:
    return f"{error} (the end: {body[-200:]!r})"


class _Stream:
    def __init__(self, seen: Seen) -> None:
        self.text_parts: list[str] = []
        self.thought_parts: list[str] = []
        self._seen = seen
        self._identity: list[JsonValue] = []
        self._calls: list[JsonObject] = []
        self._ids: set[str] = set()

    def read(self, event: str) -> None:
        """Read one event; raises Malformed."""
        seen = self._seen
        if seen.is_done or seen.error is not None:
            _refuse(f"something followed the end: {event[:200]}")
        if event.startswith(f": {_REPORT}"):
            facts = event.removeprefix(f": {_REPORT}").split("; ")
            seen.report = dict(_pair(fact) for fact in facts)
        elif event == "data: [DONE]":
            if not seen.reason:
                _refuse("[DONE] without a finish reason")
            seen.is_done = True
        elif event.startswith("data: "):
            self._read_chunk(_object(json.parse(event.removeprefix("data: ")), "a chunk"))
        elif not event.startswith(": "):
            _refuse(f"no event: {event[:200]!r}")

    def _read_chunk(self, chunk: JsonObject) -> None:
        if "error" in chunk:
            self._seen.error = _error(chunk)
            return
        is_first = not self._identity
        identity = _identity(chunk, "chat.completion.chunk")
        if not is_first and identity != self._identity:
            _refuse("two identities")
        self._identity = identity
        for choice in _list(chunk.get("choices"), "choices"):
            self._read_choice(_object(choice, "a choice"), is_first=is_first)

    def _read_choice(self, choice: JsonObject, *, is_first: bool) -> None:
        seen = self._seen
        if seen.reason or choice.get("index") != 0:
            _refuse("a choice behind the end, or another one")
        delta = _object(choice.get("delta"), "a delta")
        if ("role" in delta) is not is_first:
            _refuse("the role is not first and once")
        self.text_parts.append(_text(delta.get("content")))
        self.thought_parts.append(_text(delta.get("reasoning_content")))
        for call in _list(delta.get("tool_calls", []), "tool_calls"):
            self._read_call(_object(call, "a call"))
        seen.reason = _text(choice.get("finish_reason"))
        if seen.reason not in ("", "length"):  # clients do not run calls of a cut-off reply
            seen.calls = [_call(call) for call in self._calls]

    def _read_call(self, piece: JsonObject) -> None:
        """Read a piece of a call; the first piece has the id and the name."""
        function = _object(piece.get("function"), "a function")
        is_first = "name" in function
        if piece.get("index") != len(self._calls) - (not is_first):
            _refuse("a call out of its turn")
        if is_first:
            _identify(piece, self._ids)
            self._calls.append({**piece, "function": {**function}})
            return
        whole = _object(self._calls[-1]["function"], "a function")
        whole["arguments"] = _text(whole.get("arguments")) + _text(function.get("arguments"))


def _read_completion(seen: Seen, document: JsonObject) -> None:
    _identity(document, "chat.completion")
    choices = _list(document.get("choices"), "choices")
    choice = _object(choices[0] if len(choices) == 1 else None, "the only choice")
    message = _object(choice.get("message"), "the message")
    if message.get("role") != "assistant":
        _refuse("a message without its role")
    seen.text = _text(message.get("content"))
    seen.thoughts = _text(message.get("reasoning_content"))
    ids: set[str] = set()
    calls = _list(message.get("tool_calls", []), "tool_calls")
    for call in calls:
        _identify(_object(call, "a call"), ids)
    seen.calls = [_call(_object(call, "a call")) for call in calls]
    seen.reason = _text(choice.get("finish_reason"))
    _object(document.get("usage"), "the usage")
    if not seen.reason:
        _refuse("no finish reason")
    seen.is_done = True


def _identify(call: JsonObject, taken: set[str]) -> None:
    call_id = _text(call.get("id"))
    if not call_id or call_id in taken or call.get("type") != "function":
        _refuse(f"a call without an id of its own, or a type: {call}")
    taken.add(call_id)


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
