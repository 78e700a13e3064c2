"""Answers, streamed and whole: the response that the client receives, and the record."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from starlette.types import Message

from proxy.api.app import ServerOptions
from proxy.api.client_connection import WIRE, ClientConnection
from proxy.api.dialects import CHAT
from proxy.api.request_reader import BodyLimits, RequestReader
from proxy.api.routes.chat import Chat
from proxy.api.streaming import StreamTimeouts
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
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import BackendUnavailable, TemperError
from proxy.facts import ReplyOutcome
from proxy.inference.plan import Policy
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord, Tokens
from proxy.serving.request_preparation import RequestPreparation
from tests.fakes.asgi import HandMadeClient, HandMadeWire
from tests.fakes.backend import ScriptedBackend
from tests.fakes.upstream_requests import WEATHER
from tests.timeouts import TIMEOUT_SECONDS

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


@dataclass
class RecordSink:
    records: list[RequestRecord] = field(default_factory=list)

    def take(self, record: RequestRecord) -> None:
        self.records.append(record)


@dataclass
class OfferingBackend(ScriptedBackend):
    """Offers the batches of `offered` to the sink; `accepted` are the return values of the sink."""

    offered: Sequence[Sequence[ReplyEvent]] = ()
    accepted: list[bool] = field(default_factory=list)

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        assert sink is not None
        yield [ReplyStarted("c"), TextDelta("It")]
        for content in self.offered:
            self.accepted.append(sink(content))
            if not self.accepted[-1]:
                yield content
        yield [ReplyFinished("stop")]


@dataclass
class WaitingBackend(ScriptedBackend):
    """Sends its script, and then repeats `text`, if it is set, until the event `end` is set."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    text: str = ""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        if self.scripts:
            async for batch in super().stream(upstream_request, headers, sink):
                yield batch
        while self.text:
            yield [TextDelta(self.text)]
            await asyncio.sleep(0)
        await self.end.wait()


async def answer(
    client: HandMadeClient,
    backend: ScriptedBackend,
    *,
    is_stream: bool,
    timeouts: StreamTimeouts | None = None,
    wire: HandMadeWire | None = None,
    tools: tuple[json.JsonValue, ...] = (),
    forwards: bool = False,
) -> RequestRecord:
    """Send a chat request to `Chat`; return its record. `wire` writes directly to the client."""
    body: json.JsonObject = {
        "model": "test",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": is_stream,
        "tools": [*tools],
    }
    client.body, client.method = json.dump(body), "POST"
    records = RecordSink()
    chat = Chat(
        CHAT,
        RequestReader(BodyLimits(), forwards),
        RequestPreparation(ServerOptions().services_for(backend), Policy()),
        timeouts or StreamTimeouts(),
        observers=Observers((records,)),
    )
    scope = client.scope
    if wire is not None:
        scope["extensions"] = {WIRE: {"wire": wire}}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await chat(ClientConnection(scope, client.receive, client.send))
    (record,) = records.records
    return record


async def test_text_is_written_directly_to_a_writable_transport() -> None:
    client, wire = HandMadeClient(), HandMadeWire(is_writable=True)
    content = [[TextDelta(" is "), TextDelta("noon <to")], [TextDelta("ol")]]
    backend = OfferingBackend(offered=content)
    await answer(client, backend, is_stream=True, wire=wire, tools=(WEATHER,))
    assert backend.accepted == [True, True]
    assert len(wire.sent) == 1
    assert wire.sent[0].index(b'" is "') < wire.sent[0].index(b'"noon"')
    assert client.answer.index(b'"It"') < client.answer.index(b" <tool")


