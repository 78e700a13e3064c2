"""From the chat completions language: the chunks of a backend's reply, and its errors.

Backends are read as leniently as can be without guessing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

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
from proxy.dialects.openai_chat.fragments import ArgumentsFragment, Fragment
from proxy.dialects.raw_json import kind

_NOTHING = msgspec.Raw(b"null")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class CallFragment(msgspec.Struct):
    """A piece of a tool call, as a chunk has it."""

    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallFragment] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    index: int | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = _NOTHING


class _Progress(msgspec.Struct):
    total: int = 0
    cache: int = 0
    processed: int = 0


class _Chunk(msgspec.Struct):
    """A chunk as nearly every engine writes it; one of any other form is read as plain JSON."""

    choices: list[_Choice]
    id: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    usage: msgspec.Raw = _NOTHING
    timings: msgspec.Raw = _NOTHING
    prompt_progress: _Progress | None = None
    error: None = None


_read_chunk = msgspec.json.Decoder(_Chunk).decode

CallEvent: TypeAlias = ToolCallStarted | ToolCallArgumentsDelta


@dataclass(slots=True)
class _ArrivingCall:
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

    _calls: list[_ArrivingCall] = field(default_factory=list)
    _latest: dict[int, _ArrivingCall] = field(default_factory=dict)
    _by_id: dict[str, _ArrivingCall] = field(default_factory=dict)

    def add(self, position: int, fragment: CallFragment) -> list[CallEvent]:
        """Read a fragment, the `position`th in its chunk."""
        function = fragment.function
        name = (function and function.name) or ""
        arguments = (function and function.arguments) or ""
        if not name and not fragment.id:  # as most fragments are
            known = self._latest.get(position if fragment.index is None else fragment.index)
            if known is not None and known.name:
                return [ToolCallArgumentsDelta(known.index, arguments)] if arguments else []
        return self._find(position, fragment, name).add(name, arguments)

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

    def _find(self, position: int, fragment: CallFragment, name: str) -> _ArrivingCall:
        number, call_id = fragment.index, fragment.id or ""
        key = position if number is None else number
        call = self._latest.get(key)
        if call_id and (number is None or (call is not None and call.id not in {"", call_id})):
            # Some backends number no call, or every call 0: then only ids tell them apart.
            call = self._by_id.get(call_id)
        elif call is not None and not call_id and call.is_other_than(name):
            call = None
        if call is None:
            call = _ArrivingCall(len(self._calls))
            self._calls.append(call)
        self._latest[key] = call
        if call_id:
            call.id = call_id
            self._by_id[call_id] = call
        return call


def call_fragment(written: JsonObject) -> CallFragment:
    """Read a fragment of any form; raises ValueError for nonsense."""
    function, index = written.get("function") or {}, written.get("index")
    if not isinstance(function, dict):
        raise ValueError("the function of a tool call is no object")
    return CallFragment(
        index if isinstance(index, int) else None,
        _string(written.get("id")),
        _Function(_string(function.get("name")), _arguments(function.get("arguments"))),
    )


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
        parts: list[ReplyPart] = []
        self.feed_all([data.encode("utf-8", "surrogatepass")], parts)
        return parts

    def feed_all(self, payloads: Iterable[bytes], parts: list[ReplyPart]) -> None:
        """Append what the data of several events says."""
        for payload in payloads:
            if self._is_ended:
                return
            try:
                chunk = _read_chunk(payload)
            except ValueError:
                parts += self._feed_any(payload.decode("utf-8", "replace"))
            else:
                self._take(chunk, parts)

    def _feed_any(self, data: str) -> list[ReplyPart]:
        """Read a chunk of any form, or what is none."""
        data = data.strip()
        if not data:
            return []
        if data == "[DONE]":
            return self.finish()
        chunk = json.parse(data)
        if not isinstance(chunk, dict):
            raise ValueError(f"a chunk is {kind(chunk)}")
        if chunk.get("error") or ("choices" not in chunk and _string(chunk.get("message"))):
            self._is_ended = True
            return [StreamedError(_error(chunk))]
        return self._read(chunk)

    def _take(self, chunk: _Chunk, parts: list[ReplyPart]) -> None:
        progress = chunk.prompt_progress
        if not self._is_started and (chunk.choices or chunk.id or progress is not None):
            self._is_started = True
            parts.append(
                ReplyStarted(
                    chunk.id or None,
                    chunk.created or None,
                    chunk.model or None,
                    chunk.system_fingerprint or None,
                )
            )
        if chunk.usage is not _NOTHING and (usage := _object_in(chunk.usage)) is not None:
            self._usage = usage
        if chunk.timings is not _NOTHING and (timings := _object_in(chunk.timings)) is not None:
            self._timings = timings
        if progress is not None:
            parts.append(PromptProgress(progress.total, progress.cache, progress.processed))
        for choice in chunk.choices:
            if not choice.index:
                self._take_choice(choice, parts)

    def _take_choice(self, choice: _Choice, parts: list[ReplyPart]) -> None:
        delta = choice.delta
        if reasoning := delta.reasoning_content or delta.reasoning:
            parts.append(ReasoningDelta(reasoning))
        if delta.content:
            told = choice.logprobs
            logprobs = None if told is _NOTHING else json.parse(bytes(told))
            parts.append(TextDelta(delta.content, logprobs))
        if delta.tool_calls:
            for position, fragment in enumerate(delta.tool_calls):
                parts += self._calls.add(position, fragment)
        if choice.finish_reason:
            self._reason = choice.finish_reason

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
            parts.append(_read_start(chunk))
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
            parts += self._calls.add(position, call_fragment(fragment))


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


def _read_start(chunk: JsonObject) -> ReplyStarted:
    return ReplyStarted(
        id=_string(chunk.get("id")) or None,
        created=_count(chunk.get("created")) or None,
        model=_string(chunk.get("model")) or None,
        system_fingerprint=_string(chunk.get("system_fingerprint")) or None,
    )


def _object_in(raw: msgspec.Raw) -> JsonObject | None:
    value = json.parse(bytes(raw))
    return value if isinstance(value, dict) else None


def _string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _count(value: JsonValue) -> int:
    if isinstance(value, float):
        return int(value) if value.is_integer() else 0
    return value if isinstance(value, int) else 0
