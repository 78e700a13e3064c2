"""If the retry budget is used up, the turn ends with the best reply so far."""

from proxy.conversation.replies import ReplyFinished, TextDelta
from proxy.facts import ReplyOutcome, Withheld, outcome, repairs
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from tests.fakes.playbook import CountedIds, Playbook, call, make_request, prepare, write


def begin_without_budget(text_policy: TextPolicy = TextPolicy.AUTO) -> Playbook:
    policy = Policy(text_policy=text_policy)
    return Playbook(prepare(make_request(), policy, CountedIds(), lambda: False)).ask()


def test_prose_is_returned_without_a_nudge_if_the_retry_budget_is_empty() -> None:
    book = begin_without_budget(TextPolicy.RESPOND)
    write(book, "It is noon.").expect(TextDelta("It is noon."), ReplyFinished("stop"))
    book.end()
    assert Withheld() in book.turn.facts
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_an_invalid_call_ends_in_an_error_text_if_the_retry_budget_is_empty() -> None:
    book = begin_without_budget()
    call(book, "get_weather", "{}")
    problem = "get_weather: /city: is required but missing"
    error = f"The model gave no usable reply in 1 attempt: invalid arguments ({problem})."
    book.expect(TextDelta(error), ReplyFinished("stop"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED
    assert repairs(book.turn.facts) == "rejected=invalid_arguments;withheld=1"


def test_each_retry_asks_the_budget_once() -> None:
    decisions: list[bool] = []

    def may_retry() -> bool:
        decisions.append(True)
        return True

    book = Playbook(prepare(make_request(), Policy(), CountedIds(), may_retry)).ask()
    assert decisions == []
    for count in (1, 2):
        call(book, "get_weather", "{}")
        book.ask()
        assert len(decisions) == count
