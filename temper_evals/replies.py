"""Reads a chat completion, streamed or not, and returns it as a message."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.worlds import objects_in


class ReplyFailed(Exception):
    """The request failed; `str(error)` is the reason."""


@dataclass(slots=True)
class ReadCall:
    """A tool call, assembled from deltas."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ReadMessage:
    """A reply, assembled from events; `usage` is the usage that the server reports."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, ReadCall] = field(default_factory=dict)
    reason: str = ""
    usage: JsonObject = field(default_factory=dict)

    def take(self, event: JsonObject) -> None:
        """Add an event of a stream, or a whole completion; raises ReplyFailed for an error."""
        if event.get("error"):
            raise ReplyFailed(problem_of(event))
        if isinstance(usage := event.get("usage"), dict):
            self.usage = usage
        for choice in objects_in(event.get("choices")):
            delta = choice.get("delta", choice.get("message"))
            self._read(delta if isinstance(delta, dict) else {})
            self.reason = str(choice.get("finish_reason") or self.reason)

    def _read(self, delta: JsonObject) -> None:
        content = delta.get("content")
        if isinstance(content, str):
            self.text.append(content)
        for position, piece in enumerate(objects_in(delta.get("tool_calls"))):
            index = piece.get("index")
            call = self.calls.setdefault(index if isinstance(index, int) else position, ReadCall())
            function = piece.get("function")
            function = function if isinstance(function, dict) else {}
            call.id = str(piece.get("id") or call.id)
            call.name += str(function.get("name") or "")
            call.arguments.append(str(function.get("arguments") or ""))

    @property
    def has_text(self) -> bool:
        return any(self.text)

    def message(self) -> JsonObject:
        """Return the reply as a message for the history."""
        message: JsonObject = {"role": "assistant", "content": "".join(self.text) or None}
        calls: list[JsonValue] = [
            {
                "id": call.id or f"call_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for index, call in sorted(self.calls.items())
        ]
        if calls:
            message["tool_calls"] = calls
        return message


def events_in(lines: Iterable[str]) -> Iterable[JsonObject]:
    """Yield the JSON events of a stream; comments, `[DONE]` and empty lines are skipped."""
    for line in lines:
        if line.startswith("data:") and (text := line[5:].strip()) != "[DONE]":
            try:
                event = json.parse(text)
            except ValueError as error:
                raise ReplyFailed(f"an event is not JSON: {text[:80]}") from error
            if isinstance(event, dict):
                yield event


def problem_of(body: JsonObject) -> str:
    """Return the code and message of an error response."""
    error = body.get("error")
    if isinstance(error, dict):
        kind = error.get("code") or error.get("type") or ""
        return f"{kind}: {error.get('message', '')}"[:300]
    return str(error)[:300]


def has_content(event: JsonObject) -> bool:
    """Return whether an event has text, reasoning or a call."""
    deltas = [choice.get("delta") for choice in objects_in(event.get("choices"))]
    names = ("content", "reasoning_content", "reasoning", "tool_calls")
    return any(isinstance(delta, dict) and any(map(delta.get, names)) for delta in deltas)
