"""Writer of answers for Ollama's clients: NDJSON lines, or one object from the same events.

    {"model": "m", "created_at": "...", "message": {"role": ..., "content": "Hi"}, "done": false}
    {"model": "m", "created_at": "...", "message": {...}, "done": true, "done_reason": "stop"}

A call is written when its arguments are complete. A truncated call is dropped.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from proxy.conversation import json
from proxy.conversation.endings import STOP, ending_of, is_cut
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, UsageReported
from proxy.dialects.answer_blocks import (
    AnswerBlocks,
    BlockDelta,
    BlockStarted,
    BlockStep,
)
from proxy.dialects.dialect import IdsAndClock, Problem
from proxy.dialects.lenient_json import as_count, as_list, as_object, parse_object, read_usage
from proxy.dialects.ollama_chat.decode import DURATIONS

DONE = b'"done":true'  # cannot occur in a JSON string, where quotes are escaped
_NOT_DONE = b',"done":false}\n'
_NANOSECONDS = 1e9
_MILLISECONDS = 1e6  # nanoseconds per millisecond


def moment(now: float) -> str:
    """Format a Unix time in seconds as Ollama does: `2025-11-24T16:00:00.500000Z`."""
    second = math.floor(now)
    return f"{_second(second)}.{int((now - second) * 1e6):06}Z"


@lru_cache(maxsize=8)  # every line of a stream has a timestamp
def _second(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat().removesuffix("+00:00")


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The options of an answer: the client's name of the `model`, and the time of the request.

    With `is_text`, the answer is for `/api/generate`, otherwise for `/api/chat`.
    """

    model: str
    is_text: bool
    stamp: IdsAndClock
    began: float
    new_call_id: Callable[[], str]

    def head(self) -> bytes:
        return b'{"model":%b,"created_at":"%b",' % (
            _dump_name(self.model), moment(self.stamp.now()).encode(),
        )  # fmt: skip

    def content(self, content: bytes, members: bytes = b"") -> bytes:
        """Write the member with the content, a JSON string; `members` come after the content."""
        if self.is_text:
            return b'"response":%b%b' % (content, members)
        return b'"message":{"role":"assistant","content":%b%b}' % (content, members)

    def load_status(self, reason: str) -> bytes:
        """Write the whole answer to a request that only loads or unloads the model."""
        return b'%b%b,%b,"done_reason":"%b"}\n' % (
            self.head(), self.content(b'""'), DONE, reason.encode(),
        )  # fmt: skip


@lru_cache(maxsize=64)
def _dump_name(model: str) -> bytes:
    return json.dump(model)


class _Answer(ABC):
    """The common part of streamed and whole answers: content, end and durations."""

    def __init__(self, options: AnswerOptions) -> None:
        self._options = options
        self._blocks = AnswerBlocks(options.new_call_id, no_arguments="{}")
        self._block = BlockStarted(0, "text")
        self._arguments: list[str] = []
        self._calls = 0
        self._reason = STOP
        self._usage: UsageReported | None = None
        self._first_content_at: float | None = None

    def _handle(self, event: ReplyEvent) -> None:
        match event:
            case UsageReported():
                self._usage = event
                steps: list[BlockStep] = []
            case ReplyFinished(reason):
                self._reason = reason
                # only after a truncated reply: a complete call without arguments looks truncated
                steps = self._blocks.finish(drops_incomplete_call=is_cut(reason))
            case _:
                steps = self._blocks.feed(event)
        for step in steps:
            self._handle_step(step)

    def _handle_step(self, step: BlockStep) -> None:
        match step:
            case BlockStarted():
                self._block, self._arguments = step, []
            case BlockDelta(text) if self._block.kind == "tool_use":
                self._arguments.append(text)
            case BlockDelta(text, logprobs):
                self._first_content_at = (
                    self._options.stamp.now()
                    if self._first_content_at is None
                    else self._first_content_at
                )
                self._add_text(self._block.kind, text, logprobs)
            case _ if self._block.kind == "tool_use":
                self._end_call("".join(self._arguments))
            case _:
                pass

    @abstractmethod
    def _add_text(self, kind: str, text: str, logprobs: JsonValue) -> None:
        """Add more text or reasoning."""

    @abstractmethod
    def _add_call(self, call: bytes) -> None:
        """Add a complete call, as JSON."""

    def _end_call(self, arguments: str) -> None:
        parsed = parse_object(arguments)
        if parsed is None:
            return
        # a line break in the arguments would end the stream's line, so such arguments are rewritten
        is_one_line = "\n" not in arguments and "\r" not in arguments
        source = arguments.encode() if is_one_line else json.dump(parsed)
        function = b'{"index":%d,"name":%b,"arguments":%b}' % (
            self._calls, json.dump(self._block.name), source,
        )  # fmt: skip
        self._calls += 1
        self._add_call(b'{"id":%b,"function":%b}' % (json.dump(self._block.id), function))

    def _end(self) -> bytes:
        reason = ending_of(self._reason).ollama.encode()
        statistics = json.dump(self._statistics())
        return b'%b,"done_reason":"%b",%b\n' % (DONE, reason, statistics[1:])

    def _statistics(self) -> JsonObject:
        """Return the token counts, and the durations in nanoseconds.

        If the engine does not report a duration, Temper's own measurement is used.
        """
        reported = self._usage or UsageReported({})
        counts, timings = read_usage(reported.usage), reported.timings or {}
        now = self._options.stamp.now()
        first_content_at = now if self._first_content_at is None else self._first_content_at
        durations = {
            "total_duration": (now - self._options.began) * _NANOSECONDS,
            "load_duration": 0.0,
            "prompt_eval_duration": _nanoseconds(
                timings, "prompt_ms", first_content_at - self._options.began
            ),
            "eval_duration": _nanoseconds(timings, "predicted_ms", now - first_content_at),
        }
        statistics: JsonObject = {
            name: as_count(timings[name]) if name in timings else round(durations[name])
            for name in DURATIONS
        }
        statistics |= {"prompt_eval_count": counts.prompt, "eval_count": counts.answer}
        if "prompt_tokens_details" in reported.usage:  # the engine has reported the cached tokens
            statistics["prompt_eval_cached_count"] = counts.cached
        return statistics


