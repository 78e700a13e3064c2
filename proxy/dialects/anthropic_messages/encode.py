"""To the Messages language: the events of one answer, as a stream or added up to a whole one.

Both are made of the same blocks, so what a client's SDK accumulates from the stream is the whole.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    UsageReported,
)
from proxy.dialects import sse
from proxy.dialects.anthropic_messages.answer import (
    AnswerBlocks,
    BlockDelta,
    BlockStarted,
    BlockStep,
    BlockStopped,
    as_object,
)
from proxy.dialects.anthropic_messages.errors import error_object
from proxy.dialects.anthropic_messages.usage import (
    usage_at_end,
    usage_at_start,
    usage_of_delta,
)
from proxy.dialects.front import Problem

_DELTA = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
_STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """What an answer has to heed; `id` and `model` are those that it tells.

    `shows_nothing` leaves all content out; `reports_edits` reports that the context was not edited.
    """

    id: str
    model: str
    request_id: str
    new_call_id: Callable[[], str]
    shows_nothing: bool = False
    reports_edits: bool = False

    def message(self) -> JsonObject:
        """Return the answer before anything of it is known."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
        }

    @property
    def edits(self) -> JsonObject:
        """What is told about the editing of the context."""
        return {"context_management": {"applied_edits": []}} if self.reports_edits else {}


class _Answer:
    """What stream and whole have in common: blocks, usage, and why the answer ended."""

    def __init__(self, terms: MessageOptions) -> None:
        self._terms = terms
        self._blocks = AnswerBlocks(terms.new_call_id)
        self._usage: UsageReported | None = None

    def steps(self, event: ReplyEvent) -> list[BlockStep]:
        """Take note of an event; returns what it says about blocks."""
        match event:
            case UsageReported():
                self._usage = event
                return []
            case ReplyFinished():
                return self._blocks.finish()
            case _:
                return [] if self._terms.shows_nothing else self._blocks.feed(event)

    @property
    def is_in_text(self) -> bool:
        """Whether more text would be nothing but one more delta."""
        return self._blocks.is_in_text

    @property
    def usage(self) -> JsonObject:
        """The totals."""
        return usage_at_end(self._usage)

    def end(self, reason: str) -> JsonObject:
        """Return why the answer ended, once it has."""
        told = self._stop_reason(reason)
        return {"stop_reason": told, "stop_sequence": None, "stop_details": None}

    def _stop_reason(self, reason: str) -> str:
        if self._terms.shows_nothing:
            return "max_tokens"
        is_cut_off = reason in _STOP_REASONS and self._blocks.has_half_call
        if self._blocks.has_calls and not is_cut_off:
            return "tool_use"
        return _STOP_REASONS.get(reason, "end_turn")


