"""Writer of answers in the Messages API: server-sent events, or one message.

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

The stream and the message are built from the same blocks. So the message that an SDK accumulates
from a stream equals the message of an answer that is not streamed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from proxy.conversation import json
from proxy.conversation.endings import CALLS, LENGTH, STOP, ending_of, is_cut
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    PromptProgress,
    ReplyEvent,
    ReplyFinished,
    RoundMessages,
    TextDelta,
    UsageReported,
)
from proxy.dialects import sse
from proxy.dialects.answer_blocks import (
    AnswerBlocks,
    BlockDelta,
    BlockStarted,
    BlockStep,
    BlockStopped,
)
from proxy.dialects.anthropic_messages.history import RAN_PREFIX
from proxy.dialects.anthropic_messages.table import ERRORS
from proxy.dialects.dialect import ErrorReply, Problem
from proxy.dialects.lenient_json import as_list, as_object, as_text, parse_object, read_usage

_AT_START_ONLY = ("cache_creation", "service_tier")  # members of the usage in `message_start`


def usage_at_start(progress: PromptProgress | None) -> JsonObject:
    """Return the usage of `message_start`; the totals at the end replace it.

    Before the totals arrive, Claude Code displays this usage, and uses it to decide when to
    compact.
    """
    return _usage(0, 0, 0) if progress is None else _usage(progress.total, progress.cached, 0)


def usage_at_end(reported: UsageReported | None) -> JsonObject:
    counts = read_usage(None if reported is None else reported.usage)
    usage = _usage(counts.prompt, counts.cached, counts.answer)
    if counts.thoughts:
        usage["output_tokens_details"] = {"thinking_tokens": counts.thoughts}
    return usage


def usage_of_delta(usage: JsonObject) -> JsonObject:
    """Return the totals without the members that are allowed only in `message_start`."""
    return {name: value for name, value in usage.items() if name not in _AT_START_ONLY}


def _usage(prompt: int, cached: int, output: int) -> JsonObject:
    # unlike OpenAI's prompt tokens, the input tokens do not include the cached tokens
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    }


_NOT_AUTHORIZED = 401
_FIRST_SERVER_ERROR = 500


def error_object(problem: Problem, request_id: str) -> JsonObject:
    """Return `{"type": "error", "error": {"type", "message"}, "request_id"}`."""
    is_ours = problem.status >= _FIRST_SERVER_ERROR
    kind = ERRORS.get(problem.status, "api_error" if is_ours else "invalid_request_error")
    error: JsonObject = {"type": kind, "message": _message(problem)}
    if problem.param == "thread":  # the code makes the SDK's tool runner send complete histories
        error["details"] = {"error_code": "thread_unsupported_request"}
    return {"type": "error", "error": error, "request_id": request_id}


def error_reply(problem: Problem, request_id: str) -> ErrorReply:
    headers = dict(problem.headers)
    if problem.status == _NOT_AUTHORIZED:  # a retry cannot help
        headers["x-should-retry"] = "false"
    return ErrorReply(problem.status, headers, json.dump(error_object(problem, request_id)))


def _message(problem: Problem) -> str:
    # clients compact the conversation if they find the words "prompt is too long"
    if problem.code == "context_length_exceeded":
        tokens, window = problem.details.get("n_prompt_tokens"), problem.details.get("n_ctx")
        if not isinstance(tokens, int) or not isinstance(window, int):
            return "prompt is too long"
        # a prompt that leaves no room for an answer is also too long, even if it fits
        return f"prompt is too long: {max(tokens, window + 1)} tokens > {window} maximum"
    path = f"{problem.param}: " if problem.param else ""
    return problem.message if problem.message.startswith(path) else path + problem.message


_DELTA = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """The options of an answer, with the `id` and `model` that it reports.

    `shows_nothing` drops all content, for `max_tokens: 0`. With `reports_edits`, the answer reports
    that Temper has not edited the context.
    """

    id: str
    model: str
    request_id: str
    new_call_id: Callable[[], str]
    shows_nothing: bool = False
    reports_edits: bool = False

    def message(self) -> JsonObject:
        """Return the members of a message without content."""
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
        return {"context_management": {"applied_edits": []}} if self.reports_edits else {}


class _CompleteBlock(msgspec.Struct, frozen=True):
    """A complete block of a call that Temper ran: `mcp_tool_use` or `mcp_tool_result`."""

    index: int
    block: JsonObject


def _executed_call_blocks(rounds: RoundMessages) -> Iterator[JsonObject]:
    """Yield a block for each call that Temper ran and for its result, in the order of `rounds`."""
    executed_ids: set[str] = set()
    for message in rounds.messages:
        for call in map(as_object, as_list(message.get("tool_calls"))):
            function, call_id = as_object(call.get("function")), as_text(call.get("id"))
            server = rounds.servers.get(as_text(function.get("name")))
            if server is not None:
                executed_ids.add(call_id)
                arguments = parse_object(as_text(function.get("arguments"))) or {}
                yield {
                    "type": "mcp_tool_use",
                    "id": RAN_PREFIX + call_id,
                    "name": function.get("name"),
                    "server_name": server,
                    "input": arguments,
                }
        if (call_id := as_text(message.get("tool_call_id"))) in executed_ids:
            yield {
                "type": "mcp_tool_result",
                "tool_use_id": RAN_PREFIX + call_id,
                "is_error": message.get("failed") is True,
                "content": [{"type": "text", "text": message.get("content")}],
            }


class _AnswerEncoder:
    """The common part of streamed and whole answers: blocks, usage and stop reason."""

    def __init__(self, options: MessageOptions) -> None:
        self._options = options
        self._blocks = AnswerBlocks(options.new_call_id, no_arguments="{}")
        self._reported: UsageReported | None = None
        self._reason = STOP

    def _steps(self, event: ReplyEvent) -> Sequence[BlockStep | _CompleteBlock]:
        match event:
            case UsageReported():
                self._reported = event
                return []
            case ReplyFinished(reason):
                self._reason = reason
                return self._blocks.finish()
            case RoundMessages():
                steps = self._blocks.interrupt()
                blocks = _executed_call_blocks(event)
                indexes = ((self._blocks.reserve_index(), block) for block in blocks)
                return [*steps, *(_CompleteBlock(index, block) for index, block in indexes)]
            case _:
                return [] if self._options.shows_nothing else self._blocks.feed(event)

    def _end(self) -> JsonObject:
        reason = self._stop_reason()
        stop = (
            self._reported.stop
            if self._reported is not None and reason == ending_of(STOP).messages
            else ""
        )
        if stop:
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": stop or None, "stop_details": None}

    def _stop_reason(self) -> str:
        if self._options.shows_nothing:  # a limit of 0 is reached before the first token
            return ending_of(LENGTH).messages
        # The reason `tool_use` makes a client run the calls, so it must not follow a truncated
        # call.
        is_cut_off = is_cut(self._reason) and self._blocks.has_incomplete_call
        if self._blocks.has_calls and not is_cut_off:
            return ending_of(CALLS).messages
        return ending_of(STOP if self._reason == CALLS else self._reason).messages


class MessageStream(_AnswerEncoder):
    """Writes the events of one answer as server-sent events."""

    def __init__(self, options: MessageOptions) -> None:
        super().__init__(options)
        self._has_started = False
        self._index = 0
        self._delta_head = b""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        stream = self._start(events) if events and not self._has_started else b""
        return stream + b"".join(map(self._encode, events))

    def keep_alive(self) -> bytes:
        """Return a ping: SDKs skip it, and it shows Claude Code that the connection is alive."""
        return PING

    def comment(self, text: str) -> bytes:
        return sse.encode_comment(text)

    def end(self) -> bytes:
        return MESSAGE_STOP

    def fail(self, problem: Problem) -> bytes:
        """Return an error as the last event; SDKs would accept a truncated stream as complete."""
        return _event("error", error_object(problem, self._options.request_id))

    def _start(self, events: Sequence[ReplyEvent]) -> bytes:
        self._has_started = True
        progress = next((event for event in events if isinstance(event, PromptProgress)), None)
        message = {**self._options.message(), "usage": usage_at_start(progress)}
        return _event("message_start", {"type": "message_start", "message": message})

    def _encode(self, event: ReplyEvent) -> bytes:
        if isinstance(event, TextDelta) and self._blocks.is_in_text:  # the most common event
            return self._write_text(event.text) if event.text else b""
        stream = b"".join(map(self._write, self._steps(event)))
        if not isinstance(event, ReplyFinished):
            return stream
        delta: JsonObject = {
            "type": "message_delta",
            "delta": self._end(),
            "usage": usage_of_delta(usage_at_end(self._reported)),
            **self._options.edits,
        }
        return stream + _event("message_delta", delta)

    def _write(self, step: BlockStep | _CompleteBlock) -> bytes:
        match step:
            case _CompleteBlock(index, block):
                kinds = ("content_block_start", "content_block_stop")
                events: list[JsonObject] = [{"type": kind, "index": index} for kind in kinds]
                events[0]["content_block"] = block
                return b"".join(map(_event, kinds, events))
            case BlockStarted():
                return self._start_block(step)
            case BlockDelta(text):
                return self._write_text(text)
            case BlockStopped(signature):
                signature_event = b""
                if signature:
                    delta: JsonObject = {"type": "signature_delta", "signature": signature}
                    signature_event = self._delta(delta)
                stop: JsonObject = {"type": "content_block_stop", "index": self._index}
                return signature_event + _event("content_block_stop", stop)

    def _write_text(self, text: str) -> bytes:
        return self._delta_head + json.dump(text) + b"}}" + sse.END_OF_EVENT

    def _start_block(self, started: BlockStarted) -> bytes:
        # The bytes around a delta are created once per block, not once per token.
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

    def _delta(self, delta: JsonObject) -> bytes:
        data: JsonObject = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return _event("content_block_delta", data)


class MessageBuilder(_AnswerEncoder):
    """Builds one message from the events of an answer."""

    def __init__(self, options: MessageOptions) -> None:
        super().__init__(options)
        self._content: list[bytes] = []
        self._block: JsonObject = {}
        self._texts: list[str] = []

    def add(self, event: ReplyEvent) -> None:
        for step in self._steps(event):
            match step:
                case BlockStarted():
                    self._block, self._texts = _empty_block(step), []
                case BlockDelta(text):
                    self._texts.append(text)
                case _CompleteBlock(_, block):
                    self._content.append(json.dump(block))
                case BlockStopped(signature):
                    self._content.append(self._complete_block("".join(self._texts), signature))

    def build(self) -> bytes:
        self.add(ReplyFinished(self._reason))
        message = {**self._options.message(), "content": [], **self._end()}
        message |= {"usage": usage_at_end(self._reported), **self._options.edits}
        members = {name: json.dump(value) for name, value in message.items()}
        return json.join_object({**members, "content": json.join_array(self._content)})

    def _complete_block(self, text: str, signature: str) -> bytes:
        """Write a block; the input of a call keeps the bytes that the model wrote."""
        kind = f"{self._block['type']}"
        json_text = json.dump(text)
        if kind == "tool_use":
            kind = "input"
            is_object = parse_object(text) is not None
            json_text = text.encode() if is_object else json.dump({"unparsable": text})
        if signature:
            self._block["signature"] = signature
        members = {name: json.dump(value) for name, value in self._block.items()}
        return json.join_object({**members, kind: json_text})


def _empty_block(started: BlockStarted) -> JsonObject:
    if started.kind == "tool_use":
        return {"type": "tool_use", "id": started.id, "name": started.name, "input": {}}
    signature: JsonObject = {"signature": ""} if started.kind == "thinking" else {}
    return {"type": started.kind, started.kind: "", **signature}


def _event(name: str, data: JsonObject) -> bytes:
    return b"event: " + name.encode() + b"\n" + sse.encode_data(json.dump(data))


PING = _event("ping", {"type": "ping"})
MESSAGE_STOP = _event("message_stop", {"type": "message_stop"})
