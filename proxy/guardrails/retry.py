"""Decides how to retry after a rejected reply (`next_attempt`).

Repair costs no generation, so `review` tries it first. Then a nudge, a message to the model, names
the defect ("nudged"). Finally a grammar constrains the backend to a valid call ("constrained"). If
an answer is allowed, there is only one nudge after prose, an announcement, an ambiguous call or a
call in an unknown syntax; the next reply of this kind is accepted. After an answer that violates
the client's schema, the backend is constrained to the schema at once ("answer"), because the model
has already decided to answer.

If the backend's parser failed, the request is repeated without the parser ("raw"). If tools have
run, the last attempt or the attempt after a repetition may demand an answer in words ("ending").

    first reply: a call with invalid arguments    nudged, then constrained
    first reply: prose, an answer is allowed      nudged; the next prose is accepted
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proxy.conversation.requests import Parsing
from proxy.guardrails.grounding import Progress
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.verdict import Defect

MOST_ATTEMPTS = 3  # including the first generation

# Defects of replies that may be answers in words. After two of these replies, no attempt follows.
_PROSE = (Defect.PROSE, Defect.EMPTY, Defect.ANNOUNCED, Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL)


# The kinds of attempts.
AttemptKind: TypeAlias = Literal[
    "as_asked", "raw", "nudged", "constrained", "answer", "ending", "close_out", "fallback"
]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generation. With `Parsing.OURS`, the backend's parser is disabled."""

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
    disabled: Collection[AttemptKind] = (),
    *,
    may_demand_words: bool = False,
    progress: Progress = Progress.UNKNOWN,
) -> Attempt | None:
    """Return the next attempt after these failures; None if there is no further attempt.

    If the next kind of attempt is `disabled`, a grammar replaces a nudge and a nudge replaces a
    grammar. After prose that may be an answer, there is no replacement. If `may_demand_words`, the
    last attempt demands an answer in words. The attempt after a repetition demands it as well,
    unless the `progress` shows unfinished work.
    """
    last = failures[-1]
    kind = _next_kind(failures, text_policy, limit)
    if may_demand_words and _is_ending_due(kind, failures, limit, progress):
        kind = "ending"
    if kind in disabled:
        kind = None if may_be_answer(last, text_policy) else _REPLACEMENTS.get(kind)
    if kind is None or kind in disabled:
        return None
    return Attempt(kind, last.attempt.parsing if kind == "nudged" else Parsing.OURS)


def _is_ending_due(
    kind: AttemptKind | None, failures: Sequence[Failure], limit: int, progress: Progress
) -> bool:
    """Return whether the next attempt demands an answer in words.

    An answer is demanded after a repetition, after invented values when the work is done, and after
    replies without words that would otherwise end the turn. A grammar for calls would force another
    call, and the client would receive an apology instead of an answer.
    """
    attempts = len(failures)
    last = failures[-1]
    if attempts >= limit:
        return False
    if last.attempt.kind == "ending":  # a grammar would force the same call
        return True
    has_repeated = any(failure.defect in _REPETITION for failure in failures)
    is_done = progress is Progress.DONE
    if last.defect is Defect.INVENTED:  # a nudge would make a 0.5B model invent another call
        return has_repeated or is_done
    if last.defect is Defect.LOOP:  # the model may be polling with structured calls
        return kind == "constrained"
    if has_repeated:
        is_next = kind == "nudged" and last.attempt.kind != "nudged" and attempts + 1 < limit
        return not (progress is Progress.OPEN and is_next)
    is_explained = last.defect in (Defect.DOUBTFUL, Defect.EMPTY) and is_done
    return is_explained or (kind is None and last.defect in _WORDLESS)


_REPETITION = (Defect.EXECUTED, Defect.ECHO)
_WORDLESS = (Defect.EMPTY, Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL)
_REPLACEMENTS: dict[AttemptKind | None, AttemptKind] = {
    "nudged": "constrained",
    "constrained": "nudged",
}


def _next_kind(
    failures: Sequence[Failure], text_policy: TextPolicy, limit: int
) -> AttemptKind | None:
    *before, last = failures
    is_prose = may_be_answer(last, text_policy)
    attempts = len(failures)
    if attempts >= limit or (is_prose and any(failure.defect in _PROSE for failure in before)):
        return None
    if last.defect is Defect.INVALID_ANSWER:
        return "answer"
    if last.attempt.parsing is Parsing.BACKEND and last.defect is Defect.UNREADABLE:
        return "raw"  # the engine's parser lost a reply that may have been valid
    if is_prose and (not before or last.attempt.kind == "raw"):
        return "nudged"
    # The grammar is the last resort, because it forces a call even if no call is needed.
    is_last_resort = attempts + 1 == limit or last.attempt.kind == "nudged"
    return "constrained" if is_last_resort else "nudged"


def may_be_answer(failure: Failure, text_policy: TextPolicy) -> bool:
    """Return whether a rejected reply may be an answer; a constrained reply is never an answer."""
    is_prose = failure.defect in _PROSE and failure.attempt.kind != "constrained"
    return is_prose and text_policy is not TextPolicy.REQUIRE
