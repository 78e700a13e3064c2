"""The ladder of attempts: `next_attempt` decides how to continue after a rejected reply.

Repair costs no generation, so it comes first (in `review`). Then a nudge names the defect. Finally
a grammar constrains the backend to a valid call. Prose where an answer is allowed causes one nudge
and is accepted after it; so are an announcement, an ambiguous call and text that looks like a call
in an unknown syntax. After an answer in the wrong form the backend is constrained to the client's
form at once, because the model has already chosen to answer.

If the backend's parser failed, the reply is requested again without it ("raw"). If tools have run,
the last attempt, and the attempt after a repetition, may ask for an answer in words ("ending").
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proxy.conversation.requests import Parsing
from proxy.guardrails.grounding import Progress
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.verdict import Defect

MOST_ATTEMPTS = 3

_PROSE = (Defect.PROSE, Defect.EMPTY, Defect.ANNOUNCED, Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL)


# The kinds of attempts.
AttemptKind: TypeAlias = Literal[
    "as_asked", "raw", "nudged", "constrained", "answer", "ending", "close_out"
]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generation; with `Parsing.OURS` the backend's own parser is not used."""

    kind: AttemptKind
    parsing: Parsing = Parsing.BACKEND


FIRST = Attempt("as_asked")


@dataclass(frozen=True, slots=True)
class Failure:
    """A rejected attempt."""

    attempt: Attempt
    defect: Defect
    objection: str = ""


def next_attempt(
    failures: Sequence[Failure],
    text_policy: TextPolicy,
    limit: int = MOST_ATTEMPTS,
    left_out: Collection[AttemptKind] = (),
    *,
    has_run_tools: bool = False,
    progress: Progress = Progress.UNKNOWN,
) -> Attempt | None:
    """Return the next attempt after these failures, or None when the ladder ends.

    A nudge replaces a grammar that is `left_out`, and the reverse, except after prose that may be
    an answer. If the turn `has_run_tools`, the last attempt asks for an answer in words, and so
    does the next attempt after a repetition, unless the `progress` shows unfinished work.
    """
    last = failures[-1]
    kind = _next_kind(failures, text_policy, limit)
    if has_run_tools and _is_ending_due(kind, failures, limit, progress):
        kind = "ending"
    if kind in left_out:
        kind = None if is_an_answer(last, text_policy) else _IN_PLACE.get(kind)
    if kind is None or kind in left_out:
        return None
    return Attempt(kind, last.attempt.parsing if kind == "nudged" else Parsing.OURS)


def _is_ending_due(
    kind: AttemptKind | None, failures: Sequence[Failure], limit: int, progress: Progress
) -> bool:
    """Return whether the next attempt asks for an answer in words.

    That is so after a repetition, after invented values at the end of the work, and after two
    replies without words. A grammar for calls would force one more call, and the client would get
    an apology instead of an answer.
    """
    used = len(failures)
    last = failures[-1]
    if used >= limit:
        return False
    if last.attempt.kind == "ending":  # a grammar would force the same call again
        return True
    has_repeated = any(failure.defect in _REPETITION for failure in failures)
    is_done = progress is Progress.DONE
    if last.defect is Defect.INVENTED:  # after a nudge a 0.5B model invents another call
        return has_repeated or is_done
    if last.defect is Defect.LOOP:  # calls that the engine recognized may be polls
        return kind == "constrained"
    if has_repeated:
        is_next = kind == "nudged" and last.attempt.kind != "nudged" and used + 1 < limit
        return not (progress is Progress.OPEN and is_next)
    is_explained = last.defect in (Defect.DOUBTFUL, Defect.EMPTY) and is_done
    return is_explained or (kind is None and last.defect in _WORDLESS)


_REPETITION = (Defect.EXECUTED, Defect.ECHO)
_WORDLESS = (Defect.EMPTY, Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL)
_IN_PLACE: dict[AttemptKind | None, AttemptKind] = {
    "nudged": "constrained",
    "constrained": "nudged",
}


def _next_kind(
    failures: Sequence[Failure], text_policy: TextPolicy, limit: int
) -> AttemptKind | None:
    *before, last = failures
    is_prose = is_an_answer(last, text_policy)
    used = len(failures)
    if used >= limit or (is_prose and any(failure.defect in _PROSE for failure in before)):
        return None
    if last.defect is Defect.INVALID_ANSWER:
        return "answer"
    if last.attempt.parsing is Parsing.BACKEND and last.defect is Defect.UNREADABLE:
        return "raw"  # the engine's parser lost a reply, which may have been right
    if is_prose and (not before or last.attempt.kind == "raw"):
        return "nudged"
    # The grammar is the last resort: it forces some call, also where none is needed.
    is_pressed = used + 1 == limit or last.attempt.kind == "nudged"
    return "constrained" if is_pressed else "nudged"


def is_an_answer(failure: Failure, text_policy: TextPolicy) -> bool:
    """Return whether a rejected reply may be an answer; the reply to a grammar never is."""
    is_prose = failure.defect in _PROSE and failure.attempt.kind != "constrained"
    return is_prose and text_policy is not TextPolicy.REQUIRE
