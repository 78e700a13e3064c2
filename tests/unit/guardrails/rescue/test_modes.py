# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

from collections.abc import Sequence
from typing import get_args

import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import ArgumentsStarted, ArgumentsText
from proxy.guardrails.rescue.formats import Place
from proxy.guardrails.rescue.marks import LONGEST_CLOSER, closer_in
from proxy.guardrails.rescue.modes import OpeningAttempt, Openings, openings_of
from proxy.guardrails.rescue.position import Position, is_in_sentence
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.fakes.playbook import make_tool

HERMES = find_syntax("hermes")
MISTRAL = find_syntax("mistral")
BARE_JSON = find_syntax("bare_json")
QWEN_CODER = find_syntax("qwen_coder")

BARE, HERMES, MISTRAL, QWEN = BARE_JSON, HERMES, MISTRAL, QWEN_CODER


def test_syntaxes_that_share_an_opening_keep_their_order() -> None:
    openings = Openings.of([QWEN, HERMES])
    assert openings.find_fitting("<tool_call>") == [("<tool_call>", QWEN), ("<tool_call>", HERMES)]
    assert openings.find_fitting("<function=") == [("<function=", QWEN)]


def test_a_longer_opening_is_tried_first() -> None:
    openings = Openings.of([BARE, MISTRAL])
    assert openings.find_fitting("[TOOL_CALLS]") == [("[TOOL_CALLS]", MISTRAL), ("[", BARE)]


def test_openings_of_a_whole_reply_are_not_looked_for_in_prose() -> None:
    openings = Openings.of([BARE])
    assert openings.first.at("{", 0, is_finished=True) == "{"
    assert openings.in_prose.at("{", 0, is_finished=True) == ""
    assert openings.after_call.at("{", 0, is_finished=True) == ""


def test_what_can_begin_depends_on_the_place() -> None:
    openings = Openings.of([BARE, MISTRAL])
    assert openings.find_candidates("[TOOL_CALLS]", {"anywhere"}) == [("[TOOL_CALLS]", MISTRAL)]
    everywhere = openings.find_candidates("[TOOL_CALLS]", {*get_args(Place)})
    assert everywhere == [("[TOOL_CALLS]", MISTRAL), ("[", BARE)]


def test_the_same_syntaxes_are_prepared_once() -> None:
    assert openings_of((BARE, HERMES)) is openings_of((BARE, HERMES))


@pytest.mark.parametrize(
    ("literal", "rest", "found"),
    [
        ("</tool_call>", "</tool_call>x", "</tool_call>"),
        ("<tool_call>", "<tool_call>", ""),
        ("</think>", "</think>", ""),
        ("", "</tool_c", "</tool_c"),
        ("", "<", ""),
        ("", "</b", ""),
        ("", "<|that_is_all|>", "<|that_is_all|>"),
        ("", "<｜fin｜> \n", "<｜fin｜> \n"),
        ("", "<|that_is", ""),
        ("", "<|that is all|>", ""),
        ("", "<|end_of_it|>.", ""),
        ("", f"<|{'x' * LONGEST_CLOSER}"[:LONGEST_CLOSER], ""),
    ],
)
def test_what_may_end_a_reply_behind_a_call(literal: str, rest: str, found: str) -> None:
    assert closer_in(literal, rest, is_all=True) == found


@pytest.mark.parametrize("rest", ["<", "<|", "<|fin", "<|fin|", "<|fin|>", "<|fin|> "])
def test_a_control_token_that_nobody_knows_counts_at_the_end_only(rest: str) -> None:
    assert closer_in("", rest, is_all=False) is None
    assert closer_in("", f"{rest}~ x", is_all=False) == ""


def test_an_undecided_mark_needs_more_text() -> None:
    assert closer_in(None, "</tool", is_all=False) is None


def test_the_openings_of_one_clients_tools_join_the_others() -> None:
    joined = openings_of((HERMES,), syntaxes_for((make_tool("look", {}),)))
    text = "look <look>"
    assert [one.find(text, 0, is_finished=True) for one in (joined.first, joined.in_prose)] == [
        0,
        5,
    ]
    assert joined.first.at(text, 0, is_finished=True) == "look"
    assert joined.after_call.at("<loo", 0, is_finished=False) is None
    assert joined.after_call.at("<tool_", 0, is_finished=False) is None
    assert [opening for opening, _ in joined.find_fitting("<look>")] == ["<look>"]


BOTH: Sequence[tuple[str, Syntax]] = (("<tool_call>", HERMES), ("<tool_call>", QWEN_CODER))


def test_the_first_candidate_that_finds_a_call_counts() -> None:
    cursor = Cursor("<tool_call>\n<function=now></function></tool_call> rest")
    attempt = OpeningAttempt(cursor, BOTH, ())
    assert attempt.resume() == Calls((WrittenCall("now", {}),))
    assert attempt.syntax.name == "qwen_coder"
    assert cursor.source() == "<tool_call>\n<function=now></function></tool_call>"


def test_a_candidate_gets_the_text_that_another_has_passed() -> None:
    cursor = Cursor("<tool_call>")
    attempt = OpeningAttempt(cursor, BOTH, ())
    for piece in ("\n ", "<func", "tion=now>", "</function></tool_call"):
        assert attempt.resume() is None
        cursor.feed(piece)
    cursor.feed(">")
    assert attempt.resume() == Calls((WrittenCall("now", {}),))


def test_if_none_finds_a_call_the_one_that_came_furthest_tells_why() -> None:
    cursor = Cursor('<tool_call> {"name": no')
    attempt = OpeningAttempt(cursor, BOTH, ())
    assert attempt.resume() is None
    cursor.feed("!")
    assert attempt.resume() == NoCall(Reason.BROKEN)
    assert cursor.source() == '<tool_call> {"name": no'
    assert attempt.is_marked


def test_arguments_are_announced_as_they_arrive() -> None:
    cursor = Cursor('<tool_call>{"name": "f", "arguments": {"a')
    attempt = OpeningAttempt(cursor, BOTH, ())
    assert attempt.resume() is None
    assert attempt.take_findings() == [ArgumentsStarted("f", is_marked=True), ArgumentsText('{"a')]
    cursor.feed("")
    assert attempt.resume() is None
    assert attempt.take_findings() == []
    cursor.feed('": 1}}</tool_call>')
    assert isinstance(attempt.resume(), Calls)
    assert attempt.take_findings() == [ArgumentsText('": 1}')]


def test_an_unmarked_call_to_a_tool_that_is_not_offered_is_not_announced() -> None:
    text = '{"name": "f", "arguments": {}}'
    for offered, count in (((), 0), (("f",), 2)):
        attempt = OpeningAttempt(Cursor(text, is_finished=True), [("{", BARE_JSON)], offered)
        assert isinstance(attempt.resume(), Calls)
        assert len(attempt.take_findings()) == count
        assert not attempt.is_marked


def test_the_words_before_a_call_say_what_it_is() -> None:
    assert Position(words="For example: ").is_example
    assert not Position(words="Let me look.\n").is_example


@pytest.mark.parametrize(
    ("opening", "words", "is_within"),
    [
        (" {", "Here it is:", True),
        (" {", "I'll check the weather:", False),
        (" {", "I'll use", True),
        ("{", "You only have to send\n", True),
        ("{", "Here it is:\n", False),
        ("{", "", False),
    ],
)
def test_a_plain_call_may_belong_to_the_sentence_before_it(
    opening: str, words: str, is_within: bool
) -> None:
    assert is_in_sentence(Position(opening, words=words), ["get_weather"]) is is_within
