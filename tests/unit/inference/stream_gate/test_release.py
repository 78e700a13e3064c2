import pytest

from proxy.conversation.replies import (
    ReasoningDelta,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import BrokenCall, Prose, Reasoned, RespondText
from proxy.guardrails.verdict import Accepted
from proxy.inference.sent_answer import ShownAnswer
from proxy.inference.stream_gate.calls import CallsRelease
from proxy.inference.stream_gate.release import Continuation, Release, is_content
from tests.fakes.arrivals import is_linear
from tests.fakes.playbook import WEATHER

PARIS = ToolCall("a", "get_weather", '{"city": "Paris"}')


def make(*, shows_prose: bool = True, is_answer_due: bool = True) -> Release:
    return Release(ShownAnswer(), shows_prose=shows_prose, is_answer_due=is_answer_due)


def streaming(shown: ShownAnswer, *, shows_prose: bool = True) -> Release:
    calls = CallsRelease(OfferedTools((WEATHER,), TextPolicy.AUTO, ()), shown)
    return Release(shown, calls, shows_prose=shows_prose)


def continuing(text: str, *, adds_text: bool = True) -> Continuation:
    shown = ShownAnswer()
    shown.show_text(text)
    return Continuation(shown, adds_text=adds_text)


def test_reasoning_is_shown_at_once_whatever_the_policy() -> None:
    assert make(shows_prose=False).show(Reasoned("hm")) == [ReasoningDelta("hm")]
    assert continuing("Hi").show(Reasoned("hm")) == [ReasoningDelta("hm")]


def test_thoughts_of_a_later_attempt_begin_a_new_paragraph() -> None:
    shown = ShownAnswer()
    first, later = Release(shown, shows_prose=False), Release(shown, shows_prose=False)
    assert first.show(Reasoned("one")) == [ReasoningDelta("one")]
    assert first.show(Reasoned(" two")) == [ReasoningDelta(" two")]
    assert later.show(Reasoned("three")) == [ReasoningDelta("\n\nthree")]
    assert later.show(Reasoned(" four")) == [ReasoningDelta(" four")]


def test_welcome_prose_is_shown_at_once() -> None:
    release = make()
    assert release.show(Prose("Good")) == [TextDelta("Good")]
    assert release.complete(Accepted("Good day"), is_own=True) == [TextDelta(" day")]


def test_white_space_alone_commits_to_nothing() -> None:
    release = streaming(ShownAnswer())
    assert release.show(Prose("\n\n")) == []
    assert release.show_call(ToolCallStarted(0, "a", "unknown")) == []
    assert release.show(Prose("\n")) == []
    assert release.complete(Accepted("\n\n\n", (PARIS,)), is_own=True) == [
        TextDelta("\n\n\n"),
        ToolCalled(0, PARIS),
    ]


def test_other_prose_is_held_until_the_reply_is_judged() -> None:
    release = make(shows_prose=False)
    assert release.show(Prose("Good")) == []
    assert release.complete(Accepted("Good day"), is_own=True) == [TextDelta("Good day")]


def test_a_reply_is_unseen_while_its_prose_is_held() -> None:
    release = make(shows_prose=False)
    before = release.is_unseen
    release.show(RespondText("Good"))
    assert (before, release.is_unseen) == (True, False)
    assert not make().is_unseen
    assert make(is_answer_due=False).is_unseen
    assert continuing("Hi").is_unseen


def test_a_message_takes_held_prose_along() -> None:
    release = make(shows_prose=False)
    assert release.show(Prose("One.")) == []
    assert release.show(RespondText("\n\nTwo.")) == [TextDelta("One.\n\nTwo.")]
    assert release.complete(Accepted("One.\n\nTwo."), is_own=True) == []


def test_where_no_answer_is_due_a_message_is_held_too() -> None:
    release = make(shows_prose=False, is_answer_due=False)
    assert release.show(RespondText("Done.")) == []


def test_the_text_of_another_reply_is_not_added_to_what_was_shown() -> None:
    assert make().complete(Accepted("Good day", (PARIS,)), is_own=False) == [ToolCalled(0, PARIS)]


def test_from_a_botched_call_on_everything_is_held() -> None:
    release = make()
    assert release.show(Prose("One.")) == [TextDelta("One.")]
    assert release.show(BrokenCall("<tool_call>{")) == []
    assert release.show(Prose("Two.")) == []
    assert release.show(RespondText("Three.")) == []
    assert release.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    whole = Accepted("One.<tool_call>{Two.Three.")
    assert release.complete(whole, is_own=True) == [TextDelta("<tool_call>{Two.Three.")]


def test_a_call_that_is_shown_takes_held_prose_along_and_holds_what_follows() -> None:
    release = streaming(ShownAnswer(), shows_prose=False)
    release.show(Prose("Looking."))
    assert release.show_call(ToolCallStarted(0, "a", "get_weather")) == [
        TextDelta("Looking."),
        ToolCallStarted(0, "a", "get_weather"),
    ]
    assert release.show_call(ToolCallArgumentsDelta(0, "{")) == [ToolCallArgumentsDelta(0, "{")]
    assert release.show(Prose("\nYes.")) == []
    answer = Accepted("Looking.\nYes.", (PARIS,))
    assert release.complete(answer, is_own=True) == [
        ToolCallArgumentsDelta(0, '"city": "Paris"}'),
        TextDelta("\nYes."),
    ]


def test_a_continuation_shows_nothing_before_its_end() -> None:
    release = continuing("I'll look.")
    assert release.show(Prose("It is")) == []
    assert release.show(RespondText(" sunny.")) == []
    assert release.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    assert release.complete(Accepted("It is sunny.", (PARIS,)), is_own=False) == [
        TextDelta("\n\nIt is sunny."),
        ToolCalled(0, PARIS),
    ]


def test_a_continuation_adds_no_text_twice() -> None:
    def added(text: str) -> list[object]:
        return [*continuing("I'll look.").complete(Accepted(text), is_own=False)]

    assert added("I'll look.") == added(" look. ") == added("") == []
    assert added("I'll look. It is sunny.") == [TextDelta(" It is sunny.")]


def test_beside_a_corrected_call_text_is_left_out() -> None:
    release = continuing("I'll look.", adds_text=False)
    assert release.complete(Accepted("Sorry.", (PARIS,)), is_own=False) == [ToolCalled(0, PARIS)]
    release = continuing("I'll look.", adds_text=False)
    assert release.complete(Accepted("Sorry."), is_own=False) == [TextDelta("\n\nSorry.")]


def test_text_behind_a_call_alone_needs_no_paragraph() -> None:
    shown = ShownAnswer()
    shown.complete_calls([PARIS])
    release = Continuation(shown, adds_text=True)
    assert release.complete(Accepted("Sunny."), is_own=False) == [TextDelta("Sunny.")]


def test_text_and_calls_commit_to_an_answer_and_thoughts_do_not() -> None:
    assert is_content(TextDelta("a"))
    assert is_content(ToolCallStarted(0, "a", "b"))
    assert not is_content(ReasoningDelta("a"))


@pytest.mark.parametrize("shows_prose", [True, False])
def test_the_work_is_linear_in_the_text(shows_prose: bool) -> None:
    def work(text: str) -> None:
        release = make(shows_prose=shows_prose)
        for place in range(0, len(text), 50):
            release.show(Prose(text[place : place + 50]))
        release.show(RespondText("Hi"))

    assert is_linear(work, lambda size: "x" * size, 400_000)
