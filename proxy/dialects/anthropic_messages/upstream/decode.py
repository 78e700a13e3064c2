"""Reader of replies and errors of Anthropic's API.

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}
    -> TextDelta("Hi")

Events and blocks of unknown types are skipped, as the API requires of its clients.
"""

from dataclasses import dataclass, field

from proxy.conversation import json, replies
from proxy.conversation.endings import CALLS, STOP, ending_of
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.anthropic_messages.table import ERRORS
from proxy.dialects.lenient_json import as_count, as_integer, as_object, as_text, write_usage
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.dialects.openai_chat.replies import decode_error as decode_plain_error
from proxy.dialects.raw_json import kind
from proxy.dialects.sse import Event

# the HTTP status for each error type; an error within a stream has only the type
_STATUSES = {kind: status for status, kind in ERRORS.items()}
_STATUSES |= {"invalid_request_error": 400, "api_error": 500}


def decode_error(body: bytes | str) -> JsonObject:
    """Return the error in the body of a failure or in an event; its `message` is a string.

    An error within a stream has no HTTP status. Its `code` is the status for its type.
    """
    error = decode_plain_error(body.encode() if isinstance(body, str) else body)
    status = _STATUSES.get(f"{error.get('type')}")
    return error if status is None else {"code": status, **error}


@dataclass(slots=True)
class _CallBlock:
    """The block of a call: its number among the calls, and the `input` at its start.

    `has_fragments` becomes True with the first non-empty fragment of the arguments.
    """

    number: int
    input: JsonValue
    has_fragments: bool = False


@dataclass(slots=True)
class EventReader:
    """Converts the events of one reply.

    `feed` and `finish` raise ValueError for an invalid reply. Events after the reply are ignored.
    """

    _is_started: bool = False
    _is_ended: bool = False
    _reason: str = ""
    _usage: JsonObject = field(default_factory=dict)
    _calls: int = 0
    _open_calls: dict[int, _CallBlock] = field(default_factory=dict)  # by the index of the block

    def feed(self, sent: Event) -> list[ReplyPart]:
        if self._is_ended or not sent.data or sent.data.isspace():
            return []
        event = json.parse(sent.data)
        if not isinstance(event, dict):
            raise ValueError(f"an event must be an object, not {kind(event)}")
        if event.get("type") == "error" or event.get("error"):
            self._is_ended = True
            return [StreamedError(decode_error(sent.data))]
        return self._read(event)

    def finish(self) -> list[ReplyPart]:
        """Raise ValueError if the stream ended before the end of the reply."""
        if not self._is_ended:
            raise ValueError("the reply ended before it was complete")
        return []

    def _read(self, event: JsonObject) -> list[ReplyPart]:
        match event.get("type"):
            case "message_start":
                return self._start(_object(event, "message"))
            case "content_block_start":
                return self._open_block(_object(event, "content_block"), _index(event))
            case "content_block_delta":
                return self._add(_object(event, "delta"), event)
            case "content_block_stop":
                return self._close_block(_index(event))
            case "message_delta":
                reason = as_text(_object(event, "delta").get("stop_reason"))
                self._reason = reason or self._reason
                self._count(event)
            case "message_stop":
                return self._end()
            case _:
                pass
        return []

    def _start(self, message: JsonObject) -> list[ReplyPart]:
        self._count(message)
        if self._is_started:
            return []
        self._is_started = True
        reply_id, model = as_text(message.get("id")), as_text(message.get("model"))
        return [replies.ReplyStarted(reply_id or None, model=model or None)]

    def _open_block(self, block: JsonObject, index: int) -> list[ReplyPart]:
        """Begin a block; it may already contain text."""
        if block.get("type") != "tool_use":
            return _read_content(block)
        call = _CallBlock(self._calls, block.get("input"))
        self._calls += 1
        self._open_calls[index] = call
        call_id, name = as_text(block.get("id")) or None, as_text(block.get("name"))
        return [replies.ToolCallStarted(call.number, call_id, name)]

    def _add(self, delta: JsonObject, event: JsonObject) -> list[ReplyPart]:
        if delta.get("type") != "input_json_delta":
            return _read_content(delta)
        call = self._open_calls.get(_index(event))
        if call is None:
            raise ValueError("arguments for a content block that was never started")
        text = as_text(delta.get("partial_json"))
        # the API's first fragment is always empty, and must not replace the `input`
        call.has_fragments = call.has_fragments or bool(text)
        return [replies.ToolCallArgumentsDelta(call.number, text)] if text else []

    def _close_block(self, index: int) -> list[ReplyPart]:
        """End a block; if no fragment has arrived, the `input` at its start is the arguments."""
        call = self._open_calls.pop(index, None)
        if call is None or call.has_fragments:
            return []
        return [replies.ToolCallArgumentsDelta(call.number, json.dump_text(as_object(call.input)))]

    def _end(self) -> list[ReplyPart]:
        if not self._reason:
            raise ValueError("the reply ended without a stop_reason")
        self._is_ended = True
        reason = ending_of(self._reason).reason
        if self._calls and reason == STOP:
            reason = CALLS
        parts: list[ReplyPart] = [replies.UsageReported(_usage(self._usage))] if self._usage else []
        return [*parts, replies.ReplyFinished(reason)]

    def _count(self, holder: JsonObject) -> None:
        """Store token counts; a later count is a total, and replaces the earlier count."""
        usage = holder.get("usage")
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}


def _read_content(block: JsonObject) -> list[ReplyPart]:
    """Return the text or reasoning of a block or a delta, [] for signatures and citations."""
    match block.get("type"):
        case "text" | "text_delta":
            text = as_text(block.get("text"))
            return [replies.TextDelta(text)] if text else []
        case "thinking" | "thinking_delta":
            thought = as_text(block.get("thinking"))
            return [replies.ReasoningDelta(thought)] if thought else []
        case _:
            return []


def _usage(usage: JsonObject) -> JsonObject:
    """Convert the usage to OpenAI's, whose prompt tokens include the cached tokens."""
    uncached, created, cached, answer = (
        as_count(usage.get(name))
        for name in (
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
        )
    )
    thoughts = as_object(usage.get("output_tokens_details")).get("thinking_tokens")
    return write_usage(uncached + created + cached, answer, cached, as_count(thoughts))


def _object(holder: JsonObject, name: str) -> JsonObject:
    value = holder.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, not {kind(value)}")
    return value


def _index(event: JsonObject) -> int:
    index = as_integer(event.get("index"))
    if index is None:
        raise ValueError(f"index must be an integer, not {kind(event.get('index'))}")
    return index
