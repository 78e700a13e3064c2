"""The events of a reply, and the complete reply.

A backend yields these events in this order: `ReplyStarted`, then deltas and progress in any order,
`UsageReported` if the engine reports usage, and at the end `ReplyFinished` or `ReplyUnreadable`.
The client's encoder receives the same events, with one exception: a call that Temper does not
stream arrives as one `ToolCalled`, after Temper has accepted the call.

    ReplyStarted("chatcmpl-1", 1700000000, "qwen3")
    TextDelta("I look.")
    ToolCallStarted(0, "call_1", "get_time"), ToolCallArgumentsDelta(0, "{}")
    UsageReported({"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29})
    ReplyFinished("tool_calls")
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from proxy.conversation import endings
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import ToolCall, WrittenCall


class ReplyStarted(msgspec.Struct, frozen=True):
    """The engine began a reply; `created` is a Unix time in seconds."""

    id: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """More text; `logprobs` is the engine's object for the text, if the client requested it."""

    text: str
    logprobs: JsonValue = None


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More reasoning before the answer."""

    text: str


class ToolCallStarted(msgspec.Struct, frozen=True):
    """A tool call began; `index` is its number within the reply."""

    index: int
    id: str | None
    name: str


class ToolCallArgumentsDelta(msgspec.Struct, frozen=True):
    """The next fragment of a call's arguments, which are JSON text."""

    index: int
    text: str


class PromptProgress(msgspec.Struct, frozen=True):
    """The engine has read `processed` of `total` prompt tokens, `cached` of them from its cache."""

    total: int
    cached: int
    processed: int

    @property
    def share(self) -> float:
        """The fraction of the uncached tokens that the engine has read, from 0 to 1."""
        total = self.total - self.cached  # cached tokens take no time
        return max(0.0, min(1.0, (self.processed - self.cached) / total)) if total > 0 else 1.0


class UsageReported(msgspec.Struct, frozen=True):
    """The engine's usage and timings of the reply, unchanged.

    `stop` is the client's stop string that ended the reply; "" for any other end, or if unknown.
    """

    usage: JsonObject
    timings: JsonObject | None = None
    stop: str = ""
    system_fingerprint: str | None = None


class ReplyFinished(msgspec.Struct, frozen=True):
    """The reply has ended; `reason` is a reason of `endings.ENDINGS`."""

    reason: str


class ReplyUnreadable(msgspec.Struct, frozen=True):
    """The engine could not parse the generated text, and did not return it."""

    detail: str


class ToolCalled(msgspec.Struct, frozen=True):
    """An accepted tool call; `index` is its number within the client's answer."""

    index: int
    call: ToolCall


class RoundMessages(msgspec.Struct, frozen=True):
    """The messages of the tool rounds before the answer, for clients that request them.

    `servers` maps the name of each tool that Temper ran to the tool server.
    """

    messages: tuple[JsonObject, ...]
    servers: Mapping[str, str] = {}


ReplyEvent: TypeAlias = (
    ReplyStarted
    | TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallArgumentsDelta
    | PromptProgress
    | UsageReported
    | ReplyFinished
    | ReplyUnreadable
    | ToolCalled
    | RoundMessages
)

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallArgumentsDelta
DELTAS = (TextDelta, ReasoningDelta, ToolCallArgumentsDelta)

# Receives content before all other consumers of events. If it returns True, it has processed the
# content, and the other consumers do not receive it.
EventSink: TypeAlias = Callable[[Sequence[ReplyEvent]], bool]


class Reply(msgspec.Struct, frozen=True):
    """A finished reply, which the engine or Temper has split into text, reasoning and calls."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[WrittenCall, ...] = ()
    reason: str = endings.STOP


class ReplyInProgress(msgspec.Struct):
    """Accumulates the events of a reply or of a client's answer."""

    _text: list[str] = msgspec.field(default_factory=list)
    _reasoning: list[str] = msgspec.field(default_factory=list)
    _started: dict[int, ToolCallStarted] = msgspec.field(default_factory=dict)
    _arguments: dict[int, list[str]] = msgspec.field(default_factory=dict)

    def add(self, event: ReplyEvent) -> None:
        match event:
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallStarted(index):
                self._started.setdefault(index, event)  # some engines repeat the start
            case ToolCallArgumentsDelta(index, text):
                self._arguments.setdefault(index, []).append(text)
            case ToolCalled(index, call):
                self._started.setdefault(index, ToolCallStarted(index, call.id, call.name))
                self._arguments[index] = [call.arguments]
            case _:
                pass

    def finish(self, reason: str) -> Reply:
        calls = tuple(
            WrittenCall(started.name, "".join(self._arguments.get(index, ())), started.id)
            for index, started in sorted(self._started.items())
        )
        return Reply("".join(self._text), "".join(self._reasoning), calls, reason)
