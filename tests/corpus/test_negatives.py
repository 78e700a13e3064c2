"""Hard negatives: none of them is executed, under any text policy and in any chunking."""

from dataclasses import replace

import pytest

from proxy.facts import Dropped, LadderEnded, RejectedReply, Rescued
from proxy.guardrails.offer import TextPolicy
from tests.corpus.cases import Case, outcomes
from tests.corpus.negatives import negatives
from tests.examples import share

LEAST_COUNT = 200
THOUGHTS = "thoughts"

CASES = [case for cases in negatives().values() for case in cases]


@pytest.mark.parametrize("policy", TextPolicy)
@pytest.mark.parametrize("title", negatives())
def test_no_hard_negative_is_handed_out(title: str, policy: TextPolicy) -> None:
    for case in share(negatives()[title]):
        whole, *in_pieces = outcomes(replace(case, policy=policy))
        assert whole.calls == case.calls[: len(whole.calls)], case
        assert all(other == whole for other in in_pieces), case


@pytest.mark.parametrize("title", sorted(negatives().keys() - {THOUGHTS}))
def test_a_reply_without_calls_stays_as_it_is(title: str) -> None:
    for case in negatives()[title]:
        whole = next(outcomes(case))
        is_judged = any(isinstance(fact, Rescued | Dropped | LadderEnded) for fact in whole.facts)
        assert is_judged or whole.text == case.reply, case


def test_few_of_them_are_asked_about_as_calls_that_nobody_can_read() -> None:
    replies = []
    for case in CASES:
        whole = next(outcomes(replace(case, policy=TextPolicy.AUTO)))
        replies += [case.reply] if RejectedReply("unknown_syntax") in whole.facts else []
    assert replies == ["[get_weather(city=get_city())]", '[get_weather(city="Rome", city="Bari")]']


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.calls], ids=lambda case: case.title
)
def test_what_is_meant_among_them_is_handed_out_or_asked_for_again(case: Case) -> None:
    whole = next(outcomes(case))
    assert whole.calls == case.calls


def test_there_are_enough_of_them_and_none_is_there_twice() -> None:
    assert len(CASES) >= LEAST_COUNT
    assert len({case.reply for case in CASES}) == len(CASES)
