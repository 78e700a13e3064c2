from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    Reply,
    ReplyEvent,
    ReplyFinished,
    ReplyInProgress,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.tools import WrittenCall


def reply(*events: ReplyEvent, reason: str = "stop") -> Reply:
    progress = ReplyInProgress()
    for event in events:
        progress.add(event)
    return progress.finish(reason)


def test_a_reply_without_events_is_empty() -> None:
    assert reply() == Reply()


def test_text_and_reasoning_are_joined_separately() -> None:
    assert reply(
        ReasoningDelta("H"), TextDelta("Hel"), ReasoningDelta("m"), TextDelta("lo"), reason="length"
    ) == Reply("Hello", "Hm", reason="length")


def test_calls_are_joined_and_ordered_by_index() -> None:
    assert reply(
        ToolCallStarted(1, None, "g"),
        ToolCallStarted(0, "c", "f"),
        ToolCallArgumentsDelta(0, "{"),
        ToolCallArgumentsDelta(1, "[]"),
        ToolCallArgumentsDelta(0, "}"),
    ).calls == (WrittenCall("f", "{}", "c"), WrittenCall("g", "[]"))


def test_a_repeated_start_of_a_call_is_ignored() -> None:
    assert reply(ToolCallStarted(0, "c", "f"), ToolCallStarted(0, "d", "g")).calls == (
        WrittenCall("f", "", "c"),
    )


def test_arguments_of_a_call_without_a_start_are_ignored() -> None:
    assert reply(ToolCallArgumentsDelta(0, "{}")).calls == ()


def test_events_without_content_add_nothing_to_the_reply() -> None:
    assert (
        reply(ReplyStarted("c"), PromptProgress(2, 0, 1), UsageReported({}), ReplyFinished("stop"))
        == Reply()
    )
