from proxy.guardrails.rescue.findings import Dropped, Prose
from proxy.guardrails.rescue.report import Report

SIGN = Dropped("invented_result")


def test_prose_is_joined_up_to_what_is_none() -> None:
    report = Report()
    assert report.say("One ") == ("One", " ")
    report.say("two")
    report.add(SIGN)
    report.say("three")
    assert report.take() == [Prose("One two"), SIGN, Prose("three")]
    assert report.take() == []


def test_space_and_tokens_are_held_until_prose_goes_on() -> None:
    report = Report()
    report.say("One \n")
    report.hold("</s>")
    report.hold("")
    assert report.take() == [Prose("One")]
    report.say("\ttwo")
    assert report.take() == [Prose(" \n</s>\ttwo")]


def test_what_is_held_can_be_left_out_or_kept() -> None:
    report = Report()
    report.say("One ")
    report.drop_held()
    report.say("two ")
    report.keep_held()
    assert report.take() == [Prose("Onetwo ")]


def test_prose_can_be_set_apart() -> None:
    report = Report()
    report.say("One")
    report.flush()
    report.say("two")
    assert report.take() == [Prose("One"), Prose("two")]


def test_white_space_that_is_held_can_be_taken_out_and_tokens_cannot() -> None:
    report = Report()
    report.say("One \n")
    assert report.take_space() == " \n"
    assert report.take_space() == ""
    report.hold("</s>")
    report.hold("\n")
    assert report.take_space() == ""
    report.keep_held()
    assert report.take() == [Prose("One</s>\n")]
