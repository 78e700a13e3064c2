"""The response has no call that the model did not intend, and nearly every intended call.

A reply passes through the whole app, from the request's bytes to the client's events, with one
attempt: a call that would be retried counts as lost, and a call that is accepted only in the last
attempt counts as promoted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from proxy.guardrails.rescue.registry import SYNTAXES
from tests.corpus.cases import Case, Outcome, outcomes
from tests.corpus.genuine import genuine
from tests.corpus.quoted import quoted
from tests.corpus.spellings import SPELLINGS, syntaxes_in
from tests.examples import share

LEAST_SHARE = 0.995
LEAST_COUNT = 200

# The scanner recognizes these situations as text, so it finds no call in them.
NO_CALLS = {"addressed", "addressed_at_start", "repeated_result"}


@dataclass(frozen=True)
class PlayedCase:
    """A case and its outcomes, in one piece and in several."""

    case: Case
    outcome: Outcome
    in_pieces: tuple[Outcome, ...]

    @property
    def is_promoted(self) -> bool:
        """Return whether the client receives a call that the model does not intend."""
        return self.outcome.calls != self.case.calls[: len(self.outcome.calls)]

    @property
    def is_exact(self) -> bool:
        """Return whether the client receives exactly the intended calls."""
        return self.outcome.calls == self.case.calls

    @property
    def keeps_text(self) -> bool:
        """Return whether the text is as expected; a case without an expected text accepts any."""
        return self.case.text in (None, self.outcome.text)

    def __str__(self) -> str:
        got = f"calls {self.outcome.calls}, text {self.outcome.text!r}"
        return f"{self.case.title}\n    wrote {self.case.reply!r}\n    got   {got}"


@cache
def _played(make: Callable[[], Mapping[str, Sequence[Case]]]) -> dict[str, list[PlayedCase]]:
    """Play a sample of the cases, or all of them with HYPOTHESIS_PROFILE=deep."""
    return {
        # all cases of the situation `alone`, because a test needs each spelling
        title: [*map(_play, cases if title == "alone" else share(cases))]
        for title, cases in make().items()
    }


def _play(case: Case) -> PlayedCase:
    whole, *pieces = outcomes(case)
    return PlayedCase(case, whole, tuple(pieces))


def listing(failures: Sequence[PlayedCase], of: int) -> str:
    """List the failures."""
    return "\n".join([f"{len(failures)} of {of}", *map(str, failures)])


@pytest.mark.parametrize("title", list(quoted()))
def test_a_call_that_a_reply_quotes_is_never_returned_as_a_call(title: str) -> None:
    cases = _played(quoted)[title]
    promoted = [case for case in cases if case.is_promoted]
    assert not promoted, listing(promoted, len(cases))


@pytest.mark.parametrize("title", list(quoted()))
def test_a_call_that_a_reply_quotes_stays_in_the_text(title: str) -> None:
    cases = [case for case in _played(quoted)[title] if not case.is_promoted]
    changed = [case for case in cases if not case.keeps_text]
    assert not changed, listing(changed, len(cases))


@pytest.mark.deep
def test_nearly_every_intended_call_is_returned_unchanged() -> None:
    cases = [case for some in _played(genuine).values() for case in some]
    lost = [case for case in cases if not case.is_exact]
    report = listing(lost, len(cases))
    print(report)  # noqa: T201 - lost calls are shown even if there are few
    assert len(lost) <= (1 - LEAST_SHARE) * len(cases), report


@pytest.mark.deep
@pytest.mark.parametrize("make", [quoted, genuine])
def test_calls_and_text_do_not_depend_on_the_chunking(
    make: Callable[[], Mapping[str, Sequence[Case]]],
) -> None:
    cases = [case for some in _played(make).values() for case in some]
    different = [case for case in cases if any(other != case.outcome for other in case.in_pieces)]
    assert not different, listing(different, len(cases))


def test_the_corpus_contains_every_syntax_and_is_large_enough() -> None:
    assert {syntax.name for syntax in SYNTAXES} - NO_CALLS <= syntaxes_in(SPELLINGS)
    assert sum(map(len, quoted().values())) >= LEAST_COUNT
    assert sum(map(len, genuine().values())) >= LEAST_COUNT


@pytest.mark.deep
def test_every_spelling_is_read_as_a_call_if_it_is_the_whole_reply() -> None:
    """If no parser read a spelling, the first test would always pass for this spelling."""
    alone = {outcome.case.reply for outcome in _played(genuine)["alone"] if outcome.is_exact}
    assert {spelling.one(("get_weather", {"city": "Paris"})) for spelling in SPELLINGS} <= {
        reply.removeprefix("One moment.") for reply in alone
    }
