"""From a decoded request to the turns that answer it: addressed, planned and fitted."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import structs

from proxy import bounds
from proxy.backends.affinity import PREFIX_HEADER, conversation_key
from proxy.backends.client import PassthroughRequest
from proxy.context.prefix import PrefixBroken
from proxy.conversation.replies import ReplyEvent, TextDelta
from proxy.conversation.requests import Request
from proxy.conversation.tools import Tool
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.dialects.dialect import Answering, Client, Decoded
from proxy.dialects.openai_chat.thinking import effort_in, fit_thinking
from proxy.errors import ContextOverflow, InvalidRequest, UnknownModel
from proxy.facts import Omitted, RuleSkipped
from proxy.guardrails.history_repair.refused_forms import find_new_picture, hide_pictures
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.schemas.schema import prepare_checks
from proxy.guardrails.steps import drop_infeasible
from proxy.guardrails.transcript import list_completed_calls
from proxy.inference.plan import Policy, RequestPlan
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import MayRetry, Turn
from proxy.profiles.known_model import KnownModel
from proxy.serving.admission import Priority
from proxy.serving.context_fitting import FittingMode
from proxy.serving.services import OLLAMA, Service, Services

if TYPE_CHECKING:  # nothing of runs is imported where nobody has tools to run
    from proxy.tools.run import Ask

_TEXT_POLICY = "x-temper-text-policy"
_MODE = "x-temper-guardrails"
_COMPACTION = "x-temper-compaction"
_PRIORITY = "x-temper-priority"
# members by which a client would order requests in the engine (vLLM) or choose a slot (llama.cpp)
_ENGINE_ORDER = frozenset({"priority", "id_slot"})

Choice = TypeVar("Choice", bound=Enum)

MOST_SHORTENINGS = 8  # of one prompt; each removes much more than the one before


class ParsedRequest(msgspec.Struct, frozen=True):
    """A decoded request, and the service of its model."""

    request: Request
    service: Service
    decoded: Decoded

    def offering(self, tools: tuple[Tool, ...]) -> "ParsedRequest":
        return structs.replace(self, request=self.request.offering(tools)) if tools else self


class PreparedRequest(msgspec.Struct, frozen=True):
    """A prepared request; `headers` are sent to the backend, `mode` is the client's choice.

    One that `is_slow` is worked on in a thread, so that others are served meanwhile.
    """

    plan: RequestPlan
    answering: Answering
    service: Service
    known: KnownModel
    headers: dict[str, str]
    mode: FittingMode | None = None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class RequestPreparation:
    """Prepares requests; `workflows` are the operator's rules of order, by model name."""

    services: Services
    policy: Policy
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)

    def priority_of(self, client: Client) -> Priority:
        """Return the requested priority, but at most that of the key; raises `InvalidRequest`.

        `priorities` are the highest ones by the owners of keys, and the default of these owners.
        All others have at most the normal one.
        """
        highest = self.priorities.get(client.owner, Priority.NORMAL)
        chosen = _read_choice(client, Priority, _PRIORITY)
        if chosen is None:
            return highest
        return max(chosen, highest, key=[*Priority].index)  # the highest stands first

    def address(self, decoded: Decoded) -> ParsedRequest:
        """Return a request with its service; raises `UnknownModel`."""
        service = self.services.find(decoded.request.model)
        request = service.address_to_backend(self.services.rename(decoded.request))
        if self.priorities and (ordering := _ENGINE_ORDER & request.fields.keys()):
            request = structs.replace(request, fields=_without_order(request.fields))
            omitted = (Omitted(name) for name in sorted(ordering))
            decoded = structs.replace(decoded, facts=(*decoded.facts, *omitted))
        return ParsedRequest(request, service, decoded)

    async def locate(self, decoded: Decoded) -> ParsedRequest:
        """Return an addressed request that names a model of its service; raises as `address`."""
        parsed = self.address(decoded)
        request = await parsed.service.choose_model(parsed.request)
        return structs.replace(parsed, request=request)

    def relay(self, passage: PassthroughRequest) -> tuple[PassthroughRequest, Service]:
        """Return the service of a request that is passed on; raises `UnknownModel`."""
        service = self.services.find(passage.model)
        if self.priorities:
            passage = structs.replace(passage, fields=_without_order(passage.fields))
        return service.address_to_backend(self.services.rename(passage)), service

    async def prepare(
        self, parsed: ParsedRequest, client: Client, upstream: dict[str, str]
    ) -> PreparedRequest:
        """Prepare a request with what is known of its model; raises `InvalidRequest` kinds."""
        request, service, decoded = parsed.request, parsed.service, parsed.decoded
        known = await service.look_up(request.model)
        hides_pictures = _judge_pictures(decoded, known)
        effort = known.overrides.effort
        effort = "" if effort and effort_in(request) else effort
        thinking = request.thinking.or_else(known.overrides.thinking, effort)
        if thinking is not request.thinking:
            request = structs.replace(request, thinking=thinking)
        said = known.quirks
        request = fit_thinking(request, said.efforts, said.effort_variable, said.kept_by)
        rules, skipped = NO_RULES, tuple[RuleSkipped, ...]()
        # if prose is requested, for example a summary, no step can be due before it
        if self.workflows and not decoded.accepts_prose:
            rules, skipped = await self.rules_for(request, service, known)
        policy = self._policy_for(client, known, accepts_prose=decoded.accepts_prose)
        quirks = _quirks_for(request, known)
        terms = structs.replace(policy, quirks=quirks, workflow=rules, habit=known.habit)
        is_slow = takes_long(*request.fields.values())
        planning = partial(_plan_large_request if is_slow else plan_request, request, terms)
        plan = await asyncio.to_thread(planning) if is_slow else planning()
        if hides_pictures:
            plan = structs.replace(plan, messages=hide_pictures(plan.messages))
        noted = (*decoded.facts, *(skipped if plan.offer is not None else ()))
        if request.load.options and known.engine != OLLAMA:
            noted += (Omitted("load_options"),)
        if noted:
            plan = structs.replace(plan, facts=(*plan.facts, *noted))
        headers = {**upstream, PREFIX_HEADER: conversation_key(request, client.headers)}
        mode = _compaction_for(client, decoded)
        return PreparedRequest(plan, decoded.answering, service, known, headers, mode, is_slow)

    async def rules_for(
        self, request: Request, service: Service, known: KnownModel
    ) -> tuple[Workflow, tuple[RuleSkipped, ...]]:
        """Return the rules that the offered tools can satisfy, and the ones that they cannot."""
        if not request.tools or request.workflow != NO_RULES:
            return NO_RULES, ()
        rules = await self._workflow_of(request.model, service, known)
        offered = [tool.name for tool in request.tools]
        rules, missing = drop_infeasible(rules, offered, list_completed_calls(request.messages))
        return rules, tuple(map(RuleSkipped, missing))

    async def _workflow_of(self, model: str, service: Service, known: KnownModel) -> Workflow:
        """Return the rules under any name that leads a client to the same model."""
        if model in self.workflows:
            return self.workflows[model]
        for name, rules in self.workflows.items():
            with suppress(UnknownModel):
                if self.services.find(name) is service:
                    other = known if service.name else await service.look_up(name)
                    if other.identity == known.identity:
                        return rules
        return NO_RULES

    async def turn(
        self, prepared: PreparedRequest, may_retry: MayRetry, *, is_last: bool = False
    ) -> Turn:
        """Make the turn that answers a request; raises `ContextOverflow` if nothing fits.

        In the last turn of a run tools may no longer be called.
        """
        fitted = await prepared.service.fitting.fit(
            prepared.plan, prepared.known, prepared.headers, prepared.mode
        )
        new_id = prepared.answering.new_call_id
        making = partial(begin, prepared.plan, new_id, may_retry, fitted, is_last=is_last)
        return await asyncio.to_thread(making) if prepared.is_slow else making()

    async def shorter(
        self,
        prepared: PreparedRequest,
        may_retry: MayRetry,
        overflow: ContextOverflow,
        *,
        is_last: bool = False,
    ) -> Turn | None:
        known = replace(prepared.known, window=overflow.window or prepared.known.window)
        changed = structs.replace(prepared, known=known)
        try:
            turn = await self.turn(changed, may_retry, is_last=is_last)
        except ContextOverflow:  # the backend's own words say it better
            return None
        return turn if turn.is_shortened else None

    async def count(self, prepared: PreparedRequest) -> int:
        upstream_request = (await self.turn(prepared, lambda: False)).next_request()
        assert upstream_request is not None  # noqa: S101 - every turn begins with one
        return await prepared.service.fitting.count(
            upstream_request, prepared.known, prepared.headers
        )

    def _policy_for(self, client: Client, known: KnownModel, *, accepts_prose: bool) -> Policy:
        """Let a request's headers override the operator's settings and the tuned ones."""
        earned = known.tuned.get("guardrails")
        policy = structs.replace(self.policy, **earned) if earned else self.policy
        if chosen := _read_choice(client, TextPolicy, _TEXT_POLICY):
            policy = structs.replace(policy, text_policy=chosen)
        elif accepts_prose:
            policy = structs.replace(policy, text_policy=TextPolicy.ACCEPT)
        if mode := _read_choice(client, Mode, _MODE):
            policy = structs.replace(policy, mode=mode)
        return policy


