import pytest

from proxy.conversation.replies import ReplyEvent, ReplyStarted, TextDelta
from proxy.dialects.dialect import IdentifiedAnswering, IdsAndClock
from tests.fakes.toy_dialect import ShoutedAnswer

STARTED = ReplyStarted("reply_1")


@pytest.mark.parametrize(("prefix", "call_id"), [((), "call_7"), (("use_",), "use_7")])
def test_the_id_of_a_call_is_a_random_token_with_the_prefix_of_its_dialect(
    prefix: tuple[str, ...], call_id: str
) -> None:
    assert IdsAndClock(now=lambda: 0.0, token=lambda: "7").call_id(*prefix) == call_id


@pytest.mark.parametrize(
    ("first", "known"),
    [(STARTED, STARTED), (TextDelta("x"), ReplyStarted()), (None, ReplyStarted())],
)
def test_an_answer_is_made_from_its_first_event_if_this_is_reply_started(
    first: ReplyEvent | None, known: ReplyStarted
) -> None:
    seen: list[ReplyStarted] = []

    def make(started: ReplyStarted) -> ShoutedAnswer:
        seen.append(started)
        return ShoutedAnswer()

    answering = IdentifiedAnswering(lambda started: started, make, make, lambda: "call_1")
    answering.begin(first)
    answering.builder(first)
    assert seen == [known, known]
