import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest
from starlette.types import Message

from proxy.api.connections import DIRECT
from proxy.api.streaming import (
    ENDED_BY_OPERATOR,
    Encoder,
    EventStream,
    StreamTimeouts,
    while_connected,
    within,
)
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import PromptProgress, ReplyEvent, ReplyFinished, TextDelta
from proxy.errors import BackendTimedOut, BackendUnavailable, TemperError
from tests.fakes.asgi import HandMadeClient


class Letters:
    """An encoder whose bytes are easy to read."""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        return b"".join(event.text.encode() for event in events if isinstance(event, TextDelta))

    def keep_alive(self) -> bytes:
        return b"~"

    def end(self) -> bytes:
        return b"."

    def fail(self, error: TemperError) -> bytes:
        return f"!{type(error).__name__}".encode()


async def batches(
    *steps: ReplyEvent | list[ReplyEvent] | Exception | asyncio.Event,
) -> ReplyEvents:
    for step in steps:
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, Exception):
            raise step
        else:
            yield step if isinstance(step, list) else [step]


def stream(
    given: ReplyEvents,
    client: HandMadeClient,
    timeouts: StreamTimeouts | None = None,
    make: Callable[[ReplyEvent | None], Encoder[ReplyEvent]] = lambda _: Letters(),
) -> None:
    streaming = EventStream(
        given, make, timeouts or StreamTimeouts(), backend="b", headers=lambda: {"x-own": "1"}
    )

    async def run() -> None:
        await streaming(client.scope, client.send)

    asyncio.run(run())


class Buggy(Letters):
    """Does not know what to make of some events."""

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        for event in events:
            if isinstance(event, ReplyFinished):
                raise KeyError(event.reason)
        return super().encode_all(events)


def test_events_are_sent_as_they_come_and_then_the_end() -> None:
    client = HandMadeClient()
    stream(batches(TextDelta("a"), PromptProgress(1, 1, 1), TextDelta("b")), client)
    assert client.answer == b"ab."
    assert client.status == 200
    assert client.answer_headers["content-type"].startswith("text/event-stream")
    assert client.answer_headers["cache-control"] == "no-cache"
    assert client.answer_headers["x-own"] == "1"


def test_a_failure_before_the_first_event_has_its_own_status() -> None:
    client = HandMadeClient()
    stream(batches(BackendUnavailable("b", "is down")), client)
    assert client.status == 502


def test_a_failure_later_is_an_event_and_no_end() -> None:
    client = HandMadeClient()
    stream(batches(TextDelta("a"), BackendUnavailable("b", "is down")), client)
    assert client.answer == b"a!BackendUnavailable"


def test_what_came_together_leaves_together() -> None:
    client = HandMadeClient()
    letters: list[ReplyEvent] = [TextDelta(letter) for letter in "abcdefgh"]
    stream(batches(letters, letters, BackendUnavailable("b", "is down")), client)
    bodies = [one["body"] for one in client.got if one["type"] == "http.response.body"]
    assert bodies == [b"abcdefgh", b"abcdefgh", b"!BackendUnavailable"]


