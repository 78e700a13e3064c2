"""What only shows a call, what repeats one of a tool, and texts that must stay as they are."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.facts import RejectedReply
from proxy.guardrails.offer import TextPolicy
from tests.corpus.cases import Case, after_user, ask, outcome, outcomes
from tests.corpus.quotations import quotations, traps
from tests.examples import PROFILE

ALL = PROFILE != "quick" or "CI_DEEP" in os.environ
STAY = Path(__file__).with_name("must_stay") / "answers.txt"


def promoted(case: Case) -> bool:
    played = replace(case, policy=TextPolicy.AUTO)
    return outcome(played, [played.reply]).calls != ()


def test_no_quotation_is_promoted() -> None:
    found = [case.reply for case in quotations(5_000 if ALL else 250, seed=26) if promoted(case)]
    assert found == []


def test_no_call_of_a_tools_result_is_promoted() -> None:
    found = [case.reply for case in traps(2_000 if ALL else 150, seed=29) if promoted(case)]
    assert found == []


def test_quotations_and_traps_are_judged_the_same_however_they_arrive() -> None:
    for case in (*quotations(2 * 70, seed=1), *traps(70, seed=2)):
        whole, *pieces = outcomes(replace(case, policy=TextPolicy.AUTO))
        assert all(one == whole for one in pieces), case.reply


def must_stay() -> list[Case]:
    """Read the texts; behind an at sign stands what the user had said."""
    _, *entries = f"\n{STAY.read_text(encoding='utf-8')}".split("\n=== ")
    return [_read(*entry.partition("\n")) for entry in entries]


def _read(title: str, _: str, text: str) -> Case:
    request = ask()
    if text.startswith("@ "):
        said, _, text = text[2:].partition("\n")
        request = after_user(said)
    text = text.removesuffix("\n")
    return Case(title, text, request, policy=TextPolicy.AUTO, text=text)


@pytest.mark.parametrize("case", must_stay(), ids=lambda case: case.title)
def test_an_answer_stays_as_it_is_and_nobody_asks_about_it(case: Case) -> None:
    for found in outcomes(case):
        assert found.calls == ()
        assert found.text == case.text
        assert not any(isinstance(fact, RejectedReply) for fact in found.facts)
