from dataclasses import dataclass
from typing import ClassVar

import pytest

from proxy.conversation.replies import ReplyEvent
from proxy.dialects.front import AnswerBuilder, IdsAndClock, StampedAnswering, StreamEncoder


@dataclass
class Usual(StampedAnswering):
    stamp: IdsAndClock

    def begin(self, first: ReplyEvent | None) -> StreamEncoder:
        raise NotImplementedError

    def builder(self, first: ReplyEvent | None) -> AnswerBuilder:
        raise NotImplementedError


class OfItsOwn(Usual):
    call_prefix: ClassVar[str] = "use_"


@pytest.mark.parametrize(("kind", "call_id"), [(Usual, "call_7"), (OfItsOwn, "use_7")])
def test_the_id_of_a_call_is_a_fresh_token_behind_the_prefix_of_its_language(
    kind: type[Usual], call_id: str
) -> None:
    assert kind(IdsAndClock(now=lambda: 0.0, token=lambda: "7")).new_call_id() == call_id
