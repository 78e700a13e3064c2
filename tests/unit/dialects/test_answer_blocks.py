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
    """Return the steps of events, and those of the end."""
    made = AnswerBlocks(lambda: "toolu_1", "{}")
    return [step for event in events for step in made.feed(event)], made.finish()


def started(index: int, call_id: str | None = "c") -> ToolCallStarted:
    return ToolCallStarted(index, call_id, "f")


def wrote(index: int, text: str) -> ToolCallArgumentsDelta:
    return ToolCallArgumentsDelta(index, text)


def call(index: int, call_id: str = "c") -> BlockStarted:
    return BlockStarted(index, "tool_use", call_id, "f")


def test_a_block_continues_until_a_different_event() -> None:
    steps, rest = blocks(TextDelta("a"), TextDelta("b"), ReasoningDelta("c"), ReasoningDelta("d"))
    assert steps == [
        BlockStarted(0, "text"),
        BlockDelta("a"),
        BlockDelta("b"),
        BlockStopped(),
        BlockStarted(1, "thinking"),
        BlockDelta("c"),
        BlockDelta("d"),
    ]
    assert rest == [BlockStopped(sign("cd"))]


def test_an_empty_event_opens_no_block() -> None:
    assert blocks(TextDelta(""), ReasoningDelta(""), ReplyUnreadable("x")) == ([], [])


def test_a_call_that_is_streamed_is_closed_by_the_next() -> None:
    steps, rest = blocks(started(0), wrote(0, ""), wrote(0, "{}"), started(1, None), wrote(1, "{"))
    assert steps == [call(0), BlockDelta("{}"), BlockStopped(), call(1, "toolu_1"), BlockDelta("{")]
    assert rest == [BlockStopped()]


def test_a_whole_call_is_a_separate_block() -> None:
    whole = ToolCalled(0, ToolCall("c", "f", "{}"))
    steps, rest = blocks(TextDelta("a"), whole, TextDelta("b"))
    assert steps[2:] == [
        BlockStopped(),
        call(1),
        BlockDelta("{}"),
        BlockStopped(),
        BlockStarted(2, "text"),
        BlockDelta("b"),
    ]
    assert rest == [BlockStopped()]


def test_events_during_a_call_wait_for_its_end() -> None:
    amid = (started(0), ReasoningDelta("a"), TextDelta("b"), wrote(0, "{}"))
    steps, rest = blocks(*amid)
    assert steps == [call(0), BlockDelta("{}")]
    waited = [
        BlockStopped(),
        BlockStarted(1, "thinking"),
        BlockDelta("a"),
        BlockStopped(sign("a")),
        BlockStarted(2, "text"),
        BlockDelta("b"),
        BlockStopped(),
    ]
    assert rest == waited
    steps, _ = blocks(*amid, started(1))
    assert steps == [call(0), BlockDelta("{}"), *waited, call(3)]


def test_interleaved_calls_are_serialized() -> None:
    whole = ToolCalled(2, ToolCall("d", "g", "{}"))
    events = (started(0), started(1), wrote(0, "{"), wrote(1, "["), whole, TextDelta("a"))
    steps, rest = blocks(*events, wrote(0, "}"), wrote(1, "]"), wrote(9, "never begun"))
    assert steps == [call(0), BlockDelta("{"), BlockDelta("}")]
    assert rest == [
        BlockStopped(),
        call(1),
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
    ("events", "is_half"),
    [
        ([TextDelta("a")], False),
        ([started(0), wrote(0, "{}")], False),
        ([started(0), wrote(0, '{"a":')], True),
        ([started(0)], True),
    ],
)
def test_a_call_without_arguments_or_without_an_end_is_half_a_call(
    events: list[ReplyEvent], is_half: bool
) -> None:
    made = AnswerBlocks(lambda: "toolu_1", "{}")
    for event in events:
        made.feed(event)
    rest = made.finish()
    assert made.has_half_call is is_half
    assert (BlockDelta("{}") in rest) is (events == [started(0)])
