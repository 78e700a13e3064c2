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
from proxy.dialects.front import ErrorReply, Problem

_AT_START_ONLY = ("cache_creation", "service_tier")


def usage_at_start(progress: PromptProgress | None) -> JsonObject:
    """Write what is known before the answer begins; the totals at the end take its place."""
    if progress is None:
        return _usage(0, 0, 0)
    return _usage(progress.total, progress.cached, 0)


def usage_at_end(reported: UsageReported | None) -> JsonObject:
    """Write the totals of the whole answer."""
    usage = {} if reported is None else reported.usage
    cached = _count(_details(usage, "prompt_tokens_details").get("cached_tokens"))
    counts = _usage(
        _count(usage.get("prompt_tokens")), cached, _count(usage.get("completion_tokens"))
    )
    thoughts = _details(usage, "completion_tokens_details").get("reasoning_tokens")
    if _count(thoughts):
        counts["output_tokens_details"] = {"thinking_tokens": _count(thoughts)}
    return counts


def usage_of_delta(usage: JsonObject) -> JsonObject:
    """Leave out of the totals what never stands behind a stream."""
    return {name: value for name, value in usage.items() if name not in _AT_START_ONLY}


def _usage(prompt: int, cached: int, output: int) -> JsonObject:
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    }


def _details(usage: JsonObject, name: str) -> JsonObject:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_OVERFLOW = "context_length_exceeded"
_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_NOT_AUTHORIZED = 401
_FIRST_SERVER_ERROR = 500


def error_object(problem: Problem, request_id: str) -> JsonObject:
    """Return `{"type": "error", "error": {"type", "message"}, "request_id"}`."""
    error: JsonObject = {"type": _kind(problem.status), "message": _message(problem)}
    return {"type": "error", "error": error, "request_id": request_id}


def error_reply(problem: Problem, request_id: str) -> ErrorReply:
    """Write an error that came before anything was sent."""
    headers = dict(problem.headers)
    if problem.status == _NOT_AUTHORIZED:  # which no retry makes better
        headers["x-should-retry"] = "false"
    return ErrorReply(problem.status, headers, json.dump(error_object(problem, request_id)))


def _kind(status: int) -> str:
    if status in _KINDS:
        return _KINDS[status]
    return "api_error" if status >= _FIRST_SERVER_ERROR else "invalid_request_error"


def _message(problem: Problem) -> str:
    if problem.code == _OVERFLOW:
        return _overflow(problem)
    path = f"{problem.param}: " if problem.param else ""
    return problem.message if problem.message.startswith(path) else path + problem.message


def _overflow(problem: Problem) -> str:
    tokens, window = problem.details.get("n_prompt_tokens"), problem.details.get("n_ctx")
    if not isinstance(tokens, int) or not isinstance(window, int):
        return "prompt is too long"
    # a prompt that fits but leaves no room for an answer is too long as well
    return f"prompt is too long: {max(tokens, window + 1)} tokens > {window} maximum"


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


class _AnswerEncoder:
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
        self._answer = _AnswerEncoder(terms)
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
        self._answer = _AnswerEncoder(terms)
        self._blocks: list[tuple[BlockStarted, list[str]]] = []
        self._signatures: dict[int, str] = {}
        self._reason = "stop"

    def add(self, event: ReplyEvent) -> None:
        if isinstance(event, ReplyFinished):
            self._reason = event.reason
        self._take(self._answer.steps(event))

    def build(self) -> bytes:
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
