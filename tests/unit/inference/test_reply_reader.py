import pytest

from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.facts import RejectedReply, Unchecked
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reasoning import RepeatsItselfError
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.syntax import Reading, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.verdict import Accepted
from proxy.inference.call_gate import CallGate
from proxy.inference.reply_reader import GuardedReader, ObservingReader, PassthroughReader
from proxy.inference.sent_answer import SentAnswer
from proxy.inference.text_gate import FirstReplyGate
from tests.fakes.playbook import CLOCK, CountedIds

OFFER = OfferedTools((CLOCK,), TextPolicy.ACCEPT, order_syntaxes(()))


def guarded(*, streams_calls: bool = False) -> GuardedReader:
    shown = SentAnswer()
    calls = CallGate(OFFER, shown) if streams_calls else None
    release = FirstReplyGate(shown, calls, shows_prose=True)
    return GuardedReader(OFFER, release, CountedIds(), shown)


def test_guarded_content_is_read_before_it_is_shown() -> None:
    listening = guarded()
    assert listening.hear(ReasoningDelta("hm")) == [ReasoningDelta("hm")]
    assert listening.hear(TextDelta("Noon.\n<tool")) == [TextDelta("Noon.")]
    assert listening.hear(TextDelta("box>")) == [TextDelta("\n<toolbox>")]
    assert listening.hear(ToolCallStarted(0, "a", "get_time")) == []
    assert listening.hear(ToolCallArgumentsDelta(0, "{}")) == []
    shown, verdict = listening.finish("tool_calls")
    assert shown == []
    assert verdict == Accepted("Noon.\n<toolbox>", (ToolCall("a", "get_time", "{}"),), "tool_calls")


NOW = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>\n'


def test_a_reply_that_repeats_its_calls_is_heard_up_to_there() -> None:
    listening = guarded()
    again = [TextDelta(NOW) for _ in range(6)]
    assert listening.hear_all([TextDelta("Wait.\n"), *again]) == [TextDelta("Wait.")]
    with pytest.raises(RepeatsItselfError):
        listening.hear_all(again)
    verdict = listening.finish("stop")[1]
    assert isinstance(verdict, Accepted)
    assert [call.name for call in verdict.calls] == ["get_time"]
    thinking = guarded()
    thought = ReasoningDelta("hm")
    assert thinking.hear_all([thought, *again, thought, *again])[:1] == [thought]
    observing = ObservingReader(OFFER, CountedIds())
    assert observing.hear_all(again) + observing.hear_all(again) == again * 2
    assert not any(isinstance(fact, Unchecked) for fact in observing.finish("stop")[1].facts)


def test_what_was_held_is_shown_in_the_end() -> None:
    listening = guarded()
    assert listening.hear(TextDelta("Noon. <tool")) == [TextDelta("Noon.")]
    shown, verdict = listening.finish("stop")
    assert shown == [TextDelta(" <tool")]
    assert isinstance(verdict, Accepted)
    assert listening.complete(verdict, is_own=True) == []


def test_a_call_is_shown_while_it_is_written() -> None:
    listening = guarded(streams_calls=True)
    assert listening.hear(ToolCallStarted(4, None, "get_time")) == [
        ToolCallStarted(0, "made_1", "get_time")
    ]
    assert listening.hear(ToolCallArgumentsDelta(4, "{")) == [ToolCallArgumentsDelta(0, "{")]
    assert listening.hear(ToolCallArgumentsDelta(4, "}")) == []
    _, verdict = listening.finish("tool_calls")
    assert verdict == Accepted("", (ToolCall("made_1", "get_time", "{}"),), "tool_calls")
    assert isinstance(verdict, Accepted)
    assert listening.complete(verdict, is_own=True) == [ToolCallArgumentsDelta(0, "}")]


def test_a_call_behind_one_that_is_text_waits_for_the_verdict() -> None:
    listening = guarded(streams_calls=True)
    listening.hear(TextDelta('<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'))
    listening.hear(TextDelta("\n\n"))
    assert listening.hear(ToolCallStarted(0, "a", "get_time")) == []
    assert listening.hear(ToolCallArgumentsDelta(0, "{}")) == []


def test_calls_that_share_an_id_are_told_apart() -> None:
    listening = guarded()
    for index in (0, 1):
        listening.hear(ToolCallStarted(index, "same", "get_time"))
    _, verdict = listening.finish("tool_calls")
    assert isinstance(verdict, Accepted)
    assert [call.id for call in verdict.calls] == ["same", "made_1"]


def test_progress_is_passed_on() -> None:
    progress = PromptProgress(3, 1, 2)
    assert guarded().hear(progress) == [progress]
    assert PassthroughReader(CountedIds()).hear(progress) == [progress]


def test_passing_on_shows_everything_as_it_comes() -> None:
    listening = PassthroughReader(CountedIds())
    started = ToolCallStarted(0, "made_1", "anything")
    assert listening.hear(ToolCallStarted(0, None, "anything")) == [started]
    broken = ToolCallArgumentsDelta(0, "{broken")
    assert listening.hear(broken) == [broken]
    _, verdict = listening.finish("stop")
    assert isinstance(verdict, Accepted)
    assert listening.complete(verdict, is_own=True) == []


def test_passing_on_shows_calls_whole_to_those_who_want_that() -> None:
    listening = PassthroughReader(CountedIds(), streams_calls=False)
    assert listening.hear(TextDelta("<tool_call>")) == [TextDelta("<tool_call>")]
    assert listening.hear(ToolCallStarted(0, None, "anything")) == []
    assert listening.hear(ToolCallArgumentsDelta(0, "{broken")) == []
    shown, verdict = listening.finish("stop")
    assert shown == []
    assert verdict == Accepted("<tool_call>", (ToolCall("made_1", "anything", "{broken"),), "stop")
    assert isinstance(verdict, Accepted)
    assert listening.complete(verdict, is_own=True) == [ToolCalled(0, verdict.calls[0])]


def test_observing_shows_what_comes_and_keeps_the_verdicts_facts() -> None:
    listening = ObservingReader(OFFER, CountedIds())
    assert listening.hear(TextDelta("Noon.")) == [TextDelta("Noon.")]
    started = ToolCallStarted(0, "a", "launch")
    assert listening.hear(started) == [started]
    shown, verdict = listening.finish("tool_calls")
    assert shown == []
    assert isinstance(verdict, Accepted)
    assert verdict.calls == (ToolCall("a", "launch", ""),)
    assert verdict.facts == (RejectedReply("unknown_tool"),)
    assert listening.complete(verdict, is_own=True) == []


def read_with_a_bug(cursor: Cursor, opening: str) -> Reading:
    del opening
    yield from cursor.whitespace()
    raise KeyError("oh")


BUGGY = Syntax("buggy", ("<bug>",), read_with_a_bug)


@pytest.mark.parametrize(
    "pieces", [["Noon. <bug> x", "and on"], ["Noon. <bug>"]], ids=["on the way", "at the end"]
)
def test_a_bug_of_the_guardrails_costs_an_observed_client_nothing(pieces: list[str]) -> None:
    offer = OfferedTools((CLOCK,), TextPolicy.ACCEPT, (BUGGY,))
    listening = ObservingReader(offer, CountedIds())
    for piece in pieces:
        assert listening.hear(TextDelta(piece)) == [TextDelta(piece)]
    _, verdict = listening.finish("stop")
    told = Unchecked("the reply", "KeyError: 'oh'")
    assert verdict == Accepted("".join(pieces), (), "stop", (told,))
