# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

from typing import get_args

import pytest

from proxy.guardrails.formats.hermes import HERMES
from proxy.guardrails.formats.mistral import MISTRAL
from proxy.guardrails.rescue.marks import LONGEST_CLOSER, closer_in
from proxy.guardrails.rescue.openings import Openings, openings_of
from proxy.guardrails.rescue.syntax import Place
from proxy.guardrails.rescue.syntaxes.plain_json import BARE_JSON
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.guardrails.rescue.syntaxes.xml_tags import QWEN_CODER
from tests.fakes.playbook import make_tool

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
    assert openings.behind_call.at("{", 0, is_finished=True) == ""


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
    assert joined.behind_call.at("<loo", 0, is_finished=False) is None
    assert joined.behind_call.at("<tool_", 0, is_finished=False) is None
    assert [opening for opening, _ in joined.find_fitting("<look>")] == ["<look>"]
