import pytest

from proxy.conversation.requests import Parsing
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.retry import FIRST, Attempt, AttemptKind, Failure, may_be_answer, next_attempt
from proxy.guardrails.verdict import Defect

RESPOND, ACCEPT, REQUIRE = TextPolicy.RESPOND, TextPolicy.ACCEPT, TextPolicy.REQUIRE
NUDGED = Attempt("nudged")
RAW = Attempt("raw", Parsing.OURS)
NUDGED_RAW = Attempt("nudged", Parsing.OURS)
ANSWER = Attempt("answer", Parsing.OURS)
CONSTRAINED = Attempt("constrained", Parsing.OURS)


def next_attempts(policy: TextPolicy, *defects: Defect, limit: int = 3) -> list[Attempt]:
    """List the attempts after the first; attempt number n fails with defect number n."""
    attempts_so_far, attempt = [], FIRST
    failures: list[Failure] = []
    for defect in defects:
        failures.append(Failure(attempt, defect))
        following = next_attempt(failures, policy, limit)
        if following is None:
            break
        attempts_so_far.append(following)
        attempt = following
    return attempts_so_far


@pytest.mark.parametrize(
    ("policy", "defects", "attempts"),
    [
        (RESPOND, (Defect.PROSE, Defect.PROSE), [NUDGED]),
        (RESPOND, (Defect.EMPTY, Defect.PROSE), [NUDGED]),
        (RESPOND, (Defect.UNKNOWN_SYNTAX, Defect.UNKNOWN_SYNTAX), [NUDGED]),
        (RESPOND, (Defect.UNREADABLE, Defect.PROSE, Defect.PROSE), [RAW, NUDGED_RAW]),
        (RESPOND, (Defect.UNKNOWN_TOOL, Defect.PROSE, Defect.PROSE), [NUDGED, CONSTRAINED]),
        (RESPOND, (Defect.PROSE, Defect.INVALID_ARGUMENTS), [NUDGED, CONSTRAINED]),
        (REQUIRE, (Defect.PROSE, Defect.PROSE, Defect.PROSE), [NUDGED, CONSTRAINED]),
        (ACCEPT, (Defect.UNKNOWN_TOOL,) * 3, [NUDGED, CONSTRAINED]),
        (ACCEPT, (Defect.UNREADABLE, Defect.BROKEN_ARGUMENTS), [RAW, CONSTRAINED]),
        (ACCEPT, (Defect.BROKEN_ARGUMENTS, Defect.UNREADABLE), [NUDGED, RAW]),
        (ACCEPT, (Defect.UNREADABLE, Defect.UNREADABLE), [RAW, CONSTRAINED]),
        (ACCEPT, (Defect.INVALID_ANSWER, Defect.INVALID_ANSWER), [ANSWER, ANSWER]),
        (ACCEPT, (Defect.BROKEN_ARGUMENTS, Defect.INVALID_ANSWER), [NUDGED, ANSWER]),
    ],
)
def test_each_failure_leads_to_the_next_attempt(
    policy: TextPolicy, defects: tuple[Defect, ...], attempts: list[Attempt]
) -> None:
    assert next_attempts(policy, *defects) == attempts


def test_the_number_of_attempts_is_limited() -> None:
    assert next_attempts(REQUIRE, Defect.PROSE, limit=1) == []
    assert next_attempts(REQUIRE, Defect.PROSE, Defect.PROSE, limit=2) == [CONSTRAINED]
    assert next_attempts(RESPOND, Defect.PROSE, Defect.PROSE, limit=2) == [NUDGED]


def test_after_a_parser_failure_the_request_is_repeated_without_the_parser() -> None:
    defects = (Defect.UNREADABLE, *[Defect.BROKEN_ARGUMENTS] * 3)
    assert next_attempts(ACCEPT, *defects) == [RAW, CONSTRAINED]
    assert next_attempts(ACCEPT, *defects, limit=4) == [RAW, NUDGED_RAW, CONSTRAINED]
    assert next_attempts(ACCEPT, *defects, limit=1) == []


def test_only_unconstrained_prose_may_be_an_answer() -> None:
    assert may_be_answer(Failure(FIRST, Defect.PROSE), RESPOND)
    assert not may_be_answer(Failure(FIRST, Defect.PROSE), REQUIRE)
    assert not may_be_answer(Failure(FIRST, Defect.UNKNOWN_TOOL), RESPOND)
    assert not may_be_answer(Failure(CONSTRAINED, Defect.PROSE), RESPOND)


@pytest.mark.parametrize(
    ("policy", "defect", "disabled", "following"),
    [
        (RESPOND, Defect.BROKEN_ARGUMENTS, ("nudged",), CONSTRAINED),
        (RESPOND, Defect.BROKEN_ARGUMENTS, ("nudged", "constrained"), None),
        (RESPOND, Defect.PROSE, ("nudged",), None),
        (RESPOND, Defect.UNREADABLE, ("nudged",), RAW),
        (RESPOND, Defect.INVALID_ANSWER, ("nudged", "constrained"), ANSWER),
        (RESPOND, Defect.BROKEN_ARGUMENTS, ("constrained",), NUDGED),
    ],
)
def test_a_disabled_kind_of_attempt_is_replaced_by_the_next_kind_or_by_no_attempt(
    policy: TextPolicy, defect: Defect, disabled: tuple[AttemptKind, ...], following: Attempt | None
) -> None:
    assert next_attempt([Failure(FIRST, defect)], policy, 3, disabled) == following


def test_a_second_nudge_is_sent_if_the_constrained_attempt_is_disabled() -> None:
    failures = [Failure(FIRST, Defect.BROKEN_ARGUMENTS), Failure(NUDGED, Defect.BROKEN_ARGUMENTS)]
    assert next_attempt(failures, REQUIRE, 3, ["constrained"]) == NUDGED
    raw = [Failure(FIRST, Defect.UNREADABLE), Failure(RAW, Defect.BROKEN_ARGUMENTS)]
    assert next_attempt(raw, REQUIRE, 3, ["constrained"]) == NUDGED_RAW


def test_a_disabled_raw_attempt_is_not_replaced_by_another_attempt() -> None:
    disabled: list[AttemptKind] = ["raw"]
    assert next_attempt([Failure(FIRST, Defect.UNREADABLE)], REQUIRE, 3, disabled) is None
