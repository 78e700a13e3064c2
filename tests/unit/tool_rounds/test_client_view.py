from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    UsageReported,
)
from proxy.tool_rounds.client_view import ClientView
from tests.fakes.rounds import called


def test_only_what_is_said_is_shown_of_a_reply() -> None:
    view = ClientView()
    said: list[ReplyEvent] = [
        ReplyStarted("a"),
        ReasoningDelta("Hm."),
        PromptProgress(2, 1, 1),
        TextDelta("3"),
    ]
    unsaid: list[ReplyEvent] = [ToolCalled(0, called(1)), UsageReported({}), ReplyFinished("stop")]
    assert view.of([*said, *unsaid], are_asides=False) == said


def test_asides_go_out_as_reasoning() -> None:
    assert ClientView().of([TextDelta("Well.")], are_asides=True) == [ReasoningDelta("Well.")]


def test_the_text_of_another_reply_begins_a_paragraph() -> None:
    view = ClientView()
    view.of([TextDelta("One.")], are_asides=False)
    view.go_on()
    shown = view.of([ReplyStarted(), TextDelta("T"), TextDelta("wo.")], are_asides=False)
    assert shown == [TextDelta("\n\n"), TextDelta("T"), TextDelta("wo.")]


def test_the_first_text_of_all_begins_without_a_paragraph() -> None:
    view = ClientView()
    view.of([ReasoningDelta("Hm.")], are_asides=False)
    view.go_on()
    assert view.of([TextDelta("One.")], are_asides=False) == [TextDelta("One.")]