class MessageStream:
    """Writes the events of one answer as server-sent events, ready to be sent."""

    def __init__(self, terms: MessageOptions) -> None:
        self._terms = terms
        self._answer = _Answer(terms)
        self._has_started = False
        self._index = 0
        self._kind = ""
        self._delta_head = b""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        """Return what events that follow each other are worth on the wire."""
        written = self._start(events) if events and not self._has_started else b""
        return written + b"".join(map(self._encode, events))

    def keep_alive(self) -> bytes:
        """Return a ping, which SDKs skip and Claude Code counts."""
        return PING

    def comment(self, text: str) -> bytes:
        """Return a comment."""
        return sse.encode_comment(text)

    def end(self) -> bytes:
        """Return the last event."""
        return MESSAGE_STOP

    def fail(self, problem: Problem) -> bytes:
        """Return an error as the last event: without one a cut stream passes for a whole one."""
        return _event("error", error_object(problem, self._terms.request_id))

    def _start(self, events: Sequence[ReplyEvent]) -> bytes:
        self._has_started = True
        progress = next((event for event in events if isinstance(event, PromptProgress)), None)
        message = {**self._terms.message(), "usage": usage_at_start(progress)}
        return _event("message_start", {"type": "message_start", "message": message})

    def _encode(self, event: ReplyEvent) -> bytes:
        if isinstance(event, TextDelta) and self._answer.is_in_text:  # as most events are
            return self._more(event.text) if event.text else b""
        written = b"".join(map(self._write, self._answer.steps(event)))
        return written + self._end(event.reason) if isinstance(event, ReplyFinished) else written

    def _end(self, reason: str) -> bytes:
        delta: JsonObject = {
            "type": "message_delta",
            "delta": self._answer.end(reason),
            "usage": usage_of_delta(self._answer.usage),
            **self._terms.edits,
        }
        return _event("message_delta", delta)

    def _write(self, step: BlockStep) -> bytes:
        match step:
            case BlockStarted():
                return self._start_block(step)
            case BlockDelta(text):
                return self._more(text)
            case BlockStopped(signature):
                return self._stop_block(signature)

    def _more(self, text: str) -> bytes:
        return self._delta_head + json.dump(text) + b"}}" + sse.END_OF_EVENT

    def _start_block(self, started: BlockStarted) -> bytes:
        # Everything around a delta is written once and not once per token.
        self._index = started.index
        name, member = _DELTA[started.kind]
        delta = self._delta({"type": name, member: ""})
        self._delta_head = delta.removesuffix(b'""}}' + sse.END_OF_EVENT)
        data: JsonObject = {
            "type": "content_block_start",
            "index": started.index,
            "content_block": _empty_block(started),
        }
        return _event("content_block_start", data)

    def _stop_block(self, signature: str) -> bytes:
        signed = b""
        if signature:
            signed = self._delta({"type": "signature_delta", "signature": signature})
        data: JsonObject = {"type": "content_block_stop", "index": self._index}
        return signed + _event("content_block_stop", data)

    def _delta(self, delta: JsonObject) -> bytes:
        data: JsonObject = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return _event("content_block_delta", data)


class MessageBuilder:
    """Adds up the events of one answer to a whole message."""

    def __init__(self, terms: MessageOptions) -> None:
        self._terms = terms
        self._answer = _Answer(terms)
        self._blocks: list[tuple[BlockStarted, list[str]]] = []
        self._signatures: dict[int, str] = {}
        self._reason = "stop"

    def add(self, event: ReplyEvent) -> None:
        """Take note of one event."""
        if isinstance(event, ReplyFinished):
            self._reason = event.reason
        self._take(self._answer.steps(event))

    def build(self) -> bytes:
        """Return the whole message."""
        self._take(self._answer.steps(ReplyFinished(self._reason)))
        content: list[JsonValue] = [self._block(*block) for block in self._blocks]
        message = {**self._terms.message(), "content": content, **self._answer.end(self._reason)}
        return json.dump({**message, "usage": self._answer.usage, **self._terms.edits})

    def _take(self, steps: Iterable[BlockStep]) -> None:
        for step in steps:
            match step:
                case BlockStarted():
                    self._blocks.append((step, []))
                case BlockDelta(text):
                    self._blocks[-1][1].append(text)
                case BlockStopped(signature):
                    self._signatures[len(self._blocks) - 1] = signature

    def _block(self, started: BlockStarted, texts: list[str]) -> JsonObject:
        text = "".join(texts)
        block = _empty_block(started)
        match started.kind:
            case "text":
                block["text"] = text
            case "thinking":
                block["thinking"] = text
                block["signature"] = self._signatures[started.index]
            case "tool_use":
                read = as_object(text)
                block["input"] = {"unparsable": text} if read is None else read
        return block


def _empty_block(started: BlockStarted) -> JsonObject:
    match started.kind:
        case "text":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_use":
            return {"type": "tool_use", "id": started.id, "name": started.name, "input": {}}


def _event(name: str, data: JsonObject) -> bytes:
    return b"event: " + name.encode() + b"\n" + sse.encode_data(json.dump(data))


PING = _event("ping", {"type": "ping"})
MESSAGE_STOP = _event("message_stop", {"type": "message_stop"})