@dataclass(slots=True, kw_only=True)
class RunTurns:
    """Makes the turns of one answer; `parsed` is its first request, from `client`.

    Each is prepared and fitted like a separate request. The `upstream` headers are sent to the
    backend, which `workers` share.
    """

    preparation: RequestPreparation
    parsed: ParsedRequest
    client: Client
    upstream: dict[str, str]
    may_retry: MayRetry
    workers: int = 1
    turns: list[Turn] = field(default_factory=list)
    prefix_broken: PrefixBroken | None = None
    _prepared: PreparedRequest | None = None
    _is_begun: bool = False
    _is_last: bool = False
    _is_seen: bool = False
    _shortenings: int = 0

    @property
    def prepared(self) -> PreparedRequest:
        assert self._prepared is not None  # noqa: S101 - it has begun
        return self._prepared

    async def begin_with(self, prepared: PreparedRequest) -> Turn:
        """Make the first turn from a prepared request; a run begins with it as well."""
        turn = await self._fit(prepared)
        self._is_begun = True
        return turn

    async def prepare(self, request: Request) -> PreparedRequest:
        parsed = structs.replace(self.parsed, request=request)
        return await self.preparation.prepare(parsed, self.client, self.upstream)

    async def begin(self, ask: "Ask") -> Turn:
        self._is_last, self._shortenings, self._is_seen = ask.is_last, 0, False
        if self._is_begun:
            self._is_begun = False
            return self.turns[-1]
        return await self._fit(await self.prepare(ask.request))

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn after a prompt proved too long; None if that does not help.

        It is too late once part of the answer was shown.
        """
        if self._is_seen or self._shortenings == MOST_SHORTENINGS:
            return None
        self._shortenings += 1
        turn = await self.preparation.shorter(
            self.prepared, self.may_retry, overflow, is_last=self._is_last
        )
        if turn is not None:
            self.turns[-1] = turn
        return turn

    def note(self, batch: Sequence[ReplyEvent]) -> None:
        self._is_seen = self._is_seen or any(isinstance(one, TextDelta) for one in batch)

    async def _fit(self, prepared: PreparedRequest) -> Turn:
        self._prepared, service, known = prepared, prepared.service, prepared.known
        service.resize(known, self.workers)
        broken = service.fitting.watch_prefix(known.model, prepared.plan)
        self.prefix_broken = self.prefix_broken or broken
        turn = await self.preparation.turn(prepared, self.may_retry, is_last=self._is_last)
        self.turns.append(turn)
        return turn


def _without_order(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    """Drop what would let a client overtake others behind the operator's priorities."""
    return {name: raw for name, raw in fields.items() if name not in _ENGINE_ORDER}