async def turns(number: int) -> None:
    """Let everything that can go on do so."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_a_client_that_reads_slowly_slows_the_reading_of_the_backend_down() -> None:
    read: list[int] = []

    async def endless() -> ReplyEvents:
        for number in count():
            read.append(number)
            await asyncio.sleep(0)
            yield [TextDelta("x")]

    async def scene() -> None:
        reading = asyncio.Event()

        async def slow_send(message: Message) -> None:
            if message.get("body"):
                await reading.wait()

        streaming = EventStream(
            endless(), lambda _: Letters(), StreamTimeouts(), backend="b", headers=dict
        )
        task = asyncio.create_task(streaming(HandMadeClient().scope, slow_send))
        await turns(500)
        held = len(read)
        assert held < 100
        reading.set()
        await turns(500)
        assert len(read) > 5 * held
        reading.clear()
        await turns(50)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(scene())


def test_too_much_time_in_all_is_a_failure() -> None:
    client = HandMadeClient()
    stream(batches(TextDelta("a"), asyncio.Event()), client, StreamTimeouts(deadline=0.01))
    assert client.answer == b"a!BackendTimedOut"


def test_what_flowed_until_its_time_was_over_gets_an_end() -> None:
    client = HandMadeClient()
    failures: list[TemperError] = []

    def cut_off(failure: TemperError) -> list[ReplyEvent]:
        failures.append(failure)
        return [TextDelta("b"), ReplyFinished("length")]

    given = batches(TextDelta("a"), asyncio.Event())
    streaming = EventStream(
        given,
        lambda _: Letters(),
        StreamTimeouts(deadline=0.01),
        backend="b",
        headers=dict,
        cut_off=cut_off,
    )
    asyncio.run(streaming(client.scope, client.send))
    assert client.answer == b"ab."
    (failure,) = failures
    assert isinstance(failure, BackendTimedOut)
    assert failure.is_overall


def test_a_bug_in_the_middle_is_an_event_and_raised_again_for_the_log() -> None:
    client = HandMadeClient()
    with pytest.raises(RuntimeError, match="of our own"):
        stream(batches(TextDelta("a"), RuntimeError("of our own")), client)
    assert client.answer == b"a!TemperError"
    assert not client.got[-1]["more_body"]


def test_a_bug_in_what_encodes_is_an_event_as_well() -> None:
    client = HandMadeClient()
    with pytest.raises(KeyError):
        stream(batches(TextDelta("a"), ReplyFinished("odd")), client, make=lambda _: Buggy())
    assert client.answer == b"a!TemperError"


def test_a_bug_before_the_first_event_is_left_to_the_server() -> None:
    client = HandMadeClient()
    with pytest.raises(RuntimeError):
        stream(batches(RuntimeError("of our own")), client)
    assert client.got == []


def test_events_that_a_client_does_not_see_do_not_count_as_life() -> None:
    client = HandMadeClient()

    async def reading_a_prompt() -> ReplyEvents:
        while client.answer.count(b"~") < 2:
            await asyncio.sleep(0)
            yield [PromptProgress(9, 0, 1)]
        yield [TextDelta("a")]

    stream(reading_a_prompt(), client, StreamTimeouts(keep_alive=0.02, deadline=5))
    assert client.answer == b"~~a."


def test_silence_is_filled_with_signs_of_life() -> None:
    client = HandMadeClient()
    seen: list[ReplyEvent | None] = []
    gate = asyncio.Event()

    def make(first: ReplyEvent | None) -> Encoder[ReplyEvent]:
        seen.append(first)
        return Letters()

    async def send(message: Message) -> None:
        await HandMadeClient.send(client, message)
        if client.answer.count(b"~") == 3:
            gate.set()

    async def run() -> None:
        given = batches(gate, TextDelta("a"), ReplyFinished("stop"))
        streaming = EventStream(
            given, make, StreamTimeouts(keep_alive=0.01), backend="b", headers=dict
        )
        await streaming(client.scope, send)

    asyncio.run(run())
    assert seen == [None]
    assert client.answer.replace(b"~", b"") == b"a."


def test_work_goes_on_while_the_client_is_there() -> None:
    client = HandMadeClient(has_sent=True)
    done: list[bool] = []

    async def work() -> None:
        done.append(True)

    assert asyncio.run(while_connected(client.receive, work))
    assert done == [True]


def test_work_ends_when_the_client_leaves() -> None:
    client = HandMadeClient()
    ended: list[bool] = []

    async def work() -> None:
        try:
            client.leaves.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert not asyncio.run(while_connected(client.receive, work))
    assert ended == [True]


def test_a_stream_that_the_server_has_to_cut_off_ends_with_an_error() -> None:
    client = HandMadeClient()
    begun = asyncio.Event()

    async def endless() -> ReplyEvents:
        yield [TextDelta("a")]
        begun.set()
        await asyncio.Event().wait()

    async def scene() -> None:
        streaming = EventStream(
            endless(), lambda _: Letters(), StreamTimeouts(), backend="b", headers=dict
        )
        task = asyncio.create_task(streaming(client.scope, client.send))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert client.answer == b"a!BackendUnavailable"


def test_a_stream_that_an_operator_ends_says_so() -> None:
    client = HandMadeClient()

    async def endless() -> ReplyEvents:
        yield [TextDelta("a")]
        client.leaves.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        gone = await client.receive()
        return {**gone, "reason": ENDED_BY_OPERATOR} if client.leaves.is_set() else gone

    async def run() -> bool:
        streaming = EventStream(
            endless(), lambda _: Letters(), StreamTimeouts(), backend="b", headers=dict
        )
        return await while_connected(receive, lambda: streaming(client.scope, client.send))

    assert not asyncio.run(run())
    assert client.answer == b"a!RequestCancelled"


def test_leaving_closes_what_is_being_streamed() -> None:
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
        streaming = EventStream(
            endless(), lambda _: Letters(), StreamTimeouts(), backend="b", headers=dict
        )
        await while_connected(client.receive, lambda: streaming(client.scope, client.send))

    asyncio.run(run())
    assert closed == [True]


def test_a_bound_in_time_is_the_backends_failure() -> None:
    async def run() -> None:
        async with within(0.01, "b"):
            await asyncio.Event().wait()

    with pytest.raises(BackendTimedOut):
        asyncio.run(run())


@dataclass
class Direct:
    """A connection that takes what is written to it, next to what is sent."""

    client: HandMadeClient
    is_possible: bool = True

    def write(self, body: bytes) -> None:
        self.client.got.append({"type": "http.response.body", "body": b"<" + body + b">"})


def test_events_are_shown_at_once_only_while_nothing_else_is_on_its_way() -> None:
    client = HandMadeClient()
    direct = Direct(client)
    states: list[tuple[str, bool]] = []

    def note(place: str) -> None:
        states.append((place, streaming.is_ready))

    async def given() -> ReplyEvents:
        note("before")
        yield [TextDelta("a")]
        note("between")
        streaming.show([TextDelta("b"), TextDelta("c")])
        streaming.show([PromptProgress(1, 1, 1)])
        direct.is_possible = False
        note("stalled")
        direct.is_possible = True
        yield [TextDelta("d")]

    async def send(message: Message) -> None:
        note("sending")
        await client.send(message)

    async def run() -> None:
        scope = {**client.scope, "extensions": {DIRECT: {"writing": direct}}}
        await streaming(scope, send)

    streaming = EventStream(
        given(), lambda _: Letters(), StreamTimeouts(), backend="b", headers=lambda: {}
    )
    asyncio.run(run())
    assert client.answer == b"a<bc>d."
    assert [place for place, is_ready in states[:-1] if is_ready] == ["between"]
    assert {"before", "stalled", "sending"} < {place for place, _ in states}


def test_without_a_direct_way_nothing_is_shown_at_once() -> None:
    client = HandMadeClient()

    async def given() -> ReplyEvents:
        yield [TextDelta("a")]
        assert not streaming.is_ready

    streaming = EventStream(
        given(), lambda _: Letters(), StreamTimeouts(), backend="b", headers=lambda: {}
    )
    asyncio.run(streaming(client.scope, client.send))
    assert client.answer == b"a."
