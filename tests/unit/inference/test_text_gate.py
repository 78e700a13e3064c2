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


def first_reply_gate(*, shows_prose: bool = True, may_answer: bool = True) -> FirstReplyGate:
    return FirstReplyGate(SentAnswer(), shows_prose=shows_prose, may_answer=may_answer)


def streaming_gate(shown: SentAnswer, *, shows_prose: bool = True) -> FirstReplyGate:
    calls = CallGate(OfferedTools((WEATHER,), TextPolicy.AUTO, ()), shown)
    return FirstReplyGate(shown, calls, shows_prose=shows_prose)


def continuation_gate(text: str, *, adds_text: bool = True) -> ContinuationGate:
    shown = SentAnswer()
    shown.show_text(text)
    return ContinuationGate(shown, adds_text=adds_text)


def test_reasoning_of_a_second_attempt_begins_a_new_paragraph() -> None:
    shown = SentAnswer()
    first, later = (
        FirstReplyGate(shown, shows_prose=False),
        FirstReplyGate(shown, shows_prose=False),
    )
    assert first.show(ReasoningDelta("one")) == [ReasoningDelta("one")]
    assert first.show(ReasoningDelta(" two")) == [ReasoningDelta(" two")]
    assert later.show(ReasoningDelta("three")) == [ReasoningDelta("\n\nthree")]
    assert later.show(ReasoningDelta(" four")) == [ReasoningDelta(" four")]


def test_a_reply_is_unseen_until_its_text_is_shown() -> None:
    gate = first_reply_gate(shows_prose=False)
    before = gate.is_unseen
    gate.show(RespondText("Good"))
    assert (before, gate.is_unseen) == (True, False)
    assert not first_reply_gate().is_unseen
    assert first_reply_gate(may_answer=False).is_unseen
    assert continuation_gate("Hi").is_unseen


def test_a_respond_message_is_not_shown_if_may_answer_is_false() -> None:
    gate = first_reply_gate(shows_prose=False, may_answer=False)
    assert gate.show(RespondText("Done.")) == []


def test_the_method_complete_adds_no_text_unless_the_reply_is_the_only_one() -> None:
    assert first_reply_gate().complete(Accepted("Good day", (PARIS,)), is_only_reply=False) == [
        ToolCalled(0, PARIS)
    ]


def test_after_a_broken_call_text_and_calls_are_shown_only_at_the_end() -> None:
    gate = first_reply_gate()
    assert gate.show(Prose("One.")) == [TextDelta("One.")]
    assert gate.show(WithheldText("<tool_call>{")) == []
    assert gate.show(Prose("Two.")) == []
    assert gate.show(RespondText("Three.")) == []
    assert gate.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    answer = Accepted("One.<tool_call>{Two.Three.")
    assert gate.complete(answer, is_only_reply=True) == [TextDelta("<tool_call>{Two.Three.")]


def test_held_prose_is_shown_before_a_call_and_later_text_is_held_until_complete() -> None:
    gate = streaming_gate(SentAnswer(), shows_prose=False)
    gate.show(Prose("Looking."))
    assert gate.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    assert gate.show_call(ToolCallArgumentsDelta(0, '{"city": "')) == [
        TextDelta("Looking."),
        ToolCallStarted(0, "a", "get_weather"),
        ToolCallArgumentsDelta(0, '{"city": "'),
    ]
    assert gate.show(Prose("\nYes.")) == []
    answer = Accepted("Looking.\nYes.", (PARIS,))
    assert gate.complete(answer, is_only_reply=True) == [
        ToolCallArgumentsDelta(0, 'Paris"}'),
        TextDelta("\nYes."),
    ]


def test_a_continuation_shows_nothing_before_its_end() -> None:
    gate = continuation_gate("I'll look.")
    assert gate.show(Prose("It is")) == []
    assert gate.show(RespondText(" sunny.")) == []
    assert gate.show_call(ToolCallStarted(0, "a", "get_weather")) == []
    assert gate.complete(Accepted("It is sunny.", (PARIS,)), is_only_reply=False) == [
        TextDelta("\n\nIt is sunny."),
        ToolCalled(0, PARIS),
    ]


def test_a_continuation_adds_only_text_that_was_not_shown_before() -> None:
    def added(text: str) -> list[object]:
        return [*continuation_gate("I'll look.").complete(Accepted(text), is_only_reply=False)]

    assert added("I'll look.") == added(" look. ") == added("") == []
    assert added("I'll look. It is sunny.") == [TextDelta(" It is sunny.")]


def test_if_adds_text_is_false_text_is_added_only_to_a_reply_without_calls() -> None:
    gate = continuation_gate("I'll look.", adds_text=False)
    assert gate.complete(Accepted("Sorry.", (PARIS,)), is_only_reply=False) == [
        ToolCalled(0, PARIS)
    ]
    gate = continuation_gate("I'll look.", adds_text=False)
    assert gate.complete(Accepted("Sorry."), is_only_reply=False) == [TextDelta("\n\nSorry.")]


