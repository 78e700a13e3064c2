import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.api.answer_source import SingleTurn, SlotTerms
from proxy.api.client_connection import WIRE, ClientConnection
from proxy.api.fronts import STAMP
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import (
    EventSink,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
)
from proxy.conversation.requests import Question
from proxy.dialects.openai_chat.front import ChatAnswering
from proxy.guardrails.offer import TextPolicy
from proxy.inference.preparation import Policy
from proxy.observability.live_request import LiveRequest
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.playbook import CountedIds, make_request, prepare


@dataclass
class Wire:
    """A wire that notes what is written past everybody."""

    is_writable: bool = True
    is_gone: bool = False
    written: list[bytes] = field(default_factory=list)

    def watch(self, on_leave: Callable[[], None] | None) -> None:
        del on_leave

    def write(self, body: bytes) -> None:
        self.written.append(body)


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


async def answer(backend: Offering, wire: Wire) -> list[list[ReplyEvent]]:
    """Give the batches of an answer to a client that has seen its beginning."""
    request = make_request()
    turn = prepare(request, Policy(text_policy=TextPolicy.ACCEPT), CountedIds())
    client = HandMadeClient()
    scope = {**client.scope, "extensions": {WIRE: {"wire": wire}}}
    stream = AnswerStream(ClientConnection(scope, client.receive, client.send), StreamTimeouts())
    await stream.begin(ChatAnswering(request, STAMP).begin(None), {})
    source = SingleTurn(turn, SlotTerms(backend), LiveRequest(""))
    return [[*batch] async for batch in source.events({}, stream)]


def test_a_client_gets_at_once_what_a_turn_shows_and_the_rest_later() -> None:
    wire = Wire()
    backend = Offering(offered=[[TextDelta(" is "), TextDelta("noon <to")], [TextDelta("ol")]])
    batches = asyncio.run(answer(backend, wire))
    assert backend.taken == [True, True]
    assert len(wire.written) == 1
    assert b" is noon" in b"".join(wire.written).replace(b'"}}', b"") or b"noon" in wire.written[0]
    assert batches == [
        [ReplyStarted("c"), TextDelta("It")],
        [TextDelta(" <tool"), ReplyFinished("stop")],
    ]


def test_a_turn_hears_nothing_twice_while_its_client_is_not_ready() -> None:
    wire = Wire(is_writable=False)
    backend = Offering(offered=[[TextDelta(" is noon")]])
    batches = asyncio.run(answer(backend, wire))
    assert (backend.taken, wire.written) == ([False], [])
    assert [TextDelta(" is noon")] in batches
