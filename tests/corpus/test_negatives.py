"""Replies that resemble a call (hard negatives): none is returned as a call."""

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
def test_text_that_only_resembles_a_call_is_never_returned_as_a_call(
    title: str, policy: TextPolicy
) -> None:
    for case in share(negatives()[title]):
        whole, *in_pieces = outcomes(replace(case, policy=policy))
        assert whole.calls == case.calls[: len(whole.calls)], case
        assert all(other == whole for other in in_pieces), case


@pytest.mark.parametrize("title", sorted(negatives().keys() - {THOUGHTS}))
def test_a_reply_that_only_resembles_a_call_is_returned_unchanged(title: str) -> None:
    for case in negatives()[title]:
        whole = next(outcomes(case))
        is_judged = any(isinstance(fact, Rescued | Dropped | LadderEnded) for fact in whole.facts)
        assert is_judged or whole.text == case.reply, case


def test_only_two_replies_that_resemble_a_call_are_retried_as_unknown_syntax() -> None:
    replies = []
    for case in CASES:
        whole = next(outcomes(replace(case, policy=TextPolicy.AUTO)))
        replies += [case.reply] if RejectedReply("unknown_syntax") in whole.facts else []
    assert replies == ["[get_weather(city=get_city())]", '[get_weather(city="Rome", city="Bari")]']


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.calls], ids=lambda case: case.title
)
def test_intended_calls_are_returned_or_retried(case: Case) -> None:
    whole = next(outcomes(case))
    assert whole.calls == case.calls


def test_the_corpus_of_replies_that_resemble_calls_is_large_and_without_duplicates() -> None:
    assert len(CASES) >= LEAST_COUNT
    assert len({case.reply for case in CASES}) == len(CASES)
