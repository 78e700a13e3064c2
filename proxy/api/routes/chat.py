"""`POST /v1/chat/completions`: from bytes to a turn, and on to the exchange that answers it."""

import time
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from proxy.api.admission import Admission
from proxy.api.errors import describe
from proxy.api.exchange import Exchange, new_call_id
from proxy.api.limits import read_body
from proxy.api.recognition import KnownModels
from proxy.api.streaming import Pace
from proxy.backends.client import Backend
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidRequest, TemperError
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.budget import RetryBudget, Ticket
from proxy.inference.preparation import Policy, prepare
from proxy.observability.logs import RequestLog, log_request

_TEXT_POLICY = "x-temper-text-policy"
_MODE = "x-temper-guardrails"

Choice = TypeVar("Choice", bound=Enum)

# the only headers of a client that a backend ever sees
_TRAVELLING = ("authorization", "traceparent")


@dataclass(frozen=True, slots=True)
class ChatCompletions:
    """The endpoint, as an ASGI application.

    `max_body_bytes` bounds what a client may send; `parallel` requests are put to the backend at
    once, as many as it has slots where that is None, shared by `workers` processes alike.
    """

    backend: Backend
    models: KnownModels
    policy: Policy
    pace: Pace
    max_body_bytes: int
    forwards_authorization: bool = False
    budget: RetryBudget = field(default_factory=RetryBudget)
    admission: Admission = field(default_factory=Admission)
    parallel: int | None = None
    workers: int = 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive)
        with self.budget.request() as ticket:
            await self._answer(http, send, ticket)

    async def _answer(self, http: HttpRequest, send: Send, ticket: Ticket) -> None:
        begun = time.monotonic()
        try:
            exchange = await self._begin(http, ticket)
        except ClientDisconnect:
            return
        except TemperError as error:
            problem = describe(error)
            total_ms = (time.monotonic() - begun) * 1000
            log_request(RequestLog(id=_request_id(http), status=problem.status, total_ms=total_ms))
            await problem.response()(http.scope, http.receive, send)
            return
        try:
            await exchange.answer(http.scope, http.receive, send, self._upstream_headers(http))
        finally:
            exchange.record(_request_id(http))

    async def _begin(self, http: HttpRequest, ticket: Ticket) -> Exchange:
        body = await read_body(http, self.max_body_bytes)
        request = decode_request(body)
        known = await self.models.look_up(request.model)
        self.admission.resize(self._capacity(known.slots))
        policy = replace(self._policy_for(http), traits=known.traits)
        turn = prepare(request, policy, new_call_id, ticket.may_retry)
        slot = self.admission.slot(_asker(http))
        return Exchange(request, turn, self.backend, self.pace, slot=slot)

    def _capacity(self, slots: int | None) -> int | None:
        """Return this worker's part of what the backend works on at once."""
        everywhere = self.parallel or slots
        return None if everywhere is None else max(1, everywhere // self.workers)

    def _policy_for(self, http: HttpRequest) -> Policy:
        """Let the headers of one request override what the operator set."""
        policy = self.policy
        if wished := http.headers.get(_TEXT_POLICY):
            policy = replace(policy, text_policy=_chosen(TextPolicy, wished, _TEXT_POLICY))
        if wished := http.headers.get(_MODE):
            policy = replace(policy, mode=_chosen(Mode, wished, _MODE))
        return policy

    def _upstream_headers(self, http: HttpRequest) -> dict[str, str]:
        headers = {name: http.headers[name] for name in _TRAVELLING if name in http.headers}
        if not self.forwards_authorization:
            headers.pop("authorization", None)
        return {**headers, "x-request-id": _request_id(http)}


def _asker(http: HttpRequest) -> str:
    """Tell clients apart, so that they take turns: by their key, else by their address."""
    key = http.headers.get("authorization") or http.headers.get("x-api-key")
    return key or (http.client.host if http.client is not None else "")


def _request_id(http: HttpRequest) -> str:
    request_id: str = http.state.request_id
    return request_id


def _chosen(kind: type[Choice], wished: str, header: str) -> Choice:
    """Read a header that names one of the members of `kind`."""
    try:
        return kind(wished.strip().lower())
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise InvalidRequest(f"use one of: {known}", header) from None