def _plan_large_request(request: Request, policy: Policy) -> RequestPlan:
    for schema in (*(tool.parameters for tool in request.tools), request.answer_schema):
        if schema is not None:
            prepare_checks(schema)
    return plan_request(request, policy)


def _quirks_for(request: Request, known: KnownModel) -> Quirks:
    opens = known.habit.lasting > 0 and request.thinking.is_on is not False
    is_known = known.quirks.opens_thoughts is opens
    return known.quirks if is_known else replace(known.quirks, opens_thoughts=opens)


def _compaction_for(client: Client, decoded: Decoded) -> FittingMode | None:
    """Return what a client wants done to a long conversation; None if it does not say."""
    chosen = _read_choice(client, FittingMode, _COMPACTION)
    if chosen is not None or decoded.compaction is None:
        return chosen
    return FittingMode.AUTO if decoded.compaction else FittingMode.OFF


def _judge_pictures(decoded: Decoded, known: KnownModel) -> bool:
    """Return whether there are pictures that a note has to replace.

    Raises `InvalidRequest` for one that the user has just sent to a model that takes none.
    """
    if not (decoded.image_error and known.is_blind):
        return False
    if find_new_picture(decoded.request.messages) is not None:
        raise InvalidRequest(decoded.image_error)
    return True


def _read_choice(client: Client, kind: type[Choice], header: str) -> Choice | None:
    """Read a header that names one of the members of `kind`; None if it was not sent."""
    if not (wished := client.headers.get(header)):
        return None
    try:
        return kind(wished.strip().lower())
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise InvalidRequest(f"use one of: {known}", header) from None


def takes_long(*pieces: bytes) -> bool:
    """Return whether others would notice how long it takes to process some JSON.

    Parts take their time, not letters: a thread costs more than to read a long text.
    """
    size = sum(map(len, pieces))
    if not bounds.LARGE_BYTES < size <= bounds.HUGE_BYTES:
        return size > bounds.HUGE_BYTES
    return sum(one.count(b"{") for one in pieces) > bounds.OBJECTS
