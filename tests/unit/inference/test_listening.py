from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.facts import RejectedReply
from proxy.guardrails.offer import Offer, TextPolicy
from proxy.guardrails.rescue.registry import in_order
from proxy.guardrails.verdict import Accepted
from proxy.inference.listening import GuardedListening, Observing, PassingOn
from proxy.inference.release import Release
from tests.fakes.playbook import CLOCK, CountedIds

OFFER = Offer((CLOCK,), TextPolicy.ACCEPT, in_order(()))


def guarded() -> GuardedListening:
    return GuardedListening(OFFER, Release(shows_prose=True), CountedIds())


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


def test_what_was_held_is_shown_in_the_end() -> None:
    listening = guarded()
    assert listening.hear(TextDelta("Noon. <tool")) == [TextDelta("Noon.")]
    shown, verdict = listening.finish("stop")
    assert shown == [TextDelta(" <tool")]
    assert isinstance(verdict, Accepted)
    assert listening.complete(verdict) == []


def test_progress_is_passed_on() -> None:
    progress = PromptProgress(3, 1, 2)
    assert guarded().hear(progress) == [progress]
    assert PassingOn(CountedIds()).hear(progress) == [progress]


def test_passing_on_shows_text_as_it_comes_and_calls_whole() -> None:
    listening = PassingOn(CountedIds())
    assert listening.hear(TextDelta("<tool_call>")) == [TextDelta("<tool_call>")]
    assert listening.hear(ToolCallStarted(0, None, "anything")) == []
    assert listening.hear(ToolCallArgumentsDelta(0, "{broken")) == []
    shown, verdict = listening.finish("stop")
    assert shown == []
    assert verdict == Accepted("<tool_call>", (ToolCall("made_1", "anything", "{broken"),), "stop")
    assert isinstance(verdict, Accepted)
    assert listening.complete(verdict) == []


def test_observing_shows_what_comes_and_keeps_the_verdicts_facts() -> None:
    listening = Observing(OFFER, CountedIds())
    assert listening.hear(TextDelta("Noon.")) == [TextDelta("Noon.")]
    assert listening.hear(ToolCallStarted(0, "a", "launch")) == []
    shown, verdict = listening.finish("tool_calls")
    assert shown == []
    assert isinstance(verdict, Accepted)
    assert verdict.calls == (ToolCall("a", "launch", ""),)
    assert verdict.facts == (RejectedReply("unknown_tool"),)
    assert listening.complete(verdict) == []
