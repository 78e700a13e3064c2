import pytest

from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.dialects.answer_blocks import (
    AnswerBlocks,
    BlockDelta,
    BlockStarted,
    BlockStep,
    BlockStopped,
)
from proxy.dialects.foreign_history import sign


def blocks(*events: ReplyEvent) -> tuple[list[BlockStep], list[BlockStep]]:
    """Return the steps that the events cause, and the steps that `finish` adds."""
    answer_blocks = AnswerBlocks(lambda: "toolu_1", "{}")
    return [step for event in events for step in answer_blocks.feed(event)], answer_blocks.finish()


def call_started(index: int, call_id: str | None = "c") -> ToolCallStarted:
    return ToolCallStarted(index, call_id, "f")


def arguments_delta(index: int, text: str) -> ToolCallArgumentsDelta:
    return ToolCallArgumentsDelta(index, text)


def block_started(index: int, call_id: str = "c") -> BlockStarted:
    return BlockStarted(index, "tool_use", call_id, "f")


def test_a_block_contains_consecutive_events_of_the_same_type() -> None:
    steps, last_steps = blocks(
        TextDelta("a"), TextDelta("b"), ReasoningDelta("c"), ReasoningDelta("d")
    )
    assert steps == [
        BlockStarted(0, "text"),
        BlockDelta("a"),
        BlockDelta("b"),
        BlockStopped(),
        BlockStarted(1, "thinking"),
        BlockDelta("c"),
        BlockDelta("d"),
    ]
    assert last_steps == [BlockStopped(sign("cd"))]


def test_an_empty_event_opens_no_block() -> None:
    assert blocks(TextDelta(""), ReasoningDelta(""), ReplyUnreadable("x")) == ([], [])


def test_the_next_call_stops_the_block_of_a_streamed_call() -> None:
    steps, last_steps = blocks(
        call_started(0),
        arguments_delta(0, ""),
        arguments_delta(0, "{}"),
        call_started(1, None),
        arguments_delta(1, "{"),
    )
    assert steps == [
        block_started(0),
        BlockDelta("{}"),
        BlockStopped(),
        block_started(1, "toolu_1"),
        BlockDelta("{"),
    ]
    assert last_steps == [BlockStopped()]


def test_a_complete_call_is_a_separate_block() -> None:
    whole = ToolCalled(0, ToolCall("c", "f", "{}"))
    steps, last_steps = blocks(TextDelta("a"), whole, TextDelta("b"))
    assert steps[2:] == [
        BlockStopped(),
        block_started(1),
        BlockDelta("{}"),
        BlockStopped(),
        BlockStarted(2, "text"),
        BlockDelta("b"),
    ]
    assert last_steps == [BlockStopped()]


def test_text_during_an_incomplete_call_is_sent_after_the_call() -> None:
    events = (call_started(0), ReasoningDelta("a"), TextDelta("b"), arguments_delta(0, "{}"))
    steps, last_steps = blocks(*events)
    assert steps == [block_started(0), BlockDelta("{}")]
    waited = [
        BlockStopped(),
        BlockStarted(1, "thinking"),
        BlockDelta("a"),
        BlockStopped(sign("a")),
        BlockStarted(2, "text"),
        BlockDelta("b"),
        BlockStopped(),
    ]
    assert last_steps == waited
    steps, _ = blocks(*events, call_started(1))
    assert steps == [block_started(0), BlockDelta("{}"), *waited, block_started(3)]


def test_interleaved_calls_become_consecutive_blocks() -> None:
    whole = ToolCalled(2, ToolCall("d", "g", "{}"))
    events = (
        call_started(0),
        call_started(1),
        arguments_delta(0, "{"),
        arguments_delta(1, "["),
        whole,
        TextDelta("a"),
    )
    steps, last_steps = blocks(
        *events, arguments_delta(0, "}"), arguments_delta(1, "]"), arguments_delta(9, "never begun")
    )
    assert steps == [block_started(0), BlockDelta("{"), BlockDelta("}")]
    assert last_steps == [
        BlockStopped(),
        block_started(1),
        BlockDelta("[]"),
        BlockStopped(),
        BlockStarted(2, "tool_use", "d", "g"),
        BlockDelta("{}"),
        BlockStopped(),
        BlockStarted(3, "text"),
        BlockDelta("a"),
        BlockStopped(),
    ]


@pytest.mark.parametrize(
    ("events", "is_incomplete"),
    [
        ([TextDelta("a")], False),
        ([call_started(0), arguments_delta(0, "{}")], False),
        ([call_started(0), arguments_delta(0, '{"a":')], True),
        ([call_started(0)], True),
    ],
)
def test_a_call_without_complete_arguments_is_reported_as_incomplete(
    events: list[ReplyEvent], is_incomplete: bool
) -> None:
    answer_blocks = AnswerBlocks(lambda: "toolu_1", "{}")
    for event in events:
        answer_blocks.feed(event)
    last_steps = answer_blocks.finish()
    assert answer_blocks.has_incomplete_call is is_incomplete
    assert (BlockDelta("{}") in last_steps) is (events == [call_started(0)])
