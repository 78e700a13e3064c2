"""The blocks of an answer, from its events: one open at a time, and none of them opened again.

Theory of operation
-------------------
Text and thoughts flow into the block that is open, if it is of their kind, and else close it and
open one. A call is a block of its own. While one is being streamed, thoughts of a later attempt may
come before its rest: whatever is not of the call waits until the call is over. It is over when its
arguments are a whole object and another call begins, or when the answer ends. A call that begins
although the one before is not over (some backends write several at the same time, and where nothing
is guarded they are passed on) waits for the end of the answer, with everything that follows it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.dialects.foreign_history import ThoughtSigner

Kind: TypeAlias = Literal["text", "thinking", "tool_use"]


class BlockStarted(msgspec.Struct, frozen=True):
    """A block begins, numbered `index`; only calls have an id and a name."""

    index: int
    kind: Kind
    id: str = ""
    name: str = ""


class BlockDelta(msgspec.Struct, frozen=True):
    """More of the text of the block that is open; of a call, of its arguments."""

    text: str


class BlockStopped(msgspec.Struct, frozen=True):
    """The block that was open is complete; a thought is signed."""

    signature: str = ""


BlockStep: TypeAlias = BlockStarted | BlockDelta | BlockStopped


@dataclass(slots=True)
class _OpenBlock:
    """The block that is open; `call` is the number of its call in the answer."""

    kind: Kind
    call: int = -1
    arguments: list[str] = field(default_factory=list)
    signer: ThoughtSigner = field(default_factory=ThoughtSigner)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing of a call."""
        return as_object("".join(self.arguments)) is not None


class AnswerBlocks:
    """Cuts the events of one answer into blocks; `new_call_id` names calls that have no id."""

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._count = 0
        self._open: _OpenBlock | None = None
        self._waiting: list[ReplyEvent] = []
        self._is_stuck = False
        self.has_calls = False
        self.has_half_call = False

    @property
    def is_in_text(self) -> bool:
        """Whether more text would go on with the block that is open."""
        return self._open is not None and self._open.kind == "text"

    def feed(self, event: ReplyEvent) -> list[BlockStep]:
        """Return what an event says about blocks."""
        match event:
            case TextDelta(text) | ReasoningDelta(text) if not text:
                return []
            case TextDelta() | ReasoningDelta() | ToolCallArgumentsDelta():
                return self._feed_text(event)
            case ToolCallStarted() | ToolCalled():
                return self._feed_call(event)
            case _:
                return []

    def finish(self) -> list[BlockStep]:
        """Return the rest."""
        return [*self._stop(), *self._catch_up()]

    def _feed_text(
        self, event: TextDelta | ReasoningDelta | ToolCallArgumentsDelta
    ) -> list[BlockStep]:
        is_open = self._open
        if isinstance(event, ToolCallArgumentsDelta):
            if is_open is None or is_open.call != event.index:
                self._waiting.append(event)
                return []
            is_open.arguments.append(event.text)
            return [BlockDelta(event.text)] if event.text else []
        if is_open is not None and is_open.kind == "tool_use":
            self._waiting.append(event)
            return []
        kind: Kind = "text" if isinstance(event, TextDelta) else "thinking"
        steps: list[BlockStep] = []
        if is_open is None or is_open.kind != kind:
            steps += [*self._stop(), self._start(_OpenBlock(kind))]
        if self._open is not None and kind == "thinking":
            self._open.signer.add(event.text)
        return [*steps, BlockDelta(event.text)]

    def _feed_call(self, event: ToolCallStarted | ToolCalled) -> list[BlockStep]:
        is_open = self._open
        if is_open is not None and is_open.kind == "tool_use":
            self._is_stuck = self._is_stuck or not is_open.is_whole
            if self._is_stuck:
                self._waiting.append(event)
                return []
        before = [*self._stop(), *self._catch_up()]
        self.has_calls = True
        block = _OpenBlock("tool_use", event.index)
        if isinstance(event, ToolCallStarted):
            return [*before, self._start(block, event.id or "", event.name)]
        started = self._start(block, event.call.id, event.call.name)
        block.arguments.append(event.call.arguments)
        written = [BlockDelta(event.call.arguments)] if event.call.arguments else []
        return [*before, started, *written, *self._stop()]

    def _start(self, block: _OpenBlock, call_id: str = "", name: str = "") -> BlockStarted:
        self._open = block
        self._count += 1
        if block.kind == "tool_use":
            call_id = call_id or self._new_call_id()
        return BlockStarted(self._count - 1, block.kind, call_id, name)

    def _stop(self) -> list[BlockStep]:
        """Close the block that is open, if there is one."""
        block, self._open = self._open, None
        if block is None:
            return []
        if block.kind == "thinking":
            return [BlockStopped(block.signer.signature)]
        if block.kind == "tool_use":
            self.has_half_call = self.has_half_call or not block.is_whole
            if not any(block.arguments):  # nothing stands for no arguments
                return [BlockDelta("{}"), BlockStopped()]
        return [BlockStopped()]

    def _catch_up(self) -> list[BlockStep]:
        """Return what has waited for the end of a call, further calls as wholes."""
        waiting, self._waiting, self._is_stuck = self._waiting, [], False
        steps: list[BlockStep] = []
        for event in _with_whole_calls(waiting):
            steps += self.feed(event)
        return [*steps, *self._stop()]


def _with_whole_calls(events: Sequence[ReplyEvent]) -> Iterator[ReplyEvent]:
    """Put the pieces of each call together, at the place of its beginning."""
    arguments: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallArgumentsDelta):
            arguments.setdefault(event.index, []).append(event.text)
    for event in events:
        match event:
            case ToolCallStarted(index, call_id, name):
                written = "".join(arguments.get(index, ()))
                yield ToolCalled(index, ToolCall(call_id or "", name, written))
            case ToolCallArgumentsDelta():
                pass
            case _:
                yield event


def as_object(arguments: str) -> JsonObject | None:
    """Read the arguments of a call; None where they are no whole object."""
    try:
        value = json.parse(arguments)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
