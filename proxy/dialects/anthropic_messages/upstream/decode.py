"""From Anthropic's API: the events of a reply, and its errors.

Events and blocks of a kind that nobody knows are passed over, as the API asks of its clients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.dialects.openai_chat.replies import decode_error as decode_plain_error
from proxy.dialects.raw_json import kind
from proxy.dialects.sse import Event

_REASONS = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "pause_turn": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
    }
)
# the statuses with which these errors come when they come before a stream
_STATUSES = MappingProxyType(
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "billing_error": 402,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "api_error": 500,
        "timeout_error": 504,
        "overloaded_error": 529,
    }
)


def decode_error(body: bytes | str) -> JsonObject:
    """Find the error in the body of a failure, or in an event; it has a string `message`.

    Its `code` is the status that belongs to its type, where it brings none.
    """
    error = decode_plain_error(body.encode() if isinstance(body, str) else body)
    status = _STATUSES.get(f"{error.get('type')}")
    return error if status is None else {"code": status, **error}


@dataclass(slots=True)
class _CallBlock:
    """A block that is a call: its number among the calls, and what it began with."""

    number: int
    given: JsonValue
    has_more: bool = False


@dataclass(slots=True)
class EventReader:
    """Turns the events of one reply into ours.

    Both methods raise ValueError for what is no reply. Nothing is read after the end.
    """

    _is_started: bool = False
    _is_ended: bool = False
    _reason: str = ""
    _usage: JsonObject = field(default_factory=dict)
    _calls: dict[int, _CallBlock] = field(default_factory=dict)
    _open: dict[int, _CallBlock] = field(default_factory=dict)

    def feed(self, sent: Event) -> list[ReplyPart]:
        """Return what one server-sent event says."""
        if self._is_ended or not sent.data or sent.data.isspace():
            return []
        event = json.parse(sent.data)
        if not isinstance(event, dict):
            raise ValueError(f"an event is {kind(event)}")
        name = event.get("type")
        if name == "error" or event.get("error"):
            self._is_ended = True
            return [StreamedError(decode_error(sent.data))]
        read = _READERS.get(f"{name}")
        return [] if read is None else read(self, event)

    def finish(self) -> list[ReplyPart]:
        """Make sure that the end of the stream is the end of the reply."""
        if not self._is_ended:
            raise ValueError("the reply ended before finishing")
        return []

    def start(self, event: JsonObject) -> list[ReplyPart]:
        """Read `message_start`."""
        message = _object(event, "message")
        self._count(message)
        if self._is_started:
            return []
        self._is_started = True
        return [
            ReplyStarted(_string(message, "id") or None, model=_string(message, "model") or None)
        ]

    def open_block(self, event: JsonObject) -> list[ReplyPart]:
        """Read `content_block_start`; a block may hold something from its start."""
        block = _object(event, "content_block")
        if block.get("type") != "tool_use":
            return _read_piece(block)
        call = _CallBlock(len(self._calls), block.get("input"))
        self._calls[call.number] = self._open[_index(event)] = call
        call_id, name = _string(block, "id") or None, _string(block, "name")
        return [ToolCallStarted(call.number, call_id, name)]

    def add(self, event: JsonObject) -> list[ReplyPart]:
        """Read `content_block_delta`."""
        delta = _object(event, "delta")
        if delta.get("type") != "input_json_delta":
            return _read_piece(delta)
        call = self._open.get(_index(event))
        if call is None:
            raise ValueError("arguments of a call that never began")
        text = _string(delta, "partial_json")
        if not text:
            return []
        call.has_more = True
        return [ToolCallArgumentsDelta(call.number, text)]

    def close_block(self, event: JsonObject) -> list[ReplyPart]:
        """Read `content_block_stop`: a call without arguments has been given all of them."""
        call = self._open.pop(_index(event), None)
        if call is None or call.has_more:
            return []
        given = call.given if isinstance(call.given, dict) else {}
        return [ToolCallArgumentsDelta(call.number, json.dump_text(given))]

    def change(self, event: JsonObject) -> list[ReplyPart]:
        """Read `message_delta`: how the reply ends, and what it has cost by then."""
        self._reason = _string(_object(event, "delta"), "stop_reason") or self._reason
        self._count(event)
        return []

    def end(self, _: JsonObject) -> list[ReplyPart]:
        """Read `message_stop`."""
        if not self._reason:
            raise ValueError("the reply ended without a reason")
        self._is_ended = True
        reason = _REASONS.get(self._reason, "stop")
        if self._calls and reason == "stop":
            reason = "tool_calls"
        parts: list[ReplyPart] = [UsageReported(_usage(self._usage))] if self._usage else []
        return [*parts, ReplyFinished(reason)]

    def _count(self, holder: JsonObject) -> None:
        """Take note of counts; later ones are totals and take the place of earlier ones."""
        usage = holder.get("usage")
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}


_READERS: Mapping[str, Callable[[EventReader, JsonObject], list[ReplyPart]]] = MappingProxyType(
    {
        "message_start": EventReader.start,
        "content_block_start": EventReader.open_block,
        "content_block_delta": EventReader.add,
        "content_block_stop": EventReader.close_block,
        "message_delta": EventReader.change,
        "message_stop": EventReader.end,
    }
)


def _read_piece(piece: JsonObject) -> list[ReplyPart]:
    """Return what a block or a delta says; signatures and citations say nothing."""
    match piece.get("type"):
        case "text" | "text_delta":
            text = _string(piece, "text")
            return [TextDelta(text)] if text else []
        case "thinking" | "thinking_delta":
            thought = _string(piece, "thinking")
            return [ReasoningDelta(thought)] if thought else []
        case _:
            return []


def _usage(told: JsonObject) -> JsonObject:
    """Write what a reply has cost in OpenAI's words, where the prompt includes what was cached."""
    cached = _tokens(told, "cache_read_input_tokens")
    prompt = _tokens(told, "input_tokens") + _tokens(told, "cache_creation_input_tokens") + cached
    answer = _tokens(told, "output_tokens")
    usage: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    details = told.get("output_tokens_details")
    if isinstance(details, dict) and (thoughts := _tokens(details, "thinking_tokens")):
        usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
    return usage


def _object(holder: JsonObject, name: str) -> JsonObject:
    value = holder.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {kind(value)}")
    return value


def _string(holder: JsonObject, name: str) -> str:
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def _index(event: JsonObject) -> int:
    value = event.get("index")
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"the index of a block is {kind(value)}")
    return value


def _tokens(holder: JsonObject, name: str) -> int:
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
