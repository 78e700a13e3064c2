"""From the chat completions language: the chunks of a backend's reply, and its errors.

Backends are read as leniently as can be without guessing.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.openai_chat.fragments import ArgumentsFragment, Fragment, fragment_in
from proxy.dialects.raw_json import kind

CallEvent: TypeAlias = ToolCallStarted | ToolCallArgumentsDelta


@dataclass(slots=True)
class _Call:
    """A call that is arriving, numbered by us; its arguments are held until it has a name."""

    index: int
    id: str = ""
    name: str = ""
    held: list[str] = field(default_factory=list)

    def add(self, name: str, arguments: str) -> list[CallEvent]:
        """Read a fragment; a name that comes again is the same name again."""
        if self.name:
            return [ToolCallArgumentsDelta(self.index, arguments)] if arguments else []
        self.name = name
        self.held.append(arguments)
        return self.start() if name else []

    def start(self) -> list[CallEvent]:
        """Announce the call, with what was held."""
        started = ToolCallStarted(self.index, self.id or None, self.name)
        held = "".join(self.held)
        return [started, ToolCallArgumentsDelta(self.index, held)] if held else [started]

    def is_other_than(self, name: str) -> bool:
        """Return whether `name`, at the same place and without an id, begins another call."""
        return bool(name and self.name and not self.id and name != self.name)


@dataclass(slots=True)
class CallsInProgress:
    """Numbers the calls of one reply and turns their fragments into events."""

    _calls: list[_Call] = field(default_factory=list)
    _latest: dict[int, _Call] = field(default_factory=dict)
    _by_id: dict[str, _Call] = field(default_factory=dict)

    def add(self, position: int, fragment: JsonObject) -> list[CallEvent]:
        """Read a fragment, the `position`th in its chunk; raises ValueError for nonsense."""
        function = fragment.get("function") or {}
        if not isinstance(function, dict):
            raise ValueError("the function of a tool call is no object")
        name = _string(function.get("name"))
        call = self._find(position, fragment, name)
        return call.add(name, _arguments(function.get("arguments")))

    def go_on(self, index: int, arguments: list[str]) -> list[ToolCallArgumentsDelta] | None:
        """Read more arguments of a call that was announced; None where it takes a closer look."""
        call = self._latest.get(index)
        if call is None or not call.name:
            return None
        place = call.index
        return [ToolCallArgumentsDelta(place, text) for text in arguments if text]

    def finish(self) -> list[CallEvent]:
        """Announce the calls that never got a name, so that they are judged like all others."""
        return [event for call in self._calls if not call.name for event in call.start()]

    def _find(self, position: int, fragment: JsonObject, name: str) -> _Call:
        number = fragment.get("index")
        call_id = _string(fragment.get("id"))
        key = number if isinstance(number, int) else position
        call = self._latest.get(key)
        if call_id and (number is None or (call is not None and call.id not in {"", call_id})):
            # Some backends number no call, or every call 0: then only ids tell them apart.
            call = self._by_id.get(call_id)
        elif call is not None and not call_id and call.is_other_than(name):
            call = None
        if call is None:
            call = _Call(len(self._calls))
            self._calls.append(call)
        self._latest[key] = call
        if call_id:
            call.id = call_id
            self._by_id[call_id] = call
        return call


def _arguments(value: JsonValue) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dump_text(value)


@dataclass(frozen=True, slots=True)
class StreamedError:
    """A backend failed in the middle of its reply; `error` is as `decode_error` returns it."""

    error: JsonObject


ReplyPart: TypeAlias = ReplyEvent | StreamedError


class ChunkDecoder:
    """Turns a backend's stream of chunks into the events of one reply.

    Both methods raise ValueError for what is no reply. Nothing is read after the end.
    """

    def __init__(self) -> None:
        self._is_started = False
        self._is_ended = False
        self._reason = ""
        self._usage: JsonObject | None = None
        self._timings: JsonObject | None = None
        self._calls = CallsInProgress()

    def feed(self, data: str) -> list[ReplyPart]:
        """Return what one server-sent event's data says: a chunk or `[DONE]`."""
        if self._is_ended or not data or data.isspace():
            return []
        found = fragment_in(data) if self._is_started else None
        if found is not None and (more := self.go_on(found, [found.text])) is not None:
            return more
        if data.strip() == "[DONE]":
            return self.finish()
        chunk = json.parse(data)
        if not isinstance(chunk, dict):
            raise ValueError(f"a chunk is {kind(chunk)}")
        if chunk.get("error") or ("choices" not in chunk and _string(chunk.get("message"))):
            self._is_ended = True
            return [StreamedError(_error(chunk))]
        return self._read(chunk)

    def go_on(self, sample: Fragment, texts: list[str]) -> list[ReplyPart] | None:
        """Return what further chunks say that are like one with `sample`, but for their texts.

        None where they take a closer look.
        """
        if self._is_ended:
            return []
        match sample:
            case ArgumentsFragment(number):
                return [*more] if (more := self._calls.go_on(number, texts)) else None
            case TextDelta():
                return [*map(TextDelta, filter(None, texts))]
            case ReasoningDelta():
                return [*map(ReasoningDelta, filter(None, texts))]

    def finish(self) -> list[ReplyPart]:
        """Return the last events: only the end reports that nothing follows the finish reason."""
        if self._is_ended:
            return []
        if not self._reason:
            raise ValueError("the reply ended before finishing")
        self._is_ended = True
        parts: list[ReplyPart] = [*self._calls.finish()]
        if self._usage is not None:
            parts.append(UsageReported(self._usage, self._timings))
        parts.append(ReplyFinished(self._reason))
        return parts

    def _read(self, chunk: JsonObject) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise ValueError(f"choices are {kind(choices)}")
        if not self._is_started and (choices or chunk.get("id") or "prompt_progress" in chunk):
            parts.append(_started(chunk))
            self._is_started = True
        if not self._note(chunk, parts) and "choices" not in chunk:
            raise ValueError("a chunk says nothing known")
        for choice in choices:
            if not isinstance(choice, dict):
                raise ValueError(f"a choice is {kind(choice)}")
            if not choice.get("index"):
                self._read_choice(choice, parts)
        return parts

    def _note(self, chunk: JsonObject, parts: list[ReplyPart]) -> bool:
        """Keep what belongs to the whole reply; tell whether there was anything of the kind."""
        told = False
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage, told = usage, True
        if isinstance(timings := chunk.get("timings"), dict):
            self._timings, told = timings, True
        if isinstance(progress := chunk.get("prompt_progress"), dict):
            counts = [_count(progress.get(name)) for name in ("total", "cache", "processed")]
            parts.append(PromptProgress(*counts))
            told = True
        return told

    def _read_choice(self, choice: JsonObject, parts: list[ReplyPart]) -> None:
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message") or {}
        if not isinstance(delta, dict):
            raise ValueError(f"a delta is {kind(delta)}")
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning and isinstance(reasoning, str):
            parts.append(ReasoningDelta(reasoning))
        text = delta.get("content") or ""
        if not isinstance(text, str):
            raise ValueError(f"content is {kind(text)}")
        if text:
            parts.append(TextDelta(text, choice.get("logprobs")))
        self._read_calls(delta, parts)
        self._reason = _string(choice.get("finish_reason")) or self._reason

    def _read_calls(self, delta: JsonObject, parts: list[ReplyPart]) -> None:
        fragments = delta.get("tool_calls") or []
        if not isinstance(fragments, list):
            raise ValueError(f"tool calls are {kind(fragments)}")
        for position, fragment in enumerate(fragments):
            if not isinstance(fragment, dict):
                raise ValueError(f"a tool call is {kind(fragment)}")
            parts += self._calls.add(position, fragment)


def decode_error(body: bytes) -> JsonObject:
    """Find the error in the body of a failure: an object that always has a string `message`."""
    try:
        document = json.parse(body)
    except ValueError:
        document = body.decode("utf-8", "replace").strip()
    if isinstance(document, dict):
        return _error(document)
    return {"message": document if isinstance(document, str) else json.dump_text(document)}


def _error(document: JsonObject) -> JsonObject:
    found = document.get("error")
    if isinstance(found, str):
        return {**document, "message": found}
    if not isinstance(found, dict):
        found = document
    message = found.get("message") or found.get("detail") or found
    return {**found, "message": message if isinstance(message, str) else json.dump_text(message)}


def _started(chunk: JsonObject) -> ReplyStarted:
    return ReplyStarted(
        id=_string(chunk.get("id")) or None,
        created=_count(chunk.get("created")) or None,
        model=_string(chunk.get("model")) or None,
        system_fingerprint=_string(chunk.get("system_fingerprint")) or None,
    )


def _string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _count(value: JsonValue) -> int:
    if isinstance(value, float):
        return int(value) if value.is_integer() else 0
    return value if isinstance(value, int) else 0
