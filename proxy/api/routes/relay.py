"""`POST /v1/completions` and `/v1/embeddings`: passed on without guardrails, as ASGI applications.

They wait for their turn like chats and end when their client leaves; what is asked and answered is
the backend's business.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.api.account import Account, Asked
from proxy.api.errors import describe
from proxy.api.reception import Passing, Reception, asker, request_id
from proxy.api.streaming import EventStream, Pace, while_connected, within
from proxy.conversation import json
from proxy.dialects import sse
from proxy.errors import BackendUnavailable, TemperError
from proxy.observability.observers import Observers
from proxy.observability.trace_context import trace_of
from proxy.processes.fleet import Hold

Batches: TypeAlias = AsyncGenerator[tuple[bytes], None]


@dataclass(frozen=True, slots=True)
class Relay:
    """Passes requests on to the same `path` of the backend that has their model."""

    path: str
    reception: Reception
    pace: Pace
    workers: int = 1
    observers: Observers = field(default_factory=Observers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive)
        traced = http.headers.get("traceparent", "") if self.observers.traces else ""
        account = Account(request_id(http), trace_of(traced) if traced else None)
        noted = account.noting(send)
        try:
            passing = await self.reception.pass_on(http, self.path)
            await self._answer(passing, http, noted, account)
        except ClientDisconnect:
            return
        except TemperError as error:
            await describe(error).response()(scope, receive, noted)
        except Exception:
            account.status = 500
            raise
        finally:
            self.observers.take(account.record())

    async def _answer(
        self, passing: Passing, http: HttpRequest, send: Send, account: Account
    ) -> None:
        passage, service = passing.passage, passing.service
        backend, told = service.backend.name, {"x-temper-backend": service.backend.name}
        account.asked = Asked(passage.model, service.title, backend, passage.stream)
        batches = self._batches(passing, account, asker(http))

        async def work() -> None:
            if passage.stream:
                streaming = EventStream(
                    batches,
                    lambda _: WholeLines(),
                    self.pace,
                    backend=backend,
                    headers=lambda: told,
                )
                await streaming(http.scope, send)
                return
            async with within(self.pace.deadline, backend):
                body = b"".join([piece async for (piece,) in batches])
            response = Response(body, 200, told, "application/json")
            await response(http.scope, http.receive, send)

        async with aclosing(batches):
            await while_connected(http.receive, work)

    async def _batches(self, passing: Passing, account: Account, key: str) -> Batches:
        """Stream the answer as soon as the model is loaded and has a slot."""
        passage, service = passing.passage, passing.service
        load = self.observers.load(service.title)
        with service.hold() as hold:
            if hold is not None:
                with account.loading(load):
                    await _granted(hold, passage.model, self.pace)
            service.resize(await service.look_up(passage.model), self.workers)
            account.wait(load)
            async with service.admission.slot(key):
                account.admit(0.0)
                with account.attempt(passing.headers) as headers:
                    async with aclosing(service.backend.relay(passage, headers)) as pieces:
                        async for piece in pieces:
                            account.show()
                            yield (piece,)


class WholeLines:
    """Passes on whole lines of a stream: what is added can stand between any two of them."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def encode(self, piece: bytes) -> bytes:
        """Return what is complete with this piece."""
        whole, newline, rest = piece.rpartition(b"\n")
        if not newline:
            self._rest.append(piece)
            return b""
        lines = b"".join((*self._rest, whole, newline))
        self._rest = [rest]
        return lines

    def keep_alive(self) -> bytes:
        """Return a comment; a blank line behind it would end an event."""
        return b": the backend works\n"

    def end(self) -> bytes:
        """Return what is left."""
        return b"".join(self._rest)

    def fail(self, error: TemperError) -> bytes:
        """Return an error event; what was left of a line is no use to anybody."""
        return b"\n" + sse.encode_data(json.dump(describe(error).body()))


async def _granted(hold: Hold, model: str, pace: Pace) -> None:
    try:
        async with asyncio.timeout(pace.load_wait):
            await hold.granted()
    except TimeoutError as error:
        raise BackendUnavailable(model, "is being loaded", loading=True) from error
