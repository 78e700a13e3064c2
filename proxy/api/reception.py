"""From an HTTP request to a turn: read, recognised, drafted, and fitted into the window."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from msgspec import structs
from starlette.requests import Request as HttpRequest

from proxy.api.exchange import new_call_id
from proxy.api.headers import headers_of
from proxy.api.limits import BodyLimits, read_body
from proxy.backends.affinity import PREFIX_HEADER, conversation_key
from proxy.backends.client import Passage
from proxy.conversation import json
from proxy.conversation.requests import Request
from proxy.conversation.workflows import Workflow
from proxy.dialects.openai_chat.decode import decode_request, read_object
from proxy.dialects.openai_chat.schema import kind
from proxy.errors import ContextOverflow, InvalidRequest
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.preparation import Draft, Policy, begin, draft
from proxy.inference.turn import MayRetry, Turn
from proxy.observability.live_request import Account
from proxy.observability.observers import Observers
from proxy.observability.trace_context import state_of, trace_of
from proxy.profiles.known_model import KnownModel
from proxy.serving.context_fitting import FittingMode
from proxy.serving.ordering import Ordering
from proxy.serving.services import Service, Services

_TEXT_POLICY = "x-temper-text-policy"
_MODE = "x-temper-guardrails"
_COMPACTION = "x-temper-compaction"

Choice = TypeVar("Choice", bound=Enum)
Decoded = TypeVar("Decoded")

_LARGE = 2**20  # bytes

# what is passed on: the field that the model reads, and whether its answer can be a stream
PASSED_ON = MappingProxyType(
    {"/v1/completions": ("prompt", True), "/v1/embeddings": ("input", False)}
)

# the only headers of a client that a backend ever sees
_TRAVELLING = ("authorization", "traceparent")


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that was read, and the service of the model that it names."""

    request: Request
    service: Service


@dataclass(frozen=True, slots=True)
class Received:
    """A request that was understood; `headers` travel upstream, `mode` is the client's wish."""

    draft: Draft
    service: Service
    known: KnownModel
    headers: dict[str, str]
    mode: FittingMode | None = None