async def test_text_is_queued_while_the_transport_is_not_writable() -> None:
    client, wire = HandMadeClient(), HandMadeWire()
    backend = OfferingBackend(offered=[[TextDelta(" is noon")]])
    await answer(client, backend, is_stream=True, wire=wire)
    assert (backend.accepted, wire.sent) == ([False], [])
    assert client.answer.count(b" is noon") == 1


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_record_of_a_complete_answer_has_its_status_and_token_counts(
    is_stream: bool,
) -> None:
    client = HandMadeClient()
    record = await answer(client, ScriptedBackend([HELLO]), is_stream=is_stream)
    assert b"Hello" in client.answer
    assert (record.id, record.status, record.stream) == ("req_test", 200, is_stream)
    assert record.tokens == Tokens(7, 5, 2)
    assert record.first_token is not None
    assert record.finish_reason == "stop"
    assert [(ran.kind, ran.defect, ran.error) for ran in record.attempts] == [
        ("as_asked", None, None)
    ]
    assert record.outcome is ReplyOutcome.CLEAN


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("backend", "status", "reason", "error"),
    [
        (lambda: WaitingBackend(text="and on "), 200, "length", None),
        (WaitingBackend, 504, None, None),
        (lambda: ScriptedBackend([[BackendUnavailable("b", "is down")]]), 502, None, "unavailable"),
    ],
    ids=["cut off at the deadline", "silent until the deadline", "failed"],
)
async def test_the_record_of_an_answer_that_ends_early_has_its_status_and_the_reason(
    *,
    backend: Callable[[], ScriptedBackend],
    status: int,
    reason: str | None,
    error: str | None,
    is_stream: bool,
) -> None:
    client, timeouts = HandMadeClient(), StreamTimeouts(deadline=0.02)
    record = await answer(client, backend(), is_stream=is_stream, timeouts=timeouts)
    assert (record.status, record.finish_reason) == (status, reason)
    assert (record.first_token is None) is (status != 200)
    assert error in (None, record.error)
    assert (b"error" in client.answer) is (status != 200)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_disconnects_before_the_first_token_is_recorded_as_499(
    is_stream: bool,
) -> None:
    client = HandMadeClient()
    client.leaves.set()
    record = await answer(client, WaitingBackend(), is_stream=is_stream)
    assert (record.status, record.left) == (499, "before_first_token")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_record_of_an_answer_that_the_backend_breaks_off_has_no_outcome(
    is_stream: bool,
) -> None:
    broken: list[ReplyEvent | TemperError] = [TextDelta("He"), BackendUnavailable("b", "broke")]
    client = HandMadeClient()
    record = await answer(client, ScriptedBackend([broken]), is_stream=is_stream)
    assert record.outcome is None


@dataclass
class PingCounter(HandMadeClient):
    """Sets `event` after two empty body messages; a ping is an empty body message."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    empty: int = 0

    async def send(self, message: Message) -> None:
        await super().send(message)
        self.empty += message["type"] == "http.response.body" and not message["body"]
        if self.empty == 2:
            self.event.set()


async def test_after_the_finish_reason_a_stream_has_no_more_choices_and_ends_with_done() -> None:
    client = PingCounter()
    backend = WaitingBackend([HELLO], end=client.event)
    await answer(client, backend, is_stream=True, timeouts=StreamTimeouts(keep_alive=0.01))
    remainder = client.answer.partition(b'"finish_reason":"stop"')[2]
    assert b'"choices"' not in remainder
    assert remainder.endswith(b"data: [DONE]\n\n")


async def test_an_id_and_a_model_missing_in_the_upstream_reply_are_filled_in() -> None:
    client = HandMadeClient()
    backend = ScriptedBackend([[TextDelta("Hello"), ReplyFinished("stop")]])
    await answer(client, backend, is_stream=False)
    document = json.parse(client.answer)
    assert isinstance(document, dict)
    assert str(document["id"]).startswith("chatcmpl-")
    assert document["model"] == "test"


@pytest.mark.parametrize("forwards", [False, True])
async def test_client_headers_other_than_traceparent_and_authorization_are_not_forwarded(
    *, forwards: bool
) -> None:
    sent = {"authorization": "Bearer k", "traceparent": "t", "x-conversation-id": "1"}
    client, backend = HandMadeClient(headers=sent), ScriptedBackend([HELLO])
    await answer(client, backend, is_stream=False, forwards=forwards)
    key = {"authorization": "Bearer k"} if forwards else {}
    prefix = client.answer_headers["x-temper-prefix"]
    assert backend.headers == [
        {**key, "traceparent": "t", "x-request-id": "req_test", "x-temper-prefix": prefix}
    ]
