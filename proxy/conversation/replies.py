"""Replies: the events in which one is generated, and the whole that they add up to.

A backend's events come in this order: `ReplyStarted`, then deltas and progress in any order,
`UsageReported` if usage is known, and `ReplyFinished` or `ReplyUnreadable` as the very last.
Towards the client a tool call comes as a backend's does, as far as it is shown while it is written,
or as one `ToolCalled`, once it has been accepted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from proxy.conversation import endings
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import ToolCall, WrittenCall


class ReplyStarted(msgspec.Struct, frozen=True):
    """The backend began a reply; `created` is a Unix time in seconds, None where it gave none."""

    id: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """More text; `logprobs` is the backend's object for it, if the client asked for one."""

    text: str
    logprobs: JsonValue = None


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of what the model thinks before it answers."""

    text: str


class ToolCallStarted(msgspec.Struct, frozen=True):
    """The backend recognised the beginning of a tool call, numbered `index` within the reply."""

    index: int
    id: str | None
    name: str


class ToolCallArgumentsDelta(msgspec.Struct, frozen=True):
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


class PromptProgress(msgspec.Struct, frozen=True):
    """The backend is still reading the prompt: tokens `processed` of `total`, `cached` for free."""

    total: int
    cached: int
    processed: int


class UsageReported(msgspec.Struct, frozen=True):
    """The backend's own account of the reply, passed on as it came.

    `stop` is the client's string that ended it, "" where none did, or nobody told.
    """

    usage: JsonObject
    timings: JsonObject | None = None
    stop: str = ""
    system_fingerprint: str | None = None


class ReplyFinished(msgspec.Struct, frozen=True):
    """The reply is complete; `reason` is that of one of the `endings`."""

    reason: str


class ReplyUnreadable(msgspec.Struct, frozen=True):
    """The backend could not parse what the model wrote, and the text is lost."""

    detail: str


class ToolCalled(msgspec.Struct, frozen=True):
    """An accepted tool call, numbered `index` within the answer the client gets."""

    index: int
    call: ToolCall


class RoundMessages(msgspec.Struct, frozen=True):
    """The messages of the rounds of tools before the answer, for a client that wants them.

    `servers` names the tool server of each tool that ran here.
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

# Takes content as soon as it has come, past all who wait for it; reports whether it took it.
EventSink: TypeAlias = Callable[[Sequence[ReplyEvent]], bool]


class Reply(msgspec.Struct, frozen=True):
    """A finished reply: what the model wrote, split by the backend or by us."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[WrittenCall, ...] = ()
    reason: str = endings.STOP


class ReplyInProgress(msgspec.Struct):
    """Adds up the events of one reply, or of the answer that a client gets."""

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
                self._started.setdefault(index, event)
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