@dataclass(frozen=True, slots=True)
class Passing:
    """A request that is passed on, the service of its model, and the headers that travel too."""

    passage: Passage
    service: Service
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reception:
    """Takes requests; `body` bounds what a client may send.

    `workflows` are the operator's rules of order, by the names of models.
    """

    services: Services
    policy: Policy
    body: BodyLimits
    forwards_authorization: bool = False
    workflows: Mapping[str, Workflow] = field(default_factory=dict)

    async def read(self, http: HttpRequest) -> Asking:
        """Read a request; raises `InvalidRequest` kinds of errors and `ClientDisconnect`."""
        request = await _read(decode_request, await read_body(http, self.body))
        service = self.services.find(request.model)
        return Asking(service.addressed(request), service)

    async def pass_on(self, http: HttpRequest, path: str) -> Passing:
        """Read a request that is not ours to judge; raises as `read` does."""
        body = await read_body(http, self.body)
        passage = await _read(partial(decode_passage, path), body)
        service = self.services.find(passage.model)
        return Passing(service.addressed(passage), service, self._upstream_headers(http))

    async def receive(self, http: HttpRequest, asking: Asking) -> Received:
        """Prepare a request by what is known of its model now; raises `InvalidRequest` kinds."""
        request, service = asking.request, asking.service
        known = await service.look_up(request.model)
        ordering = Ordering(self.services, self.workflows)
        rules, skipped = await ordering.rules_for(request, service, known)
        policy = structs.replace(self._policy_for(http), traits=known.traits, workflow=rules)
        written = draft(request, policy)
        if skipped and written.offer is not None:
            written = structs.replace(written, facts=(*written.facts, *skipped))
        sent = headers_of(http.scope)
        wished = sent.get(_COMPACTION)
        mode = _chosen(FittingMode, wished, _COMPACTION) if wished else None
        headers = self._upstream_headers(http)
        headers[PREFIX_HEADER] = conversation_key(request, sent)
        return Received(written, service, known, headers, mode)

    async def turn(self, received: Received, may_retry: MayRetry) -> Turn:
        """Make the turn that will answer a request; raises `ContextOverflow` if nothing fits."""
        compaction = await received.service.fitting.compaction(
            received.draft, received.known, received.headers, received.mode
        )
        return begin(received.draft, new_call_id, may_retry, compaction)

    async def shorter(
        self, received: Received, may_retry: MayRetry, overflow: ContextOverflow
    ) -> Turn | None:
        """Make another turn of a prompt that proved too long; None if that is no help."""
        known = replace(received.known, window=overflow.window or received.known.window)
        try:
            turn = await self.turn(replace(received, known=known), may_retry)
        except ContextOverflow:  # the backend's own words say it better
            return None
        return turn if turn.is_shortened else None

    async def count(self, received: Received) -> int:
        """Count the tokens of a request as it would be sent."""
        question = (await self.turn(received, lambda: False)).next_question()
        assert question is not None  # noqa: S101 - every turn begins with one
        return await received.service.fitting.count(question, received.known, received.headers)

    def _policy_for(self, http: HttpRequest) -> Policy:
        """Let the headers of one request override what the operator set."""
        policy, sent = self.policy, headers_of(http.scope)
        if wished := sent.get(_TEXT_POLICY):
            policy = structs.replace(policy, text_policy=_chosen(TextPolicy, wished, _TEXT_POLICY))
        if wished := sent.get(_MODE):
            policy = structs.replace(policy, mode=_chosen(Mode, wished, _MODE))
        return policy

    def _upstream_headers(self, http: HttpRequest) -> dict[str, str]:
        sent = headers_of(http.scope)
        headers = {name: sent[name] for name in _TRAVELLING if name in sent}
        if not self.forwards_authorization:
            headers.pop("authorization", None)
        parent = headers.get("traceparent")
        if parent and (state := state_of(parent, http.headers.getlist("tracestate"))):
            headers["tracestate"] = state
        return {**headers, "x-request-id": request_id(http)}


async def _read(decode: Callable[[bytes], Decoded], body: bytes) -> Decoded:
    """Decode a body, a large one beside the event loop, so that others are served meanwhile."""
    return decode(body) if len(body) <= _LARGE else await asyncio.to_thread(decode, body)


def decode_passage(path: str, body: bytes) -> Passage:
    """Read no more of a request than whose it is and how it is answered; raises InvalidRequest."""
    read = read_object(body)
    model, stream = read.get("model"), read.get("stream")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest(f"Expected a string, got {kind(model)}.", "model")
    text_field, may_stream = PASSED_ON[path]
    fields = json.split_object(body)
    return Passage(path, text_field, model or "", fields, stream=may_stream and stream is True)


def asker(http: HttpRequest) -> str:
    """Tell clients apart, so that they take turns: by the owner of their key.

    Where nobody needs a key, by the one that is meant for the backend, else by their address.
    """
    owner: str = http.scope["state"].get("owner", "")
    if owner:
        return owner
    sent = headers_of(http.scope)
    key = sent.get("authorization") or sent.get("x-api-key")
    return key or (http.client.host if http.client is not None else "")


def open_account(http: HttpRequest, observers: Observers) -> Account:
    """Open the account of a request; where there are traces it goes on with its client's."""
    trace = trace_of(http.headers.get("traceparent", "")) if observers.traces else None
    return Account(request_id(http), trace, path=http.scope["path"])


def request_id(http: HttpRequest) -> str:
    """Return the id that `limits` gave a request."""
    own: str = http.scope["state"]["request_id"]
    return own


def _chosen(kind: type[Choice], wished: str, header: str) -> Choice:
    """Read a header that names one of the members of `kind`."""
    try:
        return kind(wished.strip().lower())
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise InvalidRequest(f"use one of: {known}", header) from None
