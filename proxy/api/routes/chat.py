"""The way of a request that the guardrails watch, in whichever language: an ASGI application.

`Chat._answer` is that way from top to bottom; `TokenCount` goes the first half of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.api.errors import describe, error_response
from proxy.api.exchange import Exchange, SlotTerms
from proxy.api.loading_stream import LoadingStream
from proxy.api.request_reader import (
    RequestReader,
    begin_live_request,
    client_key,
    secrets_sent,
    sender_of,
)
from proxy.api.streaming import StreamTimeouts
from proxy.dialects.front import Decoded, Front, Sender
from proxy.dialects.wanted_tools import take_wanted
from proxy.errors import ContextOverflow, TemperError
from proxy.inference.retry_budget import RetryBudget, RetryTicket
from proxy.inference.turn import Turn
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import Asked, LiveRequest
from proxy.observability.observers import Observers
from proxy.serving.request_preparation import ParsedRequest, PreparedRequest, RequestPreparation
from proxy.serving.services import LoadClaim

if TYPE_CHECKING:  # nothing of it is imported where no tool server is configured
    from proxy.mcp.definitions import ServedTool
    from proxy.serving.tool_hosting import ToolHosting


@dataclass(slots=True)
class RequestContext:
    """One request, and what follows it from its arrival to its end."""

    http: HttpRequest
    ticket: RetryTicket
    live: LiveRequest
    stream: LoadingStream
    recorder: ExchangeRecorder | None
    prepared: PreparedRequest | None = None
    owned: "tuple[ServedTool, ...]" = ()

    @property
    def send(self) -> Send:
        """What the answer is sent through."""
        return self.live.noting(self.stream.send)


@dataclass(frozen=True, slots=True)
class Chat:
    """Answers requests in the language of `front`; `process_count` share what a backend works on.

    `tools` are those of the operator, None where no tool server is configured.
    """

    front: Front
    reader: RequestReader
    preparation: RequestPreparation
    timeouts: StreamTimeouts
    budget: RetryBudget = field(default_factory=RetryBudget)
    process_count: int = 1
    observers: Observers = field(default_factory=Observers)
    tools: "ToolHosting | None" = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with self.budget.request() as ticket:
            context = self._context(HttpRequest(scope, receive), send, ticket)
            try:
                await self._answer(context)
            except ClientDisconnect:
                return
            except TemperError as error:
                await self._refuse(error, context)
            except Exception:  # a bug of ours, which the server logs
                context.live.status = 500
                await context.stream.fail(TemperError())
                raise
            finally:
                self._report(context)

    async def _answer(self, context: RequestContext) -> None:
        """Read, load, prepare, fit, answer: the whole way of a request."""
        http, sender = context.http, sender_of(context.http)
        decode = _asking(self.front.decode, sender, self.tools)
        decoded = await self.reader.read(http, decode)
        parsed = self.preparation.address(decoded)
        self._note(parsed, context)
        if self.tools is not None:
            context.owned = self.tools.tools_for(decoded, sender.owner)
            parsed = parsed.offering(tuple(one.tool for one in context.owned))
        with parsed.service.lease() as claim:
            await self._load(claim, parsed, context)
            upstream = self.reader.upstream_headers(http)
            prepared = await self.preparation.prepare(parsed, sender, upstream)
            context.prepared = prepared
            exchange = await self._exchange(prepared, context)
            if context.owned and self.tools is not None:
                exchange = self._run(exchange, parsed, upstream, context)
            answer = (
                partial(exchange.stream, begun=context.stream.encoder)
                if parsed.request.stream
                else exchange.whole
            )
            try:
                await answer(
                    http.scope,
                    context.send,
                    http.receive,
                    prepared.headers,
                    recorder=context.recorder,
                )
            finally:
                exchange.close()

    async def _load(
        self, claim: LoadClaim | None, parsed: ParsedRequest, context: RequestContext
    ) -> None:
        """Wait for a model that has to be loaded; it stays loaded while the claim is held."""
        if claim is not None:
            with context.live.loading(self.observers.load(parsed.service.title)):
                await context.stream.wait_for(claim, parsed.decoded, context.http.receive)

    async def _exchange(self, prepared: PreparedRequest, context: RequestContext) -> Exchange:
        """Fit the conversation into the window, and get ready to ask the backend."""
        preparation, service, known = self.preparation, prepared.service, prepared.known
        may_retry, load = context.ticket.may_retry, self.observers.load(service.title)
        backend = service.fitting.learning_backend(known.model, known.window)
        if context.recorder is not None:
            backend = context.recorder.behind(backend)
        service.resize(known, self.process_count)
        broken = service.fitting.watch_prefix(known.model, prepared.plan)
        context.live.prefix_broken = broken

        async def shorter(overflow: ContextOverflow) -> Turn | None:
            return await preparation.shorter(prepared, may_retry, overflow)

        turn = await preparation.turn(prepared, may_retry)
        slot = partial(service.admission.slot, client_key(context.http))
        room = (known.window or 0) * (known.slots or 1)
        terms = SlotTerms(slot, known.window, room, load, shorter)
        return Exchange(
            prepared.answering, turn, backend, self.timeouts, terms=terms, live=context.live
        )

    def _run(
        self,
        first: Exchange,
        parsed: ParsedRequest,
        upstream: dict[str, str],
        context: RequestContext,
    ) -> Exchange:
        """Go on with an exchange where a model calls tools of the operator."""
        from proxy.api.tool_exchange import tool_exchange
        from proxy.serving.run_turns import RunTurns

        assert self.tools is not None and context.prepared is not None  # noqa: S101, PT018 - it has
        turns = RunTurns(
            preparation=self.preparation,
            parsed=parsed,
            sender=sender_of(context.http),
            upstream=upstream,
            may_retry=context.ticket.may_retry,
            workers=self.process_count,
        )
        turns.go_on_with(context.prepared, first.parts.turn)
        return tool_exchange(first, self.tools, context.owned, turns)

    async def _refuse(self, error: TemperError, context: RequestContext) -> None:
        problem = describe(error)
        context.live.status = problem.status
        if not await context.stream.fail(error):
            http = context.http
            await error_response(problem, http.scope)(http.scope, http.receive, context.send)

    def _context(self, http: HttpRequest, send: Send, ticket: RetryTicket) -> RequestContext:
        recorder = ExchangeRecorder() if self.observers.recording is not None else None
        live = begin_live_request(http, self.observers, self.front.name)
        return RequestContext(http, ticket, live, LoadingStream(send, self.timeouts), recorder)

    def _note(self, parsed: ParsedRequest, context: RequestContext) -> None:
        request, service = parsed.request, parsed.service
        asked = Asked(request.model, service.title, service.backend.name, request.stream)
        context.live.asked = asked

    def _report(self, context: RequestContext) -> None:
        """Tell everybody who wants to know what happened to a request that is over."""
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
        recording.write(recorded, *secrets_sent(context.http), number=record.number)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Reports how many tokens a request in the language of `front` would have, as it is sent."""

    front: Front
    reader: RequestReader
    preparation: RequestPreparation
    tools: "ToolHosting | None" = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive)
        sender = sender_of(http)
        try:
            decode = _asking(self.front.decode_count, sender, self.tools)
            parsed = self.preparation.address(await self.reader.read(http, decode))
            if self.tools is not None:
                owned = self.tools.tools_for(parsed.decoded, sender.owner)
                parsed = parsed.offering(tuple(one.tool for one in owned))
            upstream = self.reader.upstream_headers(http)
            prepared = await self.preparation.prepare(parsed, sender, upstream)
            tokens = await self.preparation.count(prepared)
        except ClientDisconnect:
            return
        except TemperError as error:
            await error_response(describe(error), scope)(scope, receive, send)
            return
        body = self.front.counted(tokens)
        await Response(body, 200, media_type="application/json")(scope, receive, send)


def _asking(
    decode: Callable[[bytes, Sender], Decoded], sender: Sender, tools: "ToolHosting | None"
) -> Callable[[bytes], Decoded]:
    """Return what reads a request, and before that what it asks of the operator's tools."""

    def read(body: bytes) -> Decoded:
        if tools is None:
            return decode(body, sender)
        asked = take_wanted(body, tools.hosted)
        return replace(decode(asked.body, sender), wanted=asked.wanted)

    return read
