from typing import get_args

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import (
    EarlierThoughts,
    FoundCalls,
    LeftOut,
    Prose,
    RefusedText,
)
from proxy.guardrails.rescue.formats import Place
from proxy.guardrails.rescue.record import Record, Report
from proxy.guardrails.rescue.syntax import Reason
from tests.fakes.arrivals import joined

SIGN = LeftOut("invented_result")


def test_prose_is_joined_up_to_what_is_none() -> None:
    report = Report()
    assert report.add_prose("One ") == ("One", " ")
    report.add_prose("two")
    report.add(SIGN)
    report.add_prose("three")
    assert report.take() == [Prose("One two"), SIGN, Prose("three")]
    assert report.take() == []


def test_space_and_tokens_are_held_until_prose_goes_on() -> None:
    report = Report()
    report.add_prose("One \n")
    report.hold("</s>")
    report.hold("")
    assert report.take() == [Prose("One")]
    report.add_prose("\ttwo")
    assert report.take() == [Prose(" \n</s>\ttwo")]


def test_what_is_held_can_be_left_out_or_kept() -> None:
    report = Report()
    report.add_prose("One ")
    assert report.take_held() == " "
    report.add_prose("two ")
    report.keep_held()
    assert report.take() == [Prose("Onetwo ")]


def test_prose_can_be_set_apart() -> None:
    report = Report()
    report.add_prose("One")
    report.flush()
    report.add_prose("two")
    assert report.take() == [Prose("One"), Prose("two")]


def test_white_space_that_is_held_can_be_taken_out_and_tokens_cannot() -> None:
    report = Report()
    report.add_prose("One \n")
    assert report.take_space() == " \n"
    assert report.take_space() == ""
    report.hold("</s>")
    report.hold("\n")
    assert report.take_space() == ""
    report.keep_held()
    assert report.take() == [Prose("One</s>\n")]


def found(name: str, source: str = "", *, is_marked: bool = True) -> FoundCalls:
    """Make what is found for one call."""
    call = WrittenCall(name, {})
    return FoundCalls("hermes", (call,), source or f"<{name}>", is_marked, closed=True)


def test_calls_that_wait_count_with_the_next_one() -> None:
    record = Record(("look", "now"))
    record.add_prose("So: ")
    record.join(found("look"), "\n")
    assert record.is_doubtful
    assert record.report.take() == [Prose("So:")]
    record.accept(found("now"))
    assert joined(record.report.take()) == [found("look"), found("now")]
    assert not record.is_doubtful


def test_calls_that_wait_are_refused_with_the_next_one() -> None:
    record = Record(("look", "now"))
    record.join(found("look"), "\n")
    record.refuse_call(Reason.IN_SENTENCE, found("now"), " so")
    assert record.report.take() == [
        RefusedText(Reason.IN_SENTENCE),
        Prose("<look>"),
        RefusedText(Reason.IN_SENTENCE),
        Prose("\n<now> so"),
    ]


def test_a_call_that_is_repeated_counts_once() -> None:
    record = Record(("look",))
    record.join(found("look", is_marked=False), "\n")
    record.accept(found("look"))
    assert joined(record.end()) == [Prose("<look>"), found("look")]


def test_prose_ends_the_waiting() -> None:
    record = Record(("look",))
    record.join(found("look"), "\n")
    record.add_prose("more")
    assert record.end() == [RefusedText(Reason.IN_SENTENCE), Prose("<look>"), Prose("\nmore")]


def test_behind_a_broken_call_in_thoughts_calls_wait_for_the_end() -> None:
    record = Record(("look",))
    record.siblings.break_off("", is_marked=True)
    record.add_prose("</tool_call></think>")
    record.restart()
    record.accept(found("look"))
    assert record.report.take() == [Prose("</tool_call></think>"), EarlierThoughts()]
    record.widen_gap("\n")
    assert joined(record.end()) == [found("look")]


def test_of_a_broken_call_the_thoughts_have_no_end() -> None:
    record = Record(("look",))
    record.siblings.break_off("", is_marked=True)
    record.add_prose("</think>")
    record.widen_gap("\n")
    record.restart()
    assert joined(record.end()) == [Prose("</think>"), EarlierThoughts(is_over=False)]
    assert record.siblings.object_to(found("look"), "") is Reason.NESTED


def test_white_space_behind_a_call_that_waits_belongs_to_it() -> None:
    record = Record(("look",))
    record.add_prose("So: ")
    assert record.take_space() == " "
    record.join(found("look"))
    record.add_prose(" ")
    assert record.take_space() == ""


def test_a_call_may_stand_at_the_start_of_the_reply_of_a_line_or_anywhere() -> None:
    record = Record(())
    assert record.places(is_first=True) == {*get_args(Place)}
    assert record.places(is_first=False) == {"anywhere", "line_start"}
    record.add_prose("So")
    assert record.places(is_first=False) == {"anywhere"}
