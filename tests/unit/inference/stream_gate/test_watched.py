from collections.abc import Callable

import pytest
from msgspec.structs import replace

from proxy.conversation.replies import ReasoningDelta, TextDelta, ToolCalled, ToolCallStarted
from proxy.conversation.tools import ToolCall
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import BrokenCall, Prose, Reasoned, RespondText
from proxy.guardrails.verdict import Accepted
from proxy.inference.sent_answer import ShownAnswer
from proxy.inference.stream_gate.calls import CallsRelease
from proxy.inference.stream_gate.release import Release
from proxy.inference.stream_gate.watched import WatchedRelease, watched
from tests.fakes.arrivals import is_linear
from tests.fakes.playbook import WEATHER
from tests.fakes.unread_calls import HELD, TOOLS

OFFER = OfferedTools((WEATHER,), TextPolicy.AUTO, ())
BEGINNING = "commentary to=functions."


def make(*, shows_prose: bool = True) -> WatchedRelease:
    shown = ShownAnswer()
    release = Release(shown, CallsRelease(OFFER, shown), shows_prose=shows_prose)
    return WatchedRelease(release, TOOLS)


def test_only_prose_that_would_be_an_answer_is_watched() -> None:
    release = Release(ShownAnswer(), shows_prose=True)
    accepting = replace(OFFER, text_policy=TextPolicy.ACCEPT)
    assert isinstance(watched(release, OFFER, is_asked_again=False), WatchedRelease)
    assert watched(release, accepting, is_asked_again=False) is release
    assert watched(release, replace(OFFER, answer_schema={}), is_asked_again=False) is release


@pytest.mark.parametrize("text", HELD)
def test_nothing_of_a_call_is_seen(text: str) -> None:
    release = make()
    assert [event for letter in text for event in release.show(Prose(letter))] == []


def test_prose_is_shown_with_its_first_piece() -> None:
    release = make()
    assert release.show(Prose("It")) == [TextDelta("It")]
    assert release.show(Prose(" is")) == [TextDelta(" is")]
    assert release.show(Prose(BEGINNING)) == [TextDelta(BEGINNING)]
    assert release.complete(Accepted(f"It is{BEGINNING}."), is_own=True) == [TextDelta(".")]


def test_what_turns_out_to_be_prose_is_shown_whole() -> None:
    release = make()
    assert release.show(Prose(BEGINNING)) == []
    assert release.show(Prose("none of")) == [TextDelta(BEGINNING), TextDelta("none of")]
    assert release.show(Prose(" them")) == [TextDelta(" them")]


def test_the_word_that_confirms_an_answer_waits_only_where_it_was_asked_for() -> None:
    assert make().show(Prose("Done")) == [TextDelta("Done")]
    release = WatchedRelease(Release(ShownAnswer(), shows_prose=True), TOOLS, is_asked_again=True)
    assert release.show(Prose("Done")) == []
    assert release.show(Prose(" it")) == [TextDelta("Done"), TextDelta(" it")]


def test_white_space_waits_for_what_follows() -> None:
    release = make()
    assert release.show(Prose("\n")) == []
    assert release.show(Prose("It")) == [TextDelta("\nIt")]


def test_thoughts_wait_for_nothing() -> None:
    release = make()
    release.show(Prose(BEGINNING))
    assert release.show(Reasoned("hm")) == [ReasoningDelta("hm")]
    assert release.show(Prose("get_weather{")) == []


def test_a_message_a_call_and_the_end_show_what_was_held() -> None:
    held = TextDelta(BEGINNING)
    release = make()
    release.show(Prose(BEGINNING))
    assert release.show(RespondText("Hi")) == [held, TextDelta("Hi")]
    release = make()
    release.show(Prose(BEGINNING))
    assert release.show(BrokenCall("{")) == [held]
    release = make()
    release.show(Prose(BEGINNING))
    started = ToolCallStarted(0, "a", "get_weather")
    assert release.show_call(started) == [held, started]
    release = make()
    release.show(Prose(BEGINNING))
    assert release.end() == [held]
    assert release.end() == []


def test_where_prose_is_held_anyway_it_waits_for_the_verdict() -> None:
    release = make(shows_prose=False)
    assert release.is_unseen
    assert release.show(Prose("It")) == []
    assert release.end() == []
    call = ToolCall("a", "get_weather", '{"city":"Paris"}')
    assert release.complete(Accepted("It", (call,)), is_own=True) == [
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
    def show(written: str) -> None:
        release = make()
        for start in range(0, len(written), 4):
            release.show(Prose(written[start : start + 4]))

    assert is_linear(show, text, 20_000)
