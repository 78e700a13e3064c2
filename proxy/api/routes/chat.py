"""Serves the requests that pass the guardrails, in any language.

`Chat._answer` shows all steps from top to bottom; `TokenCount` does the first half.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs
from starlette.requests import ClientDisconnect

from proxy.api.answer_source import AnswerSource, SingleTurn, SlotTerms
from proxy.api.client_connection import ClientConnection
from proxy.api.dialects import CHAT
from proxy.api.documents import DocumentTexts
from proxy.api.errors import describe, refuse
from proxy.api.request_reader import (
    RequestReader,
    begin_live_request,
    client_key,
    client_of,
    find_secrets,
    note_status,
)
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.dialects.dialect import Client, Decoded, Dialect
from proxy.dialects.requested_tools import take_requested_tools
from proxy.errors import TemperError
from proxy.inference.retry_budget import RetryBudget, RetryTicket
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import LiveRequest, RequestTarget
from proxy.observability.observers import Observers
from proxy.serving.admission import Priority
from proxy.serving.request_preparation import (
    ParsedRequest,
    PreparedRequest,
    RequestPreparation,
    RunTurns,
)

if TYPE_CHECKING:  # nothing of it is imported where no tool server is configured
    from proxy.mcp.definitions import ServedTool
    from proxy.mcp.hosting import ToolHosting


class RequestContext(msgspec.Struct):
    """One request, and what follows it from its arrival to its end."""

    connection: ClientConnection
    client: Client
    ticket: RetryTicket
    live: LiveRequest
    stream: AnswerStream
    recorder: ExchangeRecorder | None
    upstream: dict[str, str] = msgspec.field(default_factory=dict)
    prepared: PreparedRequest | None = None
    owned: "tuple[ServedTool, ...]" = ()


@dataclass(frozen=True, slots=True)
class Chat:
    """Answers requests in the language of `dialect`; `process_count` processes share the slots.

    `tools` are those of the operator, None where no tool server is configured.
    """

    dialect: Dialect
    reader: RequestReader
    preparation: RequestPreparation
    timeouts: StreamTimeouts
    budget: RetryBudget = field(default_factory=RetryBudget)
    process_count: int = 1
    observers: Observers = field(default_factory=Observers)
    tools: "ToolHosting | None" = None

    async def __call__(self, connection: ClientConnection) -> None:
        with self.budget.request() as ticket:
            context = RequestContext(
                connection,
                client_of(connection.scope),
                ticket,
                begin_live_request(connection, self.observers, self.dialect.name),
                AnswerStream(connection, self.timeouts, self.dialect.stream_type),
                ExchangeRecorder() if self.observers.recording is not None else None,
            )
            try:
                await self._answer(context)
            except ClientDisconnect:
                return
            except TemperError as error:
                context.live.status = describe(error).status
                if not await context.stream.fail(error):
                    await refuse(connection, error)
            except Exception:  # a bug of ours, which the server logs
                context.live.status = 500
                await context.stream.fail(TemperError())
                raise
            finally:
                self._report(context)

    async def _answer(self, context: RequestContext) -> None:
        """Read, load, prepare, fit and answer a request."""
        connection, client = context.connection, context.client
        decoded = await self.reader.read(
            connection, _asking(self.dialect, self.dialect.decode, client, self.tools)
        )
        parsed = await self.preparation.locate(decoded)
        request, service = parsed.request, parsed.service
        context.live.asked = RequestTarget(
            request.model, service.title, service.backend.name, request.stream
        )
        if self.tools is not None:
            context.owned = self.tools.tools_for(decoded, client.owner)
            parsed = parsed.offering(tuple(one.tool for one in context.owned))
        context.live.priority = self.preparation.priority_of(client).value
        key = client_key(client, connection.scope)
        with service.lease_for(request, key, has_prompt=not decoded.load_status) as claim:
            if claim is not None:
                with context.live.wait_for_model(self.observers.load(service.title)):
                    await context.stream.wait_for(claim, decoded)
            context.upstream = self.reader.upstream_headers(connection.scope)
            if decoded.load_status:
                await service.load(request, context.upstream)
                await connection.respond(200, {}, decoded.load_status)
                return
            prepared = await self.preparation.prepare(parsed, client, context.upstream)
            context.prepared = prepared
            source = await self._source(parsed, prepared, context)
            try:
                if request.stream:
                    await source.stream(connection, context.stream)
                else:
                    await source.whole(connection, self.timeouts)
            finally:
                source.close()

    async def _source(
        self, parsed: ParsedRequest, prepared: PreparedRequest, context: RequestContext
    ) -> AnswerSource:
        """Fit the conversation into the window, and prepare the source of the answer."""
        service, known, live = prepared.service, prepared.known, context.live
        backend = service.fitting.learning_backend(known.model, known.window)
        if context.recorder is not None:
            backend = context.recorder.wrap(backend)
        turns = RunTurns(
            preparation=self.preparation,
            parsed=parsed,
            client=context.client,
            upstream=context.upstream,
            may_retry=context.ticket.may_retry,
            workers=self.process_count,
        )
        try:
            turn = await turns.begin_with(prepared)
        finally:
            live.prefix_broken = turns.prefix_broken
        key = client_key(context.client, context.connection.scope)
        slot = partial(service.admission.slot, key, Priority(live.priority), live.number)
        room = (known.window or 0) * (known.slots or 1)
        load = self.observers.load(service.title)
        estimate = partial(service.fitting.estimate, known.model, prepared.plan)
        terms = SlotTerms(backend, slot, known.window, room, load, turns.shorter, estimate)
        if self.tools is None or not context.owned:
            answering, upstream = prepared.answering, prepared.headers
            return SingleTurn(
                turn, terms, live, answering, upstream=upstream, recorder=context.recorder
            )
        # nothing of it is imported where no tool server is configured
        from proxy.api.tool_run import ToolRun

        return ToolRun(
            turns, terms, live, self.tools, owned=context.owned, recorder=context.recorder
        )

    def _report(self, context: RequestContext) -> None:
        note_status(context.live, context.connection)
        record = context.live.record()
        self.observers.take(record)
        recording, recorder = self.observers.recording, context.recorder
        prepared = context.prepared
        if recording is None or recorder is None or prepared is None:
            return
        if not recorder.is_whole:
            recording.leave_out(record.number)
            return
        recorded = recorder.exchange(prepared.known, prepared.plan, record)
        recording.write(recorded, *find_secrets(context.connection.scope), number=record.number)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Reports how many tokens a request in the language of `dialect` would have, as it is sent."""

    dialect: Dialect
    reader: RequestReader
    preparation: RequestPreparation
    tools: "ToolHosting | None" = None

    async def __call__(self, connection: ClientConnection) -> None:
        client = client_of(connection.scope)
        try:
            decode = _asking(self.dialect, self.dialect.decode_count, client, self.tools)
            parsed = await self.preparation.locate(await self.reader.read(connection, decode))
            if self.tools is not None:
                owned = self.tools.tools_for(parsed.decoded, client.owner)
                parsed = parsed.offering(tuple(one.tool for one in owned))
            upstream = self.reader.upstream_headers(connection.scope)
            prepared = await self.preparation.prepare(parsed, client, upstream)
            tokens = await self.preparation.count(prepared)
        except ClientDisconnect:
            return
        except TemperError as error:
            await refuse(connection, error)
            return
        await connection.respond(200, {}, self.dialect.encode_count(tokens))


_documents = DocumentTexts()


def _asking(
    dialect: Dialect,
    decode: Callable[[bytes, Client], Decoded],
    client: Client,
    tools: "ToolHosting | None",
) -> Callable[[bytes], Decoded]:
    """Return what reads a request, and before that what it asks of the operator's tools."""

    def read(body: bytes) -> Decoded:
        if dialect is not CHAT:  # whose words go upstream as they are
            body = _documents.expand(body)
        if tools is None:
            return decode(body, client)
        asked = take_requested_tools(body, tools.offer.hosted)
        return structs.replace(decode(asked.body, client), requested_tools=asked.requested_tools)

    return read
