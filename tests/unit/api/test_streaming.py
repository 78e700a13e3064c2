import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from proxy.api.client_connection import WIRE, ClientConnection
from proxy.api.dialects import CHAT
from proxy.api.streaming import AnswerStream, Deadline, StreamTimeouts
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import PromptProgress, ReplyEvent, ReplyFinished, TextDelta
from proxy.conversation.requests import Request
from proxy.dialects.dialect import Decoded, Problem, StreamEncoder
from proxy.dialects.openai_chat.dialect import chat_answering
from proxy.errors import BackendTimedOut, BackendUnavailable, TemperError
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from tests.fakes.asgi import HandMadeClient, HandMadeWire
from tests.fakes.servers import Server


class LetterEncoder:
    """An encoder that writes each event as readable text."""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        return b"".join(event.text.encode() for event in events if isinstance(event, TextDelta))

    def keep_alive(self) -> bytes:
        return b"~"

    def end(self) -> bytes:
        return b"."

    def comment(self, text: str) -> bytes:
        return f"({text})".encode()

    def fail(self, problem: Problem) -> bytes:
        return f"!{problem.code or problem.status}".encode()


@dataclass
class Answer:
    """An answer whose encoder, final events and backend name are set by the test."""

    make: Callable[[ReplyEvent | None], StreamEncoder] = lambda _: LetterEncoder()
    final_events: Callable[[TemperError], Sequence[ReplyEvent]] = lambda _: ()
    backend_name: str = "b"

    def encoder(self, first: ReplyEvent | None) -> StreamEncoder:
        return self.make(first)

    def headers(self) -> dict[str, str]:
        return {"x-own": "1"}

    def comments(self) -> list[str]:
        return []

    def cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        return self.final_events(failure)


async def batches(*steps: ReplyEvent | list[ReplyEvent] | Exception | asyncio.Event) -> ReplyEvents:
    for step in steps:
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, Exception):
            raise step
        else:
            yield step if isinstance(step, list) else [step]


async def send_all(
    given: ReplyEvents,
    connection: ClientConnection,
    timeouts: StreamTimeouts | None = None,
    answer: Answer | None = None,
) -> None:
    stream = AnswerStream(connection, timeouts or StreamTimeouts())
    await stream.send(given, answer or Answer())


def stream(
    given: ReplyEvents,
    client: HandMadeClient,
    timeouts: StreamTimeouts | None = None,
    answer: Answer | None = None,
) -> None:
    asyncio.run(send_all(given, client.connection, timeouts, answer))


class FailingEncoder(LetterEncoder):
    """An encoder that raises KeyError for `ReplyFinished`."""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        for event in events:
            if isinstance(event, ReplyFinished):
                raise KeyError(event.reason)
        return super().encode_all(events)


def test_events_are_encoded_in_order_and_followed_by_the_end_of_the_stream() -> None:
    client = HandMadeClient()
    stream(batches(TextDelta("a"), PromptProgress(1, 1, 1), TextDelta("b")), client)
    assert client.answer == b"ab."
    assert client.status == 200
    assert client.answer_headers["content-type"].startswith("text/event-stream")
    assert client.answer_headers["cache-control"] == "no-cache"
    assert client.answer_headers["x-own"] == "1"


def test_a_failure_after_the_first_event_sends_an_error_event_but_no_end_of_stream() -> None:
    client = HandMadeClient()
    stream(batches(TextDelta("a"), BackendUnavailable("b", "is down")), client)
    assert client.answer == b"a!backend_unavailable"


def test_events_that_arrive_together_are_sent_together() -> None:
    client = HandMadeClient()
    letters: list[ReplyEvent] = [TextDelta(letter) for letter in "abcdefgh"]
    stream(batches(letters, letters, BackendUnavailable("b", "is down")), client)
    bodies = [message["body"] for message in client.got if message["type"] == "http.response.body"]
    assert bodies == [b"abcdefgh", b"abcdefgh", b"!backend_unavailable"]


