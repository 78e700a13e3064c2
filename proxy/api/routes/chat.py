"""`POST /v1/chat/completions` and `.../input_tokens`: the endpoints, as ASGI applications."""

from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from proxy.api.errors import describe
from proxy.api.exchange import Exchange, SlotTerms
from proxy.api.headers import headers_of
from proxy.api.loading_stream import Opening
from proxy.api.reception import Received, Reception, asker, open_account
from proxy.api.streaming import Pace
from proxy.errors import ContextOverflow, TemperError
from proxy.inference.budget import RetryBudget, Ticket
from proxy.inference.turn import Turn
from proxy.observability.exchange_recorder import Tape
from proxy.observability.live_request import Account, Asked
from proxy.observability.observers import Observers


@dataclass(frozen=True, slots=True)
class ChatCompletions:
    """Answers chat requests; `workers` processes share what a backend works on at once."""

    reception: Reception
    pace: Pace
    budget: RetryBudget = field(default_factory=RetryBudget)
    workers: int = 1
    observers: Observers = field(default_factory=Observers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive)
        with self.budget.request() as ticket:
            await self._answer(http, send, ticket)

    async def _answer(self, http: HttpRequest, send: Send, ticket: Ticket) -> None:
        visit, opening = self._open_visit(http, ticket), Opening(send, self.pace)
        account = visit.account
        try:
            await self._serve(visit, opening)
        except ClientDisconnect:
            return
        except TemperError as error:
            problem = describe(error)
            account.status = problem.status
            await problem.response()(http.scope, http.receive, opening.outlet)
        except Exception:
            account.status = 500
            await opening.break_off()
            raise
        finally:
            self._close(visit)

    async def _serve(self, visit: "_Visit", opening: Opening) -> None:
        """Answer as soon as the model is loaded, and keep it loaded until then."""
        http = visit.http
        asking = await self.reception.read(http)
        request, service = asking.request, asking.service
        asked = Asked(request.model, service.title, service.backend.name, request.stream)
        visit.account.asked = asked
        with service.hold() as hold:
            if hold is not None:
                with visit.account.loading(self.observers.load(service.title)):
                    await opening.wait_for(hold, request, http.receive)
            visit.received = received = await self.reception.receive(http, asking)
            exchange = await self._begin(received, visit)
            exchange.resume(opening.chunks)
            try:
                await exchange.answer(
                    http.scope, http.receive, opening.outlet, received.headers, tape=visit.tape
                )
            finally:
                exchange.close()

    def _open_visit(self, http: HttpRequest, ticket: Ticket) -> "_Visit":
        tape = Tape() if self.observers.recording is not None else None
        return _Visit(http, ticket, open_account(http, self.observers), tape)

    def _close(self, visit: "_Visit") -> None:
        """Tell everybody who wants to know."""
        record = visit.account.record()
        self.observers.take(record)
        recording, tape, received = self.observers.recording, visit.tape, visit.received
        if recording is not None and tape is not None and received is not None and tape.is_whole:
            exchange = tape.exchange(received.known, received.draft, record)
            recording.write(exchange, *_secrets(visit.http))

    async def _begin(self, received: Received, visit: "_Visit") -> Exchange:
        reception, service, known = self.reception, received.service, received.known
        request, ticket = received.draft.request, visit.ticket
        backend = service.fitting.learning(known.model, known.window)
        backend = visit.tape.behind(backend) if visit.tape is not None else backend
        service.resize(known, self.workers)
        service.fitting.watch_prefix(known.model, received.draft)

        async def shorter(overflow: ContextOverflow) -> Turn | None:
            return await reception.shorter(received, ticket.may_retry, overflow)

        turn = await reception.turn(received, ticket.may_retry)
        terms = SlotTerms(
            service.admission.slot(asker(visit.http)),
            known.window,
            (known.window or 0) * (known.slots or 1),
            self.observers.load(service.title),
            shorter,
        )
        return Exchange(request, turn, backend, self.pace, terms=terms, account=visit.account)


@dataclass(slots=True)
class _Visit:
    """One request, and what follows it from its arrival to its end."""

    http: HttpRequest
    ticket: Ticket
    account: Account
    tape: Tape | None
    received: Received | None = None


@dataclass(frozen=True, slots=True)
class InputTokens:
    """Tells how many tokens a chat request would have, as it would be sent."""

    reception: Reception

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive)
        try:
            asking = await self.reception.read(http)
            tokens = await self.reception.count(await self.reception.receive(http, asking))
        except ClientDisconnect:
            return
        except TemperError as error:
            await describe(error).response()(scope, receive, send)
            return
        told = {"object": "response.input_tokens", "input_tokens": tokens}
        await JSONResponse(told)(scope, receive, send)


def _secrets(http: HttpRequest) -> tuple[str, ...]:
    """Return what a client proved itself with."""
    sent = headers_of(http.scope)
    given = sent.get("authorization", "")
    return given, given.partition(" ")[2].strip(), sent.get("x-api-key", "")
