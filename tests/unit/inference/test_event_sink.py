from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.guardrails.offer import TextPolicy
from proxy.inference.event_sink import sink_to
from proxy.inference.preparation import Policy
from tests.fakes.playbook import Playbook, make_request


@dataclass
class Listeners:
    """An audience that notes what it is shown."""

    is_ready: bool = True
    seen: list[ReplyEvent] = field(default_factory=list)

    def show(self, events: Sequence[ReplyEvent]) -> None:
        assert events
        self.seen += events


def test_an_audience_gets_at_once_what_a_turn_shows_and_the_rest_later() -> None:
    book = Playbook.of(make_request(stream=True), Policy(text_policy=TextPolicy.ACCEPT)).ask()
    listeners = Listeners()
    take = sink_to(listeners, book.turn)
    _ = book >> ReplyStarted("c") >> TextDelta("It")
    assert take([TextDelta(" is "), TextDelta("noon <to")])
    assert take([TextDelta("ol")])
    assert listeners.seen == [TextDelta(" is "), TextDelta("noon")]
    _ = book >> ReplyFinished("stop")
    assert book.shown == [
        *(ReplyStarted("c"), TextDelta("It"), TextDelta(" <tool"), ReplyFinished("stop"))
    ]


def test_a_turn_hears_nothing_twice_while_its_audience_is_not_ready() -> None:
    book = Playbook.of(make_request(stream=True), Policy(text_policy=TextPolicy.ACCEPT)).ask()
    listeners = Listeners(is_ready=False)
    assert not sink_to(listeners, book.turn)([TextDelta("Noon")])
    _ = book >> TextDelta("Noon") << TextDelta("Noon")
    assert listeners.seen == []
