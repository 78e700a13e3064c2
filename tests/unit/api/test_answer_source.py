import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from starlette.types import Message

from proxy.api.answer_source import SingleTurn, SlotTerms
from proxy.api.client_connection import WIRE, ClientConnection
from proxy.api.dialects import STAMP
from proxy.api.request_reader import note_status
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.backends.client import ReplyEvents
from proxy.conversation import json
from proxy.conversation.replies import (
    EventSink,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    UsageReported,
)
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.dialects.openai_chat.dialect import chat_answering
from proxy.errors import BackendUnavailable, TemperError
from proxy.facts import ReplyOutcome
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from proxy.observability.live_request import LiveRequest, RequestTarget
from proxy.observability.record import RequestRecord, Tokens
from tests.fakes.asgi import HandMadeClient, HandMadeWire
from tests.fakes.backend import ScriptedBackend
from tests.fakes.playbook import CountedIds, make_request, prepare
from tests.patience import PATIENCE_SECONDS


@dataclass
class Offering(ScriptedBackend):
    """Offers what comes between its beginning and its end to the sink first."""

    offered: Sequence[Sequence[ReplyEvent]] = ()
    taken: list[bool] = field(default_factory=list)

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        del upstream_request, headers
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
    answering = chat_answering(request, STAMP)
    await stream.begin(answering.begin(None), {})
    source = SingleTurn(turn, SlotTerms(backend), LiveRequest(""), answering, upstream={})
    return [[*batch] async for batch in source.events(stream)]


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


USAGE: json.JsonObject = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 5},
}
HELLO: list[ReplyEvent | TemperError] = [
    ReplyStarted("id", 5, "served"),
    TextDelta("Hello"),
    UsageReported(USAGE),
    ReplyFinished("stop"),
]


class SilentBackend(ScriptedBackend):
    """Never says a word."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        del upstream_request, headers
        await asyncio.Event().wait()
        yield [TextDelta("never")]


def exchange(
    client: HandMadeClient,
    backend: ScriptedBackend,
    *,
    is_stream: bool,
    timeouts: StreamTimeouts | None = None,
) -> RequestRecord:
    request = make_request(tools=())
    asked = Request(request.model, request.messages, request.fields, stream=is_stream)
    turn = prepare(asked, Policy(), CountedIds())
    live = LiveRequest("req_1")
    live.asked = RequestTarget("test", "default", backend.name, is_stream)
    one = SingleTurn(turn, SlotTerms(backend), live, chat_answering(asked, STAMP), upstream={})
    patience = timeouts or StreamTimeouts()
    connection = client.connection

    async def run() -> None:
        if is_stream:
            await one.stream(connection, AnswerStream(connection, patience))
        else:
            await one.whole(connection, patience)

    asyncio.run(run())
    one.close()
    note_status(live, connection)
    return live.record()


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_is_recorded_with_what_it_cost(is_stream: bool) -> None:
    client = HandMadeClient()
    logged = exchange(client, ScriptedBackend([HELLO]), is_stream=is_stream)
    assert b"Hello" in client.answer
    assert (logged.id, logged.status, logged.stream) == ("req_1", 200, is_stream)
    assert logged.tokens == Tokens(7, 5, 2)
    assert logged.first_token is not None
    assert logged.finish_reason == "stop"
    assert [(one.kind, one.defect, one.error) for one in logged.attempts] == [
        ("as_asked", None, None)
    ]


class Endless(ScriptedBackend):
    """Never comes to an end."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        del upstream_request, headers
        while True:
            yield [TextDelta("and on ")]
            await asyncio.sleep(0)


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_without_an_end_is_cut_off_when_its_time_is_over(is_stream: bool) -> None:
    client = HandMadeClient()
    logged = exchange(
        client, Endless([]), is_stream=is_stream, timeouts=StreamTimeouts(deadline=0.02)
    )
    assert (logged.status, logged.finish_reason) == (200, "length")
    assert b"and on" in client.answer
    assert b"error" not in client.answer


@pytest.mark.parametrize("is_stream", [False, True])
def test_silence_until_the_time_is_over_is_a_failure(is_stream: bool) -> None:
    client = HandMadeClient()
    timeouts = StreamTimeouts(deadline=0.02)
    logged = exchange(client, SilentBackend([]), is_stream=is_stream, timeouts=timeouts)
    assert (logged.status, logged.finish_reason) == (504, None)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failure_is_recorded_with_its_status(is_stream: bool) -> None:
    failure = BackendUnavailable("b", "is down")
    logged = exchange(HandMadeClient(), ScriptedBackend([[failure]]), is_stream=is_stream)
    assert logged.status == 502
    assert logged.first_token is None
    assert logged.tokens == Tokens()
    assert logged.error == "unavailable"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_left_is_recorded_as_such(is_stream: bool) -> None:
    client = HandMadeClient()
    client.leaves.set()
    logged = exchange(client, SilentBackend(), is_stream=is_stream)
    assert logged.status == 499
    assert logged.left == "before_first_token"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_outcome_is_recorded_only_of_what_came_to_an_end(is_stream: bool) -> None:
    broken: list[ReplyEvent | TemperError] = [TextDelta("He"), BackendUnavailable("b", "broke")]
    assert (
        exchange(HandMadeClient(), ScriptedBackend([broken]), is_stream=is_stream).outcome is None
    )
    whole = exchange(HandMadeClient(), ScriptedBackend([HELLO]), is_stream=is_stream)
    assert whole.outcome is ReplyOutcome.CLEAN


class SlowToEnd(ScriptedBackend):
    """Takes its time between the finish reason and the end of its reply."""

    def __init__(self, pause: asyncio.Event) -> None:
        super().__init__([HELLO])
        self._pause = pause

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        async for batch in super().stream(upstream_request, headers, sink):
            yield batch
        await self._pause.wait()


@dataclass
class CountingClient(HandMadeClient):
    """Ends a pause when it has got something empty twice, which is what a ping becomes."""

    pause: asyncio.Event = field(default_factory=asyncio.Event)
    empty: int = 0

    async def send(self, message: Message) -> None:
        await super().send(message)
        self.empty += message["type"] == "http.response.body" and not message["body"]
        if self.empty == 2:
            self.pause.set()


def test_nothing_but_the_end_mark_follows_the_finish_reason() -> None:
    client = CountingClient()
    request = replace(make_request(tools=()), stream=True)
    turn = prepare(request, Policy(), CountedIds())
    answering = chat_answering(request, STAMP)
    live = LiveRequest("")
    one = SingleTurn(turn, SlotTerms(SlowToEnd(client.pause)), live, answering, upstream={})
    timeouts = StreamTimeouts(keep_alive=0.01)

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            connection = client.connection
            await one.stream(connection, AnswerStream(connection, timeouts))

    asyncio.run(run())
    behind = client.answer.partition(b'"finish_reason":"stop"')[2]
    assert b'"choices"' not in behind
    assert behind.endswith(b"data: [DONE]\n\n")


def test_what_the_backend_did_not_say_is_filled_in() -> None:
    client = HandMadeClient()
    backend = ScriptedBackend([[TextDelta("Hello"), ReplyFinished("stop")]])
    exchange(client, backend, is_stream=False)
    document = json.parse(client.answer)
    assert isinstance(document, dict)
    assert str(document["id"]).startswith("chatcmpl-")
    assert document["model"] == "test"
