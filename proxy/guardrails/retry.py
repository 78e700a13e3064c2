"""The ladder of attempts: what to ask next, decided from what was asked and what went wrong.

Repair comes first and costs nothing; then the model is told what was wrong; in the end the
backend is constrained so that only a valid call can come out. Prose where an answer is allowed is
asked about once and then taken; so is an announcement, or what looks like a call in a syntax that
is not known, and there is never a second resumption. An answer in the wrong form is asked for again
in the form that the client wants: the backend is constrained to it at once, because the choice to
answer was made.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from proxy.conversation.requests import Parsing
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.verdict import Defect

MOST_ATTEMPTS = 3

_PROSE = (Defect.PROSE, Defect.EMPTY, Defect.ANNOUNCED, Defect.UNKNOWN_SYNTAX)


class Rung(Enum):
    """The kinds of attempts."""

    AS_ASKED = "as_asked"
    RAW = "raw"
    NUDGED = "nudged"
    CONSTRAINED = "constrained"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generation; with `Parsing.OURS` the backend's own parser is kept out of it."""

    rung: Rung
    parsing: Parsing = Parsing.BACKEND


FIRST = Attempt(Rung.AS_ASKED)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that was rejected, and why."""

    attempt: Attempt
    defect: Defect


def next_attempt(
    failures: Sequence[Failure],
    text_policy: TextPolicy,
    limit: int = MOST_ATTEMPTS,
    left_out: Collection[Rung] = (),
) -> Attempt | None:
    """Return the next attempt after all these failed, or None when the ladder ends.

    A rung that is left out has the other one in its place, unless prose was to be asked about.
    """
    found = _next_rung(failures, text_policy, limit)
    if found is None or found.rung not in left_out:
        return found
    other = _IN_PLACE.get(found.rung)
    if other is None or other in left_out or is_an_answer(failures[-1], text_policy):
        return None
    is_constrained = other is Rung.CONSTRAINED
    return Attempt(other, Parsing.OURS if is_constrained else failures[-1].attempt.parsing)


_IN_PLACE = {Rung.NUDGED: Rung.CONSTRAINED, Rung.CONSTRAINED: Rung.NUDGED}


def _next_rung(failures: Sequence[Failure], text_policy: TextPolicy, limit: int) -> Attempt | None:
    last = failures[-1]
    is_prose = is_an_answer(last, text_policy)
    if len(failures) >= limit or (is_prose and _was_prose_before(failures)):
        return None
    if last.defect is Defect.INVALID_ANSWER:
        return Attempt(Rung.ANSWER, Parsing.OURS)
    if last.defect is Defect.UNREADABLE and last.attempt.parsing is Parsing.BACKEND:
        return Attempt(Rung.RAW, Parsing.OURS)
    if is_prose and (len(failures) == 1 or last.attempt.rung is Rung.RAW):
        return Attempt(Rung.NUDGED, last.attempt.parsing)
    if len(failures) + 1 == limit or last.attempt.rung is Rung.NUDGED:
        return Attempt(Rung.CONSTRAINED, Parsing.OURS)
    return Attempt(Rung.NUDGED, last.attempt.parsing)


def _was_prose_before(failures: Sequence[Failure]) -> bool:
    return any(failure.defect in _PROSE for failure in failures[:-1])


def is_an_answer(failure: Failure, text_policy: TextPolicy) -> bool:
    """Return whether a rejected reply may in the end stand as the answer after all.

    What comes out of a constrained attempt was never meant as prose.
    """
    is_prose = failure.defect in _PROSE and failure.attempt.rung is not Rung.CONSTRAINED
    return is_prose and text_policy is not TextPolicy.REQUIRE
