import re
from typing import get_args

import pytest

from proxy import facts
from proxy.errors import TemperError
from proxy.facts import Fact
from proxy.guardrails.rescue.syntax import Reason
from proxy.guardrails.retry import Rung
from proxy.guardrails.verdict import Defect
from proxy.observability.live_request import word_for
from proxy.observability.sentences import (
    DEFECTS,
    ERRORS,
    RUNGS,
    cut,
    problem_sentence,
    rung_sentence,
    sentence,
    sentences,
)

TOLD: tuple[tuple[Fact, str], ...] = (
    (facts.Rescued("hermes", "look"), "A call written as text (hermes) became a call of look."),
    (facts.Repaired("look"), "Broken JSON in a call of look was read as what it plainly meant."),
    (facts.Coerced("look", "/days"), "/days of look was converted to the right type."),
    (facts.Coerced("look", ""), "A value of look was converted to the right type."),
    (facts.Renamed("Look", "look"), "Look is not a tool and was taken for look."),
    (facts.Dropped("code_fence"), "The code fence around the answer was taken off."),
    (facts.Dropped("new"), "A part of the reply was left out (new)."),
    (facts.RejectedReply("empty"), "The reply was empty."),
    (facts.RejectedReply("new"), "The reply was not good enough (new)."),
    (facts.Healed("call_id"), "The history was mended: a call got an id."),
    (
        facts.Refused(Reason.IN_SENTENCE),
        "Text that looked like a call was left alone (in sentence).",
    ),
    (facts.Unchecked("look", "no schema"), "look could not be checked: no schema."),
    (
        facts.Omitted("web_search"),
        "A part of the request means nothing here and was left out (web_search).",
    ),
    (facts.RuleSkipped("look"), "A rule of order was skipped: look is not on offer."),
    (facts.LoopNoticed("look", 3), "look was called 3 times with the same result."),
    (
        facts.FailuresNoticed(3),
        "The last 3 rounds of tool calls have all failed, and it was told so.",
    ),
    (facts.RoundsExceeded(9), "After 9 rounds of tool calls an answer was asked for."),
    (facts.Withheld(), "It was not asked again: too many others were being asked again."),
    (
        facts.BrokeOff("look"),
        "A call of look broke off after the client had seen its beginning.",
    ),
    (
        facts.LadderEnded("empty"),
        "No further attempt was allowed: the client got the most faithful reply.",
    ),
    (facts.WindowFilled(256), "The answer ended because the window of 256 tokens was full."),
    (
        facts.Compacted(2, 1, 0, 1, 90, 100, 128, is_new=True),
        "The conversation was shortened to fit (tier 2).",
    ),
    (facts.Compacted(2, 1, 0, 1, 90, 100, 128), ""),
    (facts.Asked("as_asked"), ""),
    (facts.ToolRan("search", "find", "done", 1), ""),  # it is in the row itself
)


@pytest.mark.parametrize(("fact", "told"), TOLD, ids=[type(one).__name__ for one, _ in TOLD])
def test_a_fact_is_told_in_a_sentence(fact: Fact, told: str) -> None:
    assert sentence(fact) == told


def test_every_kind_of_fact_has_its_words() -> None:
    assert {type(fact) for fact, _ in TOLD} == set(get_args(Fact))


def test_every_rung_defect_and_error_has_its_words() -> None:
    assert RUNGS.keys() == {one.value for one in Rung}
    assert DEFECTS.keys() == {one.value for one in Defect}
    assert word_for(TemperError()) in ERRORS
    every = (*RUNGS.values(), *DEFECTS.values(), *ERRORS.values())
    assert all(re.fullmatch(r"[A-Z].+\.", one) for one in every)
    assert rung_sentence("nudged") == "Asked again, with a hint of what was wrong."
    assert rung_sentence("new") == "Asked in another way (new)."
    assert problem_sentence("empty", None) == "The reply was empty."
    assert problem_sentence("empty", "refused") == "The backend refused the request."
    assert problem_sentence(None, "new") == "The attempt failed."
    assert problem_sentence(None, None) == ""


def test_what_happened_twice_is_told_once_and_nothing_is_told_of_no_news() -> None:
    told = sentences((facts.Asked("raw"), facts.Repaired("a"), facts.Repaired("a")))
    assert told == ("Broken JSON in a call of a was read as what it plainly meant.",)
    assert len(sentences(facts.Repaired(str(number)) for number in range(1000))) == 40


def test_foreign_words_are_cut_and_made_visible() -> None:
    told = sentence(facts.Renamed("\x1b[2J\u202e" + "x" * 1_000_000, "look"))
    assert told.isprintable()
    assert len(told) < 300
    assert cut("\0") == "\\x00"
