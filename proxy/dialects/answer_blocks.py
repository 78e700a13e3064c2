"""Splits the events of an answer into blocks; only one block is open at a time.

    TextDelta("a"), TextDelta("b"), ToolCalled(0, call)
    -> BlockStarted(0, "text"), BlockDelta("a"), BlockDelta("b"), BlockStopped(),
       BlockStarted(1, "tool_use", ...), BlockDelta("{}"), BlockStopped()

Text and reasoning extend an open block of their kind. If a block of another kind is open, they
close it and start a new block. A call is a separate block.

Reasoning of a later attempt may arrive within a streamed call. Such events wait until the arguments
of the call are a complete object and another event arrives. Some engines stream several calls in
parallel, and without guardrails, Temper does not put their events in order. If a call begins
within another call, it waits for the end of the answer. All later events wait as well, except the
arguments of the open call.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from proxy.conversation.json import JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.dialects.foreign_history import sign
from proxy.dialects.lenient_json import parse_object

Kind: TypeAlias = Literal["text", "thinking", "tool_use"]


class BlockStarted(msgspec.Struct, frozen=True):
    """A block began, with its `index`; only calls have an id and a name."""

    index: int
    kind: Kind
    id: str = ""
    name: str = ""


class BlockDelta(msgspec.Struct, frozen=True):
    """More text of the open block; for a call, the text is a part of its arguments."""

    text: str
    logprobs: JsonValue = None


class BlockStopped(msgspec.Struct, frozen=True):
    """The open block is complete; the signature is set only for reasoning."""

    signature: str = ""


BlockStep: TypeAlias = BlockStarted | BlockDelta | BlockStopped


@dataclass(slots=True)
class _OpenBlock:
    """The open block; `call` is the index of its call in the answer, -1 if it is not a call."""

    kind: Kind
    call: int = -1
    texts: list[str] = field(default_factory=list)

    @property
    def is_incomplete_call(self) -> bool:
        return self.kind == "tool_use" and parse_object("".join(self.texts)) is None


class AnswerBlocks:
    """Splits the events of one answer into blocks.

    `new_call_id` returns the id for a call that has none. `no_arguments` is the text to write for a
    call without arguments.
    """

    def __init__(self, new_call_id: Callable[[], str], no_arguments: str = "") -> None:
        self._new_call_id = new_call_id
        self._no_arguments = no_arguments
        self._count = 0
        self._open: _OpenBlock | None = None
        self._waiting: list[ReplyEvent] = []
        self._is_call_waiting = False
        self.has_calls = False
        self.has_incomplete_call = False

    @property
    def is_in_text(self) -> bool:
        return self._open is not None and self._open.kind == "text"

    def feed(self, event: ReplyEvent) -> list[BlockStep]:
        match event:
            case TextDelta(text) | ReasoningDelta(text) if not text:
                return []
            case ToolCallArgumentsDelta(index, text) if self._open and self._open.call == index:
                self._open.texts.append(text)
                return [BlockDelta(text)] if text else []
            case TextDelta() | ReasoningDelta() | ToolCallStarted() | ToolCalled():
                if not self._must_wait(event):
                    return self._begin_block(event)
                self._waiting.append(event)
            case ToolCallArgumentsDelta() if self._is_call_waiting:
                self._waiting.append(event)
            case _:
                pass
        return []

    def interrupt(self) -> list[BlockStep]:
        """End the open block, so that the caller can write its own blocks."""
        return [*self._stop_block(), *self._feed_waiting()]

    def reserve_index(self) -> int:
        """Reserve the index of a block that the caller writes itself."""
        self._count += 1
        return self._count - 1

    def finish(self, *, drops_incomplete_call: bool = False) -> list[BlockStep]:
        """Return the remaining steps.

        With `drops_incomplete_call`, the steps end at an incomplete call. Its block is never
        stopped, because clients run a call as soon as its block is stopped.
        """
        steps: list[BlockStep] = []
        # a waiting event may open a further block, after which other waiting events can follow
        while self._open is not None or self._waiting:
            if drops_incomplete_call and self._open is not None and self._open.is_incomplete_call:
                break
            steps += [*self._stop_block(), *self._feed_waiting()]
        return steps

    def _must_wait(self, event: ReplyEvent) -> bool:
        if self._open is None or not self._open.is_incomplete_call:
            return self._is_call_waiting
        # if the start of a second call waits, its fragments must wait as well
        self._is_call_waiting = self._is_call_waiting or isinstance(
            event, ToolCallStarted | ToolCalled
        )
        return True

    def _begin_block(
        self, event: TextDelta | ReasoningDelta | ToolCallStarted | ToolCalled
    ) -> list[BlockStep]:
        steps: list[BlockStep] = []
        if self._open is not None and self._open.kind == "tool_use":
            steps += [*self._stop_block(), *self._feed_waiting()]
        match event:
            case TextDelta(text, logprobs):
                return [*steps, *self._continue_block("text"), BlockDelta(text, logprobs)]
            case ReasoningDelta(text):
                return [*steps, *self._continue_block("thinking", text), BlockDelta(text)]
            case ToolCallStarted(index, call_id, name):
                return [*steps, *self._start_block("tool_use", index, call_id or "", name)]
            case ToolCalled(index, call):
                steps += self._start_block("tool_use", index, call.id, call.name)
                steps += self.feed(ToolCallArgumentsDelta(index, call.arguments))
                # A call with incomplete arguments stays open, because only the end of the answer
                # shows whether it has to be dropped.
                return (
                    steps
                    if self._open and self._open.is_incomplete_call
                    else [*steps, *self._stop_block()]
                )

    def _continue_block(self, kind: Kind, thought: str = "") -> list[BlockStep]:
        steps = (
            [] if self._open is not None and self._open.kind == kind else self._start_block(kind)
        )
        if self._open is not None and thought:
            self._open.texts.append(thought)
        return steps

    def _start_block(
        self, kind: Kind, call: int = -1, call_id: str = "", name: str = ""
    ) -> list[BlockStep]:
        stopped = self._stop_block()
        self._open = _OpenBlock(kind, call)
        self._count += 1
        if kind == "tool_use":
            self.has_calls = True
            call_id = call_id or self._new_call_id()
        return [*stopped, BlockStarted(self._count - 1, kind, call_id, name)]

    def _stop_block(self) -> list[BlockStep]:
        block, self._open = self._open, None
        if block is None:
            return []
        if block.kind == "thinking":
            return [BlockStopped(sign("".join(block.texts)))]
        self.has_incomplete_call = self.has_incomplete_call or block.is_incomplete_call
        if block.kind == "tool_use" and self._no_arguments and not any(block.texts):
            # SDKs parse the joined fragments as JSON, and "" is not valid JSON
            return [BlockDelta(self._no_arguments), BlockStopped()]
        return [BlockStopped()]

    def _feed_waiting(self) -> list[BlockStep]:
        """Return the steps of the waiting events, with the fragments of each call joined."""
        waiting, self._waiting, self._is_call_waiting = self._waiting, [], False
        return [step for event in _join_calls(waiting) for step in self.feed(event)]


def _join_calls(events: Sequence[ReplyEvent]) -> Iterator[ReplyEvent]:
    """Replace the fragments of each call by one `ToolCalled` at the place where the call starts."""
    arguments: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallArgumentsDelta):
            arguments.setdefault(event.index, []).append(event.text)
    for event in events:
        match event:
            case ToolCallStarted(index, call_id, name):
                text = "".join(arguments.get(index, ()))
                yield ToolCalled(index, ToolCall(call_id or "", name, text))
            case ToolCallArgumentsDelta():
                pass
            case _:
                yield event