def _nanoseconds(timings: JsonObject, name: str, measured: float) -> float:
    value = timings.get(name)
    return value * _MILLISECONDS if isinstance(value, int | float) else measured * _NANOSECONDS


class OllamaStream(_Answer):
    """Writes the events of one answer as lines, each a JSON object."""

    def __init__(self, options: AnswerOptions) -> None:
        super().__init__(options)
        self._lines: list[bytes] = []
        self._head = b""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        self._lines, self._head = [], self._options.head()
        for event in events:
            if isinstance(event, TextDelta) and event.text and self._blocks.is_in_text:
                self._add_text("text", event.text, event.logprobs)  # the most common event
            else:
                self._handle(event)
        return b"".join(self._lines)

    def keep_alive(self) -> bytes:
        """Return a line without content, because NDJSON has no comments."""
        return self._options.head() + self._options.content(b'""') + _NOT_DONE

    def comment(self, text: str) -> bytes:
        del text
        return b""

    def end(self) -> bytes:
        last_lines = self.encode_all((ReplyFinished(self._reason),))
        return last_lines + self._options.head() + self._options.content(b'""') + b"," + self._end()

    def fail(self, problem: Problem) -> bytes:
        # as Ollama does: a line with `error` and without `done`
        return error_object(problem) + b"\n"

    def _add_text(self, kind: str, text: str, logprobs: JsonValue) -> None:
        if kind == "thinking":
            content = self._options.content(b'""', b',"thinking":%b' % json.dump(text))
        else:
            content = self._options.content(json.dump(text))
            if logprobs is not None:
                content += _logprobs(_tokens(logprobs))
        self._lines.append(self._head + content + _NOT_DONE)

    def _add_call(self, call: bytes) -> None:
        content = self._options.content(b'""', b',"tool_calls":[%b]' % call)
        self._lines.append(self._head + content + _NOT_DONE)


class OllamaBuilder(_Answer):
    """Builds one answer object from its events."""

    def __init__(self, options: AnswerOptions) -> None:
        super().__init__(options)
        self._texts: dict[str, list[str]] = {"text": [], "thinking": []}
        self._written_calls: list[bytes] = []
        self._token_logprobs: list[JsonValue] = []

    def add(self, event: ReplyEvent) -> None:
        self._handle(event)

    def build(self) -> bytes:
        self._handle(ReplyFinished(self._reason))
        text, thoughts = ("".join(self._texts[kind]) for kind in ("text", "thinking"))
        members = b',"thinking":%b' % json.dump(thoughts) if thoughts else b""
        if self._written_calls:
            members += b',"tool_calls":%b' % json.join_array(self._written_calls)
        content = self._options.content(json.dump(text), members) + _logprobs(self._token_logprobs)
        return self._options.head() + content + b"," + self._end()

    def _add_text(self, kind: str, text: str, logprobs: JsonValue) -> None:
        self._texts[kind].append(text)
        self._token_logprobs += _tokens(logprobs)

    def _add_call(self, call: bytes) -> None:
        self._written_calls.append(call)


def _tokens(logprobs: JsonValue) -> list[JsonValue]:
    """Return the engine's tokens without empty `top_logprobs`."""
    return [
        {name: value for name, value in as_object(token).items() if value != []}
        for token in as_list(as_object(logprobs).get("content"))
    ]


def _logprobs(tokens: list[JsonValue]) -> bytes:
    return b',"logprobs":%b' % json.dump(tokens) if tokens else b""


def error_object(problem: Problem) -> bytes:
    """Write `{"error": "..."}`; clients search for Ollama's words "not found"."""
    message = problem.message
    if problem.code == "model_not_found":
        message = message.replace("The model", "model", 1).replace("does not exist", "not found", 1)
    path = f"{problem.param}: " if problem.param and problem.code is None else ""
    return json.dump({"error": message if message.startswith(path) else path + message})