async def yield_turns(number: int) -> None:
    """Yield to the event loop `number` times, so that other tasks run."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_slow_client_slows_down_reading_from_the_backend() -> None:
    read: list[int] = []

    async def endless() -> ReplyEvents:
        for number in count():
            read.append(number)
            await asyncio.sleep(0)
            yield [TextDelta("x")]

    is_reading = asyncio.Event()

    async def slow_send(message: Message) -> None:
        if message.get("body"):
            await is_reading.wait()

    connection = HandMadeClient().connection.wrap(send=slow_send)
    task = asyncio.create_task(send_all(endless(), connection))
    await yield_turns(500)
    read_before = len(read)
    assert read_before < 100
    is_reading.set()
    await yield_turns(500)
    assert len(read) > 5 * read_before
    is_reading.clear()
    await yield_turns(50)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_a_stream_over_its_deadline_ends_with_a_backend_timeout() -> None:
    client = HandMadeClient()
    stream(batches(TextDelta("a"), asyncio.Event()), client, StreamTimeouts(deadline=0.01))
    assert client.answer == b"a!backend_timeout"


def test_the_answer_supplies_the_last_events_of_a_stream_over_its_deadline() -> None:
    client = HandMadeClient()
    failures: list[TemperError] = []

    def cut_off(failure: TemperError) -> list[ReplyEvent]:
        failures.append(failure)
        return [TextDelta("b"), ReplyFinished("length")]

    events = batches(TextDelta("a"), asyncio.Event())
    stream(events, client, StreamTimeouts(deadline=0.01), Answer(final_events=cut_off))
    assert client.answer == b"ab."
    (failure,) = failures
    assert isinstance(failure, BackendTimedOut)
    assert failure.is_overall


def test_an_internal_error_during_a_stream_is_sent_as_an_event_and_raised_for_the_log() -> None:
    client = HandMadeClient()
    with pytest.raises(RuntimeError, match="of our own"):
        stream(batches(TextDelta("a"), RuntimeError("of our own")), client)
    assert client.answer == b"a!500"
    assert not client.got[-1]["more_body"]


def test_an_encoder_error_is_sent_as_an_event() -> None:
    client = HandMadeClient()
    with pytest.raises(KeyError):
        stream(
            batches(TextDelta("a"), ReplyFinished("odd")),
            client,
            answer=Answer(lambda _: FailingEncoder()),
        )
    assert client.answer == b"a!500"


def test_an_internal_error_before_the_first_event_is_raised_and_nothing_is_sent() -> None:
    client = HandMadeClient()
    with pytest.raises(RuntimeError):
        stream(batches(RuntimeError("of our own")), client)
    assert client.got == []


def test_keepalives_are_sent_although_prompt_progress_arrives() -> None:
    client = HandMadeClient()

    async def reading_a_prompt() -> ReplyEvents:
        while client.answer.count(b"~") < 2:
            await asyncio.sleep(0)
            yield [PromptProgress(9, 0, 1)]
        yield [TextDelta("a")]

    stream(reading_a_prompt(), client, StreamTimeouts(keep_alive=0.02, deadline=5))
    assert client.answer == b"~~a."


def test_keepalives_are_sent_while_the_backend_sends_nothing() -> None:
    client = HandMadeClient()
    first_events: list[ReplyEvent | None] = []
    gate = asyncio.Event()

    def make(first: ReplyEvent | None) -> StreamEncoder:
        first_events.append(first)
        return LetterEncoder()

    async def send(message: Message) -> None:
        await HandMadeClient.send(client, message)
        if client.answer.count(b"~") == 3:
            gate.set()

    async def run() -> None:
        events = batches(gate, TextDelta("a"), ReplyFinished("stop"))
        connection = client.connection.wrap(send=send)
        await send_all(events, connection, StreamTimeouts(keep_alive=0.01), Answer(make))

    asyncio.run(run())
    assert first_events == [None]
    assert client.answer.replace(b"~", b"") == b"a."


async def test_a_stream_that_is_canceled_by_shutdown_ends_with_an_error() -> None:
    client = HandMadeClient()
    begun = asyncio.Event()

    async def endless() -> ReplyEvents:
        yield [TextDelta("a")]
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(send_all(endless(), client.connection))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.answer == b"a!backend_unavailable"


def test_a_stream_canceled_by_an_operator_ends_with_request_cancelled() -> None:
    client = HandMadeClient()

    connection = client.connection

    async def endless() -> ReplyEvents:
        yield [TextDelta("a")]
        connection.cancel()
        await asyncio.Event().wait()

    async def run() -> bool:
        return await connection.while_connected(send_all(endless(), connection))

    assert not asyncio.run(run())
    assert client.answer == b"a!request_cancelled"


def test_the_upstream_stream_is_closed_if_the_client_disconnects() -> None:
    client = HandMadeClient()
    closed: list[bool] = []

    async def endless() -> ReplyEvents:
        try:
            while True:
                yield [TextDelta("a")]
                client.leaves.set()
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    async def run() -> None:
        connection = client.connection
        await connection.while_connected(send_all(endless(), connection))

    asyncio.run(run())
    assert closed == [True]


async def test_a_deadline_starts_when_its_block_is_entered() -> None:
    deadline = Deadline(0.02, "b")
    await asyncio.sleep(0.05)
    async with deadline:
        pass


def test_a_timeout_error_raised_within_a_deadline_is_a_backend_timeout() -> None:
    async def run() -> None:
        async with Deadline(60, "b"):
            raise TimeoutError

    with pytest.raises(BackendTimedOut):
        asyncio.run(run())


@dataclass
class RecordingWire(HandMadeWire):
    """A transport that adds its writes, in angle brackets, to the messages of the client."""

    client: HandMadeClient = field(default_factory=HandMadeClient)

    def write(self, body: bytes) -> None:
        self.client.got.append({"type": "http.response.body", "body": b"<" + body + b">"})


def test_a_stream_is_ready_for_direct_events_only_between_other_writes() -> None:
    client = HandMadeClient()
    wire = RecordingWire(is_writable=True, client=client)
    states: list[tuple[str, bool]] = []

    def note(stage: str) -> None:
        states.append((stage, streaming.is_ready))

    async def given() -> ReplyEvents:
        note("before")
        yield [TextDelta("a")]
        note("between")
        streaming.show([TextDelta("b"), TextDelta("c")])
        streaming.show([PromptProgress(1, 1, 1)])
        wire.is_writable = False
        note("stalled")
        wire.is_writable = True
        yield [TextDelta("d")]

    async def send(message: Message) -> None:
        note("sending")
        await client.send(message)

    scope = {**client.scope, "extensions": {WIRE: {"wire": wire}}}
    streaming = AnswerStream(ClientConnection(scope, client.receive, send), StreamTimeouts())
    asyncio.run(streaming.send(given(), Answer()))
    assert client.answer == b"a<bc>d."
    assert [stage for stage, is_ready in states[:-1] if is_ready] == ["between"]
    assert {"before", "stalled", "sending"} < {stage for stage, _ in states}


def test_a_stream_without_a_wire_is_never_ready_for_direct_events() -> None:
    client = HandMadeClient()
    streaming = AnswerStream(client.connection, StreamTimeouts())

    async def given() -> ReplyEvents:
        yield [TextDelta("a")]
        assert not streaming.is_ready

    asyncio.run(streaming.send(given(), Answer()))
    assert client.answer == b"a."


STREAMED = Request("big", (), {}, stream=True)
WHOLE = Request("big", (), {})
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"rest", "more_body": False}


@dataclass
class LoadingScene:
    """A client that requests a model which is still loading, and the server of the model."""

    timeouts: StreamTimeouts
    client: HandMadeClient = field(default_factory=HandMadeClient)
    server: Server = field(default_factory=Server)
    sent: "asyncio.Queue[Message]" = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        swapping = SwapPlanner([LoadableModel("a"), LoadableModel("b")], Budget(models=1))
        self.fleet = Fleet({"a": self.server, "b": Server()}, swapping)
        self.connection = self.client.connection.wrap(send=self.send)
        self.stream = AnswerStream(self.connection, self.timeouts)
        self.client.has_sent = True  # the client has already sent its body

    async def wait_for_model(self, request: Request, *, model: str = "a") -> None:
        with self.fleet.lease(model) as hold:
            answering = chat_answering(request, CHAT.stamp)
            await self.stream.wait_for(hold, Decoded(request, answering))

    async def send(self, message: Message) -> None:
        await self.client.send(message)
        self.sent.put_nowait(message)

    async def wait_until_sent(self, messages: int) -> None:
        """Wait until `messages` more messages have been sent."""
        for _ in range(messages):
            await self.sent.get()


@asynccontextmanager
async def waiting_for_a_model(
    timeouts: StreamTimeouts | None = None,
) -> AsyncGenerator[LoadingScene]:
    scene = LoadingScene(timeouts or StreamTimeouts())
    yield scene
    await scene.fleet.close()


async def test_a_short_wait_for_a_model_sends_nothing() -> None:
    async with waiting_for_a_model() as scene:
        scene.server.finish()
        await scene.wait_for_model(STREAMED)
        assert (scene.client.got, scene.stream.encoder) == ([], None)
        await scene.connection.send(START)
    assert scene.client.got == [START]


async def test_a_long_wait_for_a_model_is_explained_in_a_comment_and_the_stream_continues() -> None:
    async with waiting_for_a_model(StreamTimeouts(keep_alive=0.001)) as scene:
        with scene.fleet.lease("b"):
            waiting = asyncio.create_task(scene.wait_for_model(STREAMED))
            await scene.wait_until_sent(3)
        scene.server.finish()
        await waiting
        await scene.connection.send(BODY)
    client = scene.client
    assert [message["type"] for message in client.got].count("http.response.start") == 1
    assert client.answer_headers["content-type"].startswith("text/event-stream")
    first, second, *_ = (message["body"] for message in client.got[1:])
    comment = b"waiting for requests to b to end, because a needs the memory, 1 request ahead"
    assert first.startswith(b": " + comment + b"\n\ndata: ")
    assert b'"role":"assistant"' in first
    assert b'"delta":{}' in second
    assert client.answer.endswith(b"rest")


async def test_a_stream_starts_while_its_model_is_loading() -> None:
    async with waiting_for_a_model(StreamTimeouts(keep_alive=600.0)) as scene:
        waiting = asyncio.create_task(scene.wait_for_model(STREAMED))
        await scene.wait_until_sent(2)
        scene.server.finish()
        await waiting
    client = scene.client
    assert client.answer.startswith(b": loading a\n\ndata: ")


async def test_a_non_streaming_client_gets_no_bytes_while_its_model_loads() -> None:
    async with waiting_for_a_model(StreamTimeouts(keep_alive=0.0001)) as scene:
        waiting = asyncio.create_task(scene.wait_for_model(WHOLE))
        for _ in range(50):
            await asyncio.sleep(0)
        scene.server.finish()
        await waiting
        assert scene.client.got == []


async def test_a_failure_after_the_stream_started_sends_exactly_one_error_event() -> None:
    async with waiting_for_a_model(StreamTimeouts(keep_alive=0.001)) as scene:
        assert not await scene.stream.fail(TemperError())
        assert scene.client.got == []
        waiting = asyncio.create_task(scene.wait_for_model(STREAMED))
        await scene.wait_until_sent(2)
        scene.server.finish()
        await waiting
        assert await scene.stream.fail(TemperError())
        assert not await scene.stream.fail(TemperError())
    client = scene.client
    assert client.answer.count(b'data: {"error":') == 1
    assert client.answer.endswith(b"\n\n")
    assert not client.got[-1].get("more_body", False)


async def test_a_failure_after_the_end_of_the_stream_sends_nothing() -> None:
    async with waiting_for_a_model(StreamTimeouts(keep_alive=0.001)) as scene:
        waiting = asyncio.create_task(scene.wait_for_model(STREAMED))
        await scene.wait_until_sent(2)
        scene.server.finish()
        await waiting
        await scene.connection.send(BODY)
        assert not await scene.stream.fail(TemperError())
    assert scene.client.answer.endswith(b"rest")


async def test_a_client_that_disconnects_ends_the_wait_for_its_model() -> None:
    async with waiting_for_a_model() as scene:
        waiting = asyncio.create_task(scene.wait_for_model(STREAMED))
        await scene.server.wanted.wait()
        scene.client.leaves.set()
        with pytest.raises(ClientDisconnect):
            await waiting
