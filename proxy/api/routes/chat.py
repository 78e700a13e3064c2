"""The path of a chat request, in every API dialect.

    step          function                               result
    accept        `edge.Edge.accept`, `Chat.receive`     Received: connection, client, live record
    authenticate  `edge.Edge.authenticate`               the owner of the API key
    decode        `Chat.decode`                          Decoded: typed request, answer encoder
    resolve       `Chat.resolve`                         Resolved: service, backend's model name
    plan          `Chat.plan`                            Planned: policy, tools, repaired history
    fit           `Chat.fit`                             Answer: its first turn fits the window
    admit, run    `Answer.events`                        events, while a slot of the backend is held
    encode        `Answer.send`                          bytes in the client's dialect

The edge runs the first two steps, because they are the same for every endpoint. `Chat._answer`
calls the other steps in this order. The result of each step contains the result of the step before.
`TokenCount` stops after `plan`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from starlette.requests import ClientDisconnect

from proxy.api.answer import Answer, Received, SendToFallback
from proxy.api.client_connection import ClientConnection
from proxy.api.errors import describe, refuse
from proxy.api.request_reader import (
    RequestReader,
    begin_live_request,
    client_of,
    find_secrets,
    note_status,
    queue_key_of,
)
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.dialects.dialect import Client, Decoded, Dialect
from proxy.errors import TemperError
from proxy.inference.retry_budget import RetryBudget, RetryTicket
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import RequestTarget
from proxy.observability.observers import Observers
from proxy.serving.request_preparation import Planned, RequestPreparation, Resolved
from proxy.serving.services import UNNAMED, Service

if TYPE_CHECKING:  # at runtime, imported only if the operator has tools
    from proxy.mcp.definitions import ServedTool
    from proxy.mcp.hosting import ToolHosting

Decode: TypeAlias = Callable[[bytes, Client], Decoded]


@dataclass(frozen=True, slots=True)
class Chat:
    """Answers requests in one dialect; `process_count` is the number of processes that share slots.

    `tools` are the operator's tools, None if no tools are configured.
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
        # The retry budget grows with the number of open requests. A request that waits in the queue
        # is also open, so the block begins before the request joins the queue (decision 0015).
        with self.budget.request() as ticket:
            received = self.receive(connection, ticket)
            live, stream = received.live, received.stream
            try:
                await self._answer(received)
            except ClientDisconnect:
                return
            except TemperError as error:
                live.status = describe(error).status
                if not await stream.fail(error):
                    await refuse(connection, error)
            except Exception:  # a bug, which the server logs
                live.status = 500
                await stream.fail(TemperError())
                raise
            finally:
                self._report(received)

    async def _answer(self, received: Received) -> None:
        """Run the steps in order, while the model stays loaded."""
        decoded = await self.decode(received)
        resolved = await self.resolve(received, decoded)
        tools: tuple[ServedTool, ...] = ()
        if self.tools is not None:
            resolved, tools = self.tools.add_tools(resolved)
        service, has_prompt = resolved.service, not decoded.load_status
        # Without the lease, another request could evict the model while this request needs it to
        # count tokens and to answer.
        with service.lease_for(
            resolved.request, received.queue_key, has_prompt=has_prompt
        ) as claim:
            if claim is not None:
                with received.live.wait_for_model(self.observers.load(service.title)):
                    await received.stream.wait_for(claim, decoded)
            if decoded.load_status:  # a request to Ollama's API that only loads or unloads a model
                await service.load(resolved.request, received.upstream)
                await received.connection.respond(200, {}, decoded.load_status)
                return
            planned = await self.plan(received, resolved)
            answer = await self.fit(received, planned, tools)
            answer.send_to_fallback = self._sender_to_fallback(service)
            try:
                await answer.send(self.timeouts)
            finally:
                answer.close()
            if received.live.reread is not None:
                await answer.explain()

    def receive(self, connection: ClientConnection, ticket: RetryTicket) -> Received:
        """Begin the record of a request."""
        scope, observers = connection.scope, self.observers
        client = client_of(scope)
        return Received(
            connection,
            client,
            queue_key_of(client, scope),
            self.reader.upstream_headers(scope),
            begin_live_request(connection, observers, self.dialect.name),
            AnswerStream(connection, self.timeouts, self.dialect.stream_type),
            ticket.may_retry,
            ExchangeRecorder() if observers.recording is not None else None,
        )

    async def decode(self, received: Received) -> Decoded:
        """Read and decode the body; raises subclasses of `InvalidRequest`."""
        decode = _decoder(self.dialect.decode, self.tools)
        return await self.reader.read(received.connection, received.client, decode)

    async def resolve(self, received: Received, decoded: Decoded) -> Resolved:
        """Find the service of the model; raises `UnknownModel` and `InvalidRequest`."""
        resolved = await self.preparation.resolve(decoded, received.client)
        request, service, live = resolved.request, resolved.service, received.live
        live.target = RequestTarget(
            request.model, service.title, service.backend.name, request.stream
        )
        live.priority = self.preparation.priority_of(received.client).value
        return resolved

    async def plan(self, received: Received, resolved: Resolved) -> Planned:
        """Decide the policy and repair the history; raises subclasses of `InvalidRequest`."""
        planned = received.planned = await self.preparation.plan(resolved, received.upstream)
        if planned.known.identity and resolved.request.model in UNNAMED:
            received.live.set_model(planned.known.identity)
        return planned

    async def fit(
        self, received: Received, planned: Planned, tools: "tuple[ServedTool, ...]" = ()
    ) -> Answer:
        """Fit the conversation into the window; raises `ContextOverflow`.

        A request that may call `tools` of the operator becomes a run of several turns.
        """
        service, known, preparation = planned.service, planned.known, self.preparation
        service.resize(known, self.process_count)
        received.watched = service.fitting.watch_prompt(known.model, planned.plan)
        received.live.prefix_broken = received.watched.broken
        turn = await preparation.fit(planned, received.may_retry)
        load = self.observers.load(service.title)
        if self.tools is None or not tools:
            return Answer(received, planned, turn, load, preparation)
        # imported here, because `tool_run` imports the SDK of MCP, which is slow (decision 0007)
        from proxy.api.tool_run import ToolRun
        from proxy.serving.run_turns import RunTurns

        turns = RunTurns(
            preparation=preparation,
            resolved=planned.resolved,
            upstream=received.upstream,
            may_retry=received.may_retry,
            workers=self.process_count,
        )
        turns.begin_with(planned, turn)
        return ToolRun(received, turns, load, hosting=self.tools, offered=tools)

    def _sender_to_fallback(self, service: Service) -> SendToFallback | None:
        if service.fallback is None:
            return None
        from proxy.api.fallback import FallbackAttempt  # a plain chat does not import it

        attempt = FallbackAttempt(
            service.fallback,
            self.preparation,
            self.observers.load,
            self.timeouts.load_wait,
            self.process_count,
        )
        return attempt.events

    def _report(self, received: Received) -> None:
        """Pass the record to the observers, and the exchange to a recording."""
        note_status(received.live, received.connection)
        record = received.live.record()
        self.observers.take(record)
        recording, recorder = self.observers.recording, received.recorder
        planned = received.planned
        if recording is None or recorder is None or planned is None:
            return
        if not recorder.is_whole:  # a replay would judge an incomplete exchange differently
            recording.leave_out(record.number)
            return
        exchange = recorder.exchange(planned.known, planned.plan, record)
        recording.write(exchange, *find_secrets(received.connection.scope), number=record.number)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Counts the tokens of the prompt that the backend would get for a request in one dialect."""

    dialect: Dialect
    reader: RequestReader
    preparation: RequestPreparation
    tools: "ToolHosting | None" = None

    async def __call__(self, connection: ClientConnection) -> None:
        client, preparation = client_of(connection.scope), self.preparation
        try:
            decode = _decoder(self.dialect.decode_count, self.tools)
            decoded = await self.reader.read(connection, client, decode)
            resolved = await preparation.resolve(decoded, client)
            if self.tools is not None:
                resolved, _ = self.tools.add_tools(resolved)
            upstream = self.reader.upstream_headers(connection.scope)
            count = await preparation.count(await preparation.plan(resolved, upstream))
        except ClientDisconnect:
            return
        except TemperError as error:
            await refuse(connection, error)
            return
        body = self.dialect.encode_count(count.tokens, is_estimated=count.is_estimated)
        await connection.respond(200, {}, body)


def _decoder(decode: Decode, tools: "ToolHosting | None") -> Decode:
    """Return a decoder that also extracts the requested tools of the operator, if there are any."""
    return decode if tools is None else partial(tools.decode, decode)
