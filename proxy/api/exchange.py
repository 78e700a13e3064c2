"""One request at the HTTP edge: from the events of its answer to the bytes that its client gets."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from proxy.api.answer_source import AnswerSource
from proxy.api.client_connection import ClientConnection
from proxy.api.errors import refuse
from proxy.api.streaming import AnswerStream, StreamTimeouts, overdue
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import ReplyEvent, ReplyStarted
from proxy.dialects.front import AnswerBuilder, Answering, StreamEncoder
from proxy.errors import BackendTimedOut, TemperError
from proxy.facts import context, outcome, report
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import LiveRequest


class Exchange:
    """Answers one request with the events of a `source`; `headers` are sent to the backend.

    A `recorder` records what the client gets.
    """

    def __init__(
        self,
        answering: Answering,
        source: AnswerSource,
        live: LiveRequest,
        headers: dict[str, str],
        *,
        recorder: ExchangeRecorder | None = None,
    ) -> None:
        self._answering = answering
        self._source = source
        self._live = live
        self._upstream = headers
        self._recorder = recorder
        live.facts_so_far = lambda: source.facts

    @property
    def backend(self) -> str:
        return self._source.backend

    async def stream(self, connection: ClientConnection, stream: AnswerStream) -> None:
        """Stream the answer, or stop all work as soon as the client has gone."""
        batches = self._batches(stream)
        async with aclosing(batches):
            await connection.while_connected(stream.send(batches, self))

    async def whole(self, connection: ClientConnection, timeouts: StreamTimeouts) -> None:
        """Answer with one body, under the same conditions as a stream."""
        batches = self._batches(None)
        async with aclosing(batches):
            await connection.while_connected(self._send_whole(batches, connection, timeouts))

    def close(self) -> None:
        """Record how the answer ended, and drop references back to its source."""
        live, source = self._live, self._source
        live.facts, live.facts_so_far = source.facts, None
        live.set_backend(source.backend)
        if source.is_done:
            live.outcome = outcome(live.facts)

    def encoder(self, first: ReplyEvent | None) -> StreamEncoder:
        return self._answering.begin(first)

    def headers(self) -> Mapping[str, str]:
        headers = {"x-temper-backend": self._source.backend}
        if prefix := self._upstream.get(PREFIX_HEADER):
            headers[PREFIX_HEADER] = prefix
        if shape := context(self._source.turn_facts):
            headers["x-temper-context"] = shape
        return headers

    def comments(self) -> Sequence[str]:
        """Report what happened."""
        reported = report(self._source.facts)
        shape = reported.pop("context", "")
        facts = "; ".join(f"{name}={value}" for name, value in reported.items())
        return [f"x-temper {facts}", *([f"x-temper-context {shape}"] if shape else [])]

    def cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        is_overdue = isinstance(failure, BackendTimedOut) and failure.is_overall
        return self._source.cut_off() if is_overdue else ()

    def _batches(self, stream: AnswerStream | None) -> ReplyEvents:
        batches = self._source.events(self._upstream, stream)
        return batches if self._recorder is None else self._recorder.record_answer(batches)

    async def _send_whole(
        self, batches: ReplyEvents, connection: ClientConnection, timeouts: StreamTimeouts
    ) -> None:
        """Assemble one body from the same events that a stream would show."""
        builder: AnswerBuilder | None = None
        try:
            try:
                async with asyncio.timeout(timeouts.deadline):
                    async for batch in batches:
                        # a turn that was restarted, with a shorter prompt, starts once more
                        if builder is None or isinstance(batch[0], ReplyStarted):
                            builder = self._answering.builder(batch[0])
                        for event in batch:
                            builder.add(event)
            except TimeoutError as late:
                raise overdue(timeouts.deadline, self.backend) from late
        except TemperError as error:
            rest = self.cut_off(error) if builder is not None else ()
            if builder is None or not rest:
                await refuse(connection, error)
                return
            for event in rest:
                builder.add(event)
        body = (builder or self._answering.builder(None)).build()
        reported = {f"x-temper-{name}": value for name, value in report(self._source.facts).items()}
        await connection.respond(200, {**self.headers(), **reported}, body)
