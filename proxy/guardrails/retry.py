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


class AttemptKind(Enum):
    """The kinds of attempts."""

    AS_ASKED = "as_asked"
    RAW = "raw"
    NUDGED = "nudged"
    CONSTRAINED = "constrained"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generation; with `Parsing.OURS` the backend's own parser is kept out of it."""

    kind: AttemptKind
    parsing: Parsing = Parsing.BACKEND


FIRST = Attempt(AttemptKind.AS_ASKED)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that was rejected, and why."""

    attempt: Attempt
    defect: Defect


def next_attempt(
    failures: Sequence[Failure],
    text_policy: TextPolicy,
    limit: int = MOST_ATTEMPTS,
    left_out: Collection[AttemptKind] = (),
) -> Attempt | None:
    """Return the next attempt after all these failed, or None when the ladder ends.

    A kind that is left out has the other one in its place, unless prose was to be asked about.
    """
    found = _next_attempt(failures, text_policy, limit)
    if found is None or found.kind not in left_out:
        return found
    other = _IN_PLACE.get(found.kind)
    if other is None or other in left_out or is_an_answer(failures[-1], text_policy):
        return None
    is_constrained = other is AttemptKind.CONSTRAINED
    return Attempt(other, Parsing.OURS if is_constrained else failures[-1].attempt.parsing)


_IN_PLACE = {
    AttemptKind.NUDGED: AttemptKind.CONSTRAINED,
    AttemptKind.CONSTRAINED: AttemptKind.NUDGED,
}


def _next_attempt(
    failures: Sequence[Failure], text_policy: TextPolicy, limit: int
) -> Attempt | None:
    last = failures[-1]
    is_prose = is_an_answer(last, text_policy)
    if len(failures) >= limit or (is_prose and _was_prose_before(failures)):
        return None
    if last.defect is Defect.INVALID_ANSWER:
        return Attempt(AttemptKind.ANSWER, Parsing.OURS)
    if last.defect is Defect.UNREADABLE and last.attempt.parsing is Parsing.BACKEND:
        return Attempt(AttemptKind.RAW, Parsing.OURS)
    if is_prose and (len(failures) == 1 or last.attempt.kind is AttemptKind.RAW):
        return Attempt(AttemptKind.NUDGED, last.attempt.parsing)
    if len(failures) + 1 == limit or last.attempt.kind is AttemptKind.NUDGED:
        return Attempt(AttemptKind.CONSTRAINED, Parsing.OURS)
    return Attempt(AttemptKind.NUDGED, last.attempt.parsing)


def _was_prose_before(failures: Sequence[Failure]) -> bool:
    return any(failure.defect in _PROSE for failure in failures[:-1])


def is_an_answer(failure: Failure, text_policy: TextPolicy) -> bool:
    """Return whether a rejected reply may in the end stand as the answer after all.

    What comes out of a constrained attempt was never meant as prose.
    """
    is_prose = failure.defect in _PROSE and failure.attempt.kind is not AttemptKind.CONSTRAINED
    return is_prose and text_policy is not TextPolicy.REQUIRE
