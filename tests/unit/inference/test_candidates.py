import pytest

from proxy.conversation.tools import ToolCall
from proxy.guardrails.verdict import Accepted
from proxy.inference.candidates import BestCandidate, Candidate
from proxy.inference.reply_reader import PassingOn
from tests.fakes.playbook import CountedIds

NOTHING, ONE, TWO = Accepted(" "), Accepted("One."), Accepted("Two.")
CALL = Accepted("", (ToolCall("a", "get_time", "{}"),))


def best_of(*answers: Accepted, is_meant: bool = True, is_resumed: bool = False) -> Accepted:
    """Offer a first answer, then the others on these terms."""
    best = BestCandidate()
    for number, answer in enumerate(answers):
        candidate = Candidate(answer, PassingOn(CountedIds()), None)
        is_first = number == 0
        best.offer(candidate, is_meant=is_meant or is_first, is_resumed=is_resumed and not is_first)
    assert best.found is not None
    return best.found.answer


@pytest.mark.parametrize(
    ("answers", "best"),
    [
        ((ONE,), ONE),
        ((NOTHING,), NOTHING),
        ((ONE, TWO), TWO),
        ((ONE, NOTHING), ONE),
        ((ONE, CALL), CALL),
        ((CALL, TWO), CALL),
    ],
)
def test_calls_are_better_than_text_and_later_than_earlier(
    answers: tuple[Accepted, ...], best: Accepted
) -> None:
    assert best_of(*answers) is best


def test_the_text_of_a_constrained_attempt_is_better_than_nothing_only() -> None:
    assert best_of(ONE, TWO, is_meant=False) is ONE
    assert best_of(NOTHING, TWO, is_meant=False) is TWO


def test_what_the_client_has_seen_is_not_replaced_by_text() -> None:
    assert best_of(ONE, TWO, is_resumed=True) is ONE
    assert best_of(ONE, CALL, is_resumed=True) is CALL