def test_text_and_calls_are_content_but_reasoning_is_not() -> None:
    assert is_content(TextDelta("a"))
    assert is_content(ToolCallStarted(0, "a", "b"))
    assert not is_content(ReasoningDelta("a"))


@pytest.mark.parametrize("shows_prose", [True, False])
def test_first_reply_gate_takes_time_linear_in_the_text(shows_prose: bool) -> None:
    def work(text: str) -> None:
        gate = first_reply_gate(shows_prose=shows_prose)
        for start in range(0, len(text), 50):
            gate.show(Prose(text[start : start + 50]))
        gate.show(RespondText("Hi"))

    assert is_linear(work, lambda size: "x" * size, 400_000)


OFFER = OfferedTools((WEATHER,), TextPolicy.AUTO, ())
OFFERED = OfferedTools(TOOLS, TextPolicy.AUTO, ())
BEGINNING = "commentary to=functions."


def lookahead_gate(*, shows_prose: bool = True) -> LookaheadGate:
    shown = SentAnswer()
    gate = FirstReplyGate(shown, CallGate(OFFER, shown), shows_prose=shows_prose)
    return LookaheadGate(gate, OFFERED)


def test_possible_calls_are_held_only_under_the_policy_auto_and_without_an_answer_schema() -> None:
    gate = FirstReplyGate(SentAnswer(), shows_prose=True)
    accepting = replace(OFFER, text_policy=TextPolicy.ACCEPT)
    assert isinstance(hold_possible_calls(gate, OFFER, is_retry=False), LookaheadGate)
    assert hold_possible_calls(gate, accepting, is_retry=False) is gate
    with_schema = replace(OFFER, answer_schema={})
    assert hold_possible_calls(gate, with_schema, is_retry=False) is gate


@pytest.mark.parametrize("text", HELD)
def test_a_call_in_an_unknown_syntax_is_held_from_its_first_character(text: str) -> None:
    gate = lookahead_gate()
    assert [event for letter in text for event in gate.show(Prose(letter))] == []


def test_the_word_done_is_held_only_in_a_reply_to_a_nudge() -> None:
    assert lookahead_gate().show(Prose("Done")) == [TextDelta("Done")]
    gate = LookaheadGate(FirstReplyGate(SentAnswer(), shows_prose=True), OFFERED, is_retry=True)
    assert gate.show(Prose("Done")) == []
    assert gate.show(Prose(" it")) == [TextDelta("Done"), TextDelta(" it")]


def test_reasoning_is_never_held() -> None:
    gate = lookahead_gate()
    gate.show(Prose(BEGINNING))
    assert gate.show(ReasoningDelta("hm")) == [ReasoningDelta("hm")]
    assert gate.show(Prose("get_weather{")) == []


def test_held_text_is_released_by_a_respond_message_or_by_a_call_or_at_the_end() -> None:
    held_text = TextDelta(BEGINNING)
    gate = lookahead_gate()
    gate.show(Prose(BEGINNING))
    assert gate.show(RespondText("Hi")) == [held_text, TextDelta("Hi")]
    gate = lookahead_gate()
    gate.show(Prose(BEGINNING))
    assert gate.show(WithheldText("{")) == [held_text]
    gate = lookahead_gate()
    gate.show(Prose(BEGINNING))
    started = ToolCallStarted(0, "a", "get_weather")
    assert gate.show_call(started) == [held_text]
    begun = ToolCallArgumentsDelta(0, '{"city": "')
    assert gate.show_call(begun) == [started, begun]
    gate = lookahead_gate()
    gate.show(Prose(BEGINNING))
    assert gate.end() == [held_text]
    assert gate.end() == []


def test_if_shows_prose_is_false_prose_is_shown_only_by_complete() -> None:
    gate = lookahead_gate(shows_prose=False)
    assert gate.is_unseen
    assert gate.show(Prose("It")) == []
    assert gate.end() == []
    call = ToolCall("a", "get_weather", '{"city":"Paris"}')
    assert gate.complete(Accepted("It", (call,)), is_only_reply=True) == [
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
def test_lookahead_gate_takes_time_linear_in_the_text(text: Callable[[int], str]) -> None:
    def show(text: str) -> None:
        gate = lookahead_gate()
        for start in range(0, len(text), 4):
            gate.show(Prose(text[start : start + 4]))

    assert is_linear(show, text, 20_000)


def test_unseen_gate_shows_nothing_and_stops_a_long_reply() -> None:
    gate = UnseenGate(SentAnswer())
    assert gate.show(ReasoningDelta("hm")) == []
    assert gate.show(Prose("DO")) == []
    assert gate.show(WithheldText("<tool_call>" * 100)) == []
    assert gate.complete(Accepted("DONE", (PARIS,)), is_only_reply=False) == []
    with pytest.raises(EnoughReadError):
        gate.show(Prose("NE, as everything that was asked for is there"))
