from collections.abc import Callable

import pytest
from msgspec.structs import replace

from proxy.conversation.replies import (
    ReasoningDelta,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reasoning import EnoughReadError
from proxy.guardrails.reply_text import RespondText, WithheldText
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.verdict import Accepted
from proxy.inference.call_gate import CallGate
from proxy.inference.sent_answer import SentAnswer
from proxy.inference.text_gate import (
    ContinuationGate,
    FirstReplyGate,
    LookaheadGate,
    UnseenGate,
    hold_possible_calls,
    is_content,
)
from tests.fakes.arrivals import is_linear
from tests.fakes.playbook import WEATHER
from tests.fakes.unread_calls import HELD, TOOLS

PARIS = ToolCall("a", "get_weather", '{"city": "Paris"}')


def make(*, shows_prose: bool = True, may_answer: bool = True) -> FirstReplyGate:
    return FirstReplyGate(SentAnswer(), shows_prose=shows_prose, may_answer=may_answer)


def streaming(shown: SentAnswer, *, shows_prose: bool = True) -> FirstReplyGate:
    calls = CallGate(OfferedTools((WEATHER,), TextPolicy.AUTO, ()), shown)
    return FirstReplyGate(shown, calls, shows_prose=shows_prose)


def continuing(text: str, *, adds_text: bool = True) -> ContinuationGate:
    shown = SentAnswer()
    shown.show_text(text)
    return ContinuationGate(shown, adds_text=adds_text)


def test_reasoning_of_a_later_attempt_starts_a_new_paragraph() -> None:
    shown = SentAnswer()
    first, later = (
        FirstReplyGate(shown, shows_prose=False),
        FirstReplyGate(shown, shows_prose=False),
    )
    assert first.show(ReasoningDelta("one")) == [ReasoningDelta("one")]
    assert first.show(ReasoningDelta(" two")) == [ReasoningDelta(" two")]
    assert later.show(ReasoningDelta("three")) == [ReasoningDelta("\n\nthree")]
    assert later.show(ReasoningDelta(" four")) == [ReasoningDelta(" four")]


def test_a_reply_is_unseen_while_its_prose_is_held() -> None:
    release = make(shows_prose=False)
    before = release.is_unseen
    release.show(RespondText("Good"))
    assert (before, release.is_unseen) == (True, False)
    assert not make().is_unseen
    assert make(may_answer=False).is_unseen
    assert continuing("Hi").is_unseen


def test_where_no_answer_is_due_a_message_is_held_too() -> None:
    release = make(shows_prose=False, may_answer=False)
    assert release.show(RespondText("Done.")) == []


def test_text_of_another_reply_is_not_added() -> None:
    assert make().complete(Accepted("Good day", (PARIS,)), is_only_reply=False) == [
        ToolCalled(0, PARIS)
    ]


def test_after_a_broken_call_everything_is_held() -> None:
    release = make()
    assert release.show(Prose("One.")) == [TextDelta("One.")]
    assert release.show(WithheldText("<tool_call>{")) == []
    assert release.show(Prose("Two.")) == []
    assert release.show(RespondText("Three.")) == []
    assert release.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    whole = Accepted("One.<tool_call>{Two.Three.")
    assert release.complete(whole, is_only_reply=True) == [TextDelta("<tool_call>{Two.Three.")]


def test_a_shown_call_releases_held_prose_and_holds_later_text() -> None:
    release = streaming(SentAnswer(), shows_prose=False)
    release.show(Prose("Looking."))
    assert release.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    assert release.show_call(ToolCallArgumentsDelta(0, '{"city": "')) == [
        TextDelta("Looking."),
        ToolCallStarted(0, "a", "get_weather"),
        ToolCallArgumentsDelta(0, '{"city": "'),
    ]
    assert release.show(Prose("\nYes.")) == []
    answer = Accepted("Looking.\nYes.", (PARIS,))
    assert release.complete(answer, is_only_reply=True) == [
        ToolCallArgumentsDelta(0, 'Paris"}'),
        TextDelta("\nYes."),
    ]


def test_a_continuation_shows_nothing_before_its_end() -> None:
    release = continuing("I'll look.")
    assert release.show(Prose("It is")) == []
    assert release.show(RespondText(" sunny.")) == []
    assert release.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    assert release.complete(Accepted("It is sunny.", (PARIS,)), is_only_reply=False) == [
        TextDelta("\n\nIt is sunny."),
        ToolCalled(0, PARIS),
    ]


def test_a_continuation_adds_no_text_twice() -> None:
    def added(text: str) -> list[object]:
        return [*continuing("I'll look.").complete(Accepted(text), is_only_reply=False)]

    assert added("I'll look.") == added(" look. ") == added("") == []
    assert added("I'll look. It is sunny.") == [TextDelta(" It is sunny.")]


def test_text_next_to_a_corrected_call_is_dropped() -> None:
    release = continuing("I'll look.", adds_text=False)
    assert release.complete(Accepted("Sorry.", (PARIS,)), is_only_reply=False) == [
        ToolCalled(0, PARIS)
    ]
    release = continuing("I'll look.", adds_text=False)
    assert release.complete(Accepted("Sorry."), is_only_reply=False) == [TextDelta("\n\nSorry.")]


def test_text_and_calls_commit_to_an_answer_and_reasoning_does_not() -> None:
    assert is_content(TextDelta("a"))
    assert is_content(ToolCallStarted(0, "a", "b"))
    assert not is_content(ReasoningDelta("a"))


@pytest.mark.parametrize("shows_prose", [True, False])
def test_the_work_is_linear_in_the_text(shows_prose: bool) -> None:
    def work(text: str) -> None:
        release = make(shows_prose=shows_prose)
        for start in range(0, len(text), 50):
            release.show(Prose(text[start : start + 50]))
        release.show(RespondText("Hi"))

    assert is_linear(work, lambda size: "x" * size, 400_000)


OFFER = OfferedTools((WEATHER,), TextPolicy.AUTO, ())
OFFERED = OfferedTools(TOOLS, TextPolicy.AUTO, ())
BEGINNING = "commentary to=functions."


def make_watched(*, shows_prose: bool = True) -> LookaheadGate:
    shown = SentAnswer()
    release = FirstReplyGate(shown, CallGate(OFFER, shown), shows_prose=shows_prose)
    return LookaheadGate(release, OFFERED)


def test_only_prose_that_would_be_an_answer_is_watched() -> None:
    release = FirstReplyGate(SentAnswer(), shows_prose=True)
    accepting = replace(OFFER, text_policy=TextPolicy.ACCEPT)
    assert isinstance(hold_possible_calls(release, OFFER, is_retry=False), LookaheadGate)
    assert hold_possible_calls(release, accepting, is_retry=False) is release
    with_schema = replace(OFFER, answer_schema={})
    assert hold_possible_calls(release, with_schema, is_retry=False) is release


@pytest.mark.parametrize("text", HELD)
def test_no_part_of_a_call_is_visible(text: str) -> None:
    release = make_watched()
    assert [event for letter in text for event in release.show(Prose(letter))] == []


def test_the_confirmation_word_is_held_only_if_it_was_requested() -> None:
    assert make_watched().show(Prose("Done")) == [TextDelta("Done")]
    release = LookaheadGate(FirstReplyGate(SentAnswer(), shows_prose=True), OFFERED, is_retry=True)
    assert release.show(Prose("Done")) == []
    assert release.show(Prose(" it")) == [TextDelta("Done"), TextDelta(" it")]


def test_reasoning_is_never_held() -> None:
    release = make_watched()
    release.show(Prose(BEGINNING))
    assert release.show(ReasoningDelta("hm")) == [ReasoningDelta("hm")]
    assert release.show(Prose("get_weather{")) == []


def test_a_message_a_call_and_the_end_release_held_text() -> None:
    held = TextDelta(BEGINNING)
    release = make_watched()
    release.show(Prose(BEGINNING))
    assert release.show(RespondText("Hi")) == [held, TextDelta("Hi")]
    release = make_watched()
    release.show(Prose(BEGINNING))
    assert release.show(WithheldText("{")) == [held]
    release = make_watched()
    release.show(Prose(BEGINNING))
    started = ToolCallStarted(0, "a", "get_weather")
    assert release.show_call(started) == [held]
    begun = ToolCallArgumentsDelta(0, '{"city": "')
    assert release.show_call(begun) == [started, begun]
    release = make_watched()
    release.show(Prose(BEGINNING))
    assert release.end() == [held]
    assert release.end() == []


def test_held_prose_waits_for_the_verdict() -> None:
    release = make_watched(shows_prose=False)
    assert release.is_unseen
    assert release.show(Prose("It")) == []
    assert release.end() == []
    call = ToolCall("a", "get_weather", '{"city":"Paris"}')
    assert release.complete(Accepted("It", (call,)), is_only_reply=True) == [
        TextDelta("It"),
        ToolCalled(0, call),
    ]


@pytest.mark.parametrize(
    "text",
    [
        lambda size: f'{BEGINNING}get_weather json{{"city": "{"x y" * size}',
        lambda size: f"{BEGINNING}get_weather {'city=1,' * size}",
        lambda size: "[" * size,
    ],
)
def test_the_work_is_linear(text: Callable[[int], str]) -> None:
    def show(text: str) -> None:
        release = make_watched()
        for start in range(0, len(text), 4):
            release.show(Prose(text[start : start + 4]))

    assert is_linear(show, text, 20_000)


def test_nothing_is_shown_of_a_reply_that_only_counts_as_a_call() -> None:
    gate = UnseenGate(SentAnswer())
    assert gate.show(ReasoningDelta("hm")) == []
    assert gate.show(Prose("DO")) == []
    assert gate.show(WithheldText("<tool_call>" * 100)) == []
    assert gate.complete(Accepted("DONE", (PARIS,)), is_only_reply=False) == []
    with pytest.raises(EnoughReadError):
        gate.show(Prose("NE, as everything that was asked for is there"))
