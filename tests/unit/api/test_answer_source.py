import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.api.answer_source import SingleTurn, SlotTerms
from proxy.api.client_connection import WIRE, ClientConnection
from proxy.api.fronts import STAMP
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import EventSink, ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.conversation.requests import Question
from proxy.dialects.openai_chat.front import ChatAnswering
from proxy.guardrails.offer import TextPolicy
from proxy.inference.preparation import Policy
from proxy.observability.live_request import LiveRequest
from tests.fakes.asgi import HandMadeClient, HandMadeWire
from tests.fakes.backend import ScriptedBackend
from tests.fakes.playbook import CountedIds, make_request, prepare


@dataclass
class Offering(ScriptedBackend):
    """Offers what comes between its beginning and its end to the sink first."""

    offered: Sequence[Sequence[ReplyEvent]] = ()
    taken: list[bool] = field(default_factory=list)

    async def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        del question, headers
        assert sink is not None
        yield [ReplyStarted("c"), TextDelta("It")]
        for content in self.offered:
            self.taken.append(sink(content))
            if not self.taken[-1]:
                yield content
        yield [ReplyFinished("stop")]


async def answer(backend: Offering, wire: HandMadeWire) -> list[list[ReplyEvent]]:
    """Give the batches of an answer to a client that has seen its beginning."""
    request = make_request(stream=True)
    turn = prepare(request, Policy(text_policy=TextPolicy.ACCEPT), CountedIds())
    client = HandMadeClient()
    scope = {**client.scope, "extensions": {WIRE: {"wire": wire}}}
    stream = AnswerStream(ClientConnection(scope, client.receive, client.send), StreamTimeouts())
    await stream.begin(ChatAnswering(request, STAMP).begin(None), {})
    source = SingleTurn(turn, SlotTerms(backend), LiveRequest(""))
    return [[*batch] async for batch in source.events({}, stream)]


def test_a_client_gets_at_once_what_a_turn_shows_and_the_rest_later() -> None:
    wire = HandMadeWire(is_writable=True)
    backend = Offering(offered=[[TextDelta(" is "), TextDelta("noon <to")], [TextDelta("ol")]])
    batches = asyncio.run(answer(backend, wire))
    assert backend.taken == [True, True]
    assert len(wire.written) == 1
    assert wire.written[0].index(b'" is "') < wire.written[0].index(b'"noon"')
    assert batches == [
        [ReplyStarted("c"), TextDelta("It")],
        [TextDelta(" <tool"), ReplyFinished("stop")],
    ]


def test_a_turn_hears_nothing_twice_while_its_client_is_not_ready() -> None:
    wire = HandMadeWire()
    backend = Offering(offered=[[TextDelta(" is noon")]])
    batches = asyncio.run(answer(backend, wire))
    assert (backend.taken, wire.written) == ([False], [])
    assert [TextDelta(" is noon")] in batches
