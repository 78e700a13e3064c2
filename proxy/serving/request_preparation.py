"""The steps between a decoded request and its first turn: resolve the model, plan, fit the context.

    Decoded --resolve--> Resolved --plan--> Planned --fit--> Turn

Each object contains the previous one. If Temper runs tools, `run_turns` plans and fits every
further turn in the same way.
"""

import asyncio
from collections.abc import Mapping
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
from proxy.backends.engines import ANY_MEMBERS, REASONING_MEMBERS
from proxy.conversation.requests import Request
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.dialects.dialect import Answering, Client, Decoded
from proxy.dialects.openai_chat.thinking import effort_in, fit_thinking
from proxy.errors import ContextOverflow, InvalidRequest, UnknownModel
from proxy.facts import Omitted, RuleSkipped
from proxy.guardrails.history_repair.history import replay_start
from proxy.guardrails.history_repair.refused_forms import find_new_picture, hide_pictures
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.schemas.schema import prepare_checks
from proxy.guardrails.steps import drop_infeasible
from proxy.guardrails.transcript import list_completed_calls
from proxy.inference.kept_reasoning import AnswerReasoning, History, ReasoningStore
from proxy.inference.plan import Policy, RequestPlan
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import MayRetry, Turn
from proxy.profiles.known_model import KnownModel
from proxy.serving.admission import Priority
from proxy.serving.context_fitting import FittingMode, TokenCount
from proxy.serving.services import OLLAMA, Service, Services

if TYPE_CHECKING:  # at run time, only imported if Temper itself executes tools
    from proxy.tools.built_in import BuiltInTools

_TEXT_POLICY = "x-temper-text-policy"
GUARDRAILS_HEADER = "x-temper-guardrails"
_COMPACTION = "x-temper-compaction"
_PRIORITY = "x-temper-priority"
# `priority` orders requests in vLLM, and `id_slot` chooses a slot of llama-server. With these
# fields, a client could bypass the operator's priorities.
_ORDER_FIELDS = frozenset({"priority", "id_slot"})
_ANONYMOUS = Client()

Choice = TypeVar("Choice", bound=Enum)

MOST_SHORTENINGS = 8  # per prompt; each attempt removes much more than the previous attempt


class Resolved(msgspec.Struct, frozen=True):
    """A decoded request with the service of its model; `request` uses the backend's model name.

    `built_in` has the tools that Temper executes itself, None if the request gets none of them.
    """

    decoded: Decoded
    client: Client
    request: Request
    service: Service
    built_in: "BuiltInTools | None" = None

    @property
    def accepts_prose(self) -> bool:
        """Whether any text is an answer, because the client offers no tools or asks for prose."""
        is_alone = self.built_in is not None and self.built_in.is_alone
        return is_alone or self.decoded.accepts_prose

    def with_request(self, request: Request) -> "Resolved":
        return self if request is self.request else structs.replace(self, request=request)


class Planned(msgspec.Struct, frozen=True):
    """A planned request.

    `headers` are sent to the backend. `mode` is the client's choice of how to handle a long
    conversation; None means the operator's setting. A request with `is_slow` is planned and fitted
    in a thread, because in the event loop it would delay other requests.
    `reasoning` collects the reasoning of the answer; None if later turns do not need it.
    """

    resolved: Resolved
    plan: RequestPlan
    known: KnownModel
    headers: dict[str, str]
    mode: FittingMode | None = None
    is_slow: bool = False
    reasoning: AnswerReasoning | None = None

    @property
    def answering(self) -> Answering:
        return self.resolved.decoded.answering

    @property
    def service(self) -> Service:
        return self.resolved.service


@dataclass(frozen=True, slots=True)
class RequestPreparation:
    """Prepares requests for their models.

    `workflows` are the operator's rules for the order of tool calls, by model name. `priorities`
    maps each key owner to a priority: the default of the owner's requests, and the highest priority
    that they may choose. Owners without an entry have `NORMAL`. `reasoning` stores the
    reasoning that clients do not send back; None if it is not restored. With `trusts_engines`, the
    reasoning is also sent to engines that are not known to accept it.
    """

    services: Services
    policy: Policy
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    reasoning: ReasoningStore | None = None
    trusts_engines: bool = False

    def priority_of(self, client: Client) -> Priority:
        """Return the requested priority, at most the owner's limit; raises `InvalidRequest`."""
        highest = self.priorities.get(client.owner, Priority.NORMAL)
        requested = _read_choice(client, Priority, _PRIORITY)
        if requested is None:
            return highest
        return max(requested, highest, key=[*Priority].index)  # the lower of the two

    async def resolve(self, decoded: Decoded, client: Client = _ANONYMOUS) -> Resolved:
        """Find the service of the requested model; raises `UnknownModel`."""
        service = self.services.find(decoded.request.model)
        request = self.services.rename(decoded.request)
        if service.presets:
            request = service.with_preset(request)
        request = service.address_to_backend(request)
        if self.priorities and (order_fields := _ORDER_FIELDS & request.fields.keys()):
            request = structs.replace(request, fields=_without_order(request.fields))
            omitted = (Omitted(name) for name in sorted(order_fields))
            decoded = structs.replace(decoded, facts=(*decoded.facts, *omitted))
        return Resolved(decoded, client, await service.choose_model(request), service)

    def relay(self, passage: PassthroughRequest) -> tuple[PassthroughRequest, Service]:
        """Find the service of a passthrough request; raises `UnknownModel`."""
        service = self.services.find(passage.model)
        if self.priorities:
            passage = structs.replace(passage, fields=_without_order(passage.fields))
        return service.address_to_backend(self.services.rename(passage)), service

    async def plan(self, resolved: Resolved, upstream: dict[str, str]) -> Planned:
        """Plan a request for its model; `upstream` headers are sent to the backend.

        Raises `InvalidRequest`.
        """
        decoded, client, service = resolved.decoded, resolved.client, resolved.service
        known = await service.look_up(resolved.request.model)
        hides_images = _must_hide_images(decoded, known)
        request = _with_thinking(resolved.request, known)
        rules, skipped = NO_RULES, tuple[RuleSkipped, ...]()
        built_in = resolved.built_in
        # a request for prose, for example a summary, does not have to follow the order of calls
        if self.workflows and not resolved.accepts_prose:
            rules, skipped = await self.rules_for(request, service, known)
        policy = self._policy_for(client, known, accepts_prose=resolved.accepts_prose)
        quirks = _quirks_for(request, known)
        policy = structs.replace(policy, quirks=quirks, workflow=rules, habit=known.habit)
        policy = policy if built_in is None else built_in.adapt(policy)
        is_slow = takes_long(*request.fields.values())
        conversation = conversation_key(request, client.headers)
        reasoning = (
            self._restore_reasoning(request, client.owner, known, conversation)
            if policy.mode is Mode.ON
            else None
        )
        if reasoning is not None:
            request = reasoning.complete(request)
        planning = partial(_plan_large_request if is_slow else plan_request, request, policy)
        # Starting a thread costs more than planning a usual request. A large request would block
        # all other requests if it were planned in the event loop.
        plan = await asyncio.to_thread(planning) if is_slow else planning()
        plan = plan if built_in is None else built_in.summarize(plan)
        if hides_images:
            plan = structs.replace(plan, messages=hide_pictures(plan.messages))
        facts = (*decoded.facts, *(skipped if plan.offer is not None else ()))
        facts += () if reasoning is None else reasoning.facts
        if request.load.options and known.engine != OLLAMA:  # only Ollama loads with options
            facts += (Omitted("load_options"),)
        if facts:
            plan = structs.replace(plan, facts=(*plan.facts, *facts))
        headers = {**upstream, PREFIX_HEADER: conversation}
        return Planned(
            resolved, plan, known, headers, fitting_mode(client, decoded), is_slow, reasoning
        )

    def _restore_reasoning(
        self, request: Request, owner: str, known: KnownModel, conversation: str
    ) -> AnswerReasoning | None:
        """Find the stored reasoning that the client did not send back.

        Returns None if this model or engine must not receive it.
        """
        if self.reasoning is None:
            return None
        quirks, members = known.quirks, REASONING_MEMBERS.get(known.engine, ())
        is_used = quirks.renders_reasoning
        if self.trusts_engines:
            is_used, members = is_used is not False, members or ANY_MEMBERS
        if not (is_used and members) or quirks.replay == "none":
            return None
        origin = known.identity or known.model, conversation
        start = replay_start(request.messages, quirks.replay)
        history = History(owner, origin, request.messages, members, start)
        return self.reasoning.restore(history, is_streamed=request.stream)

    async def fit(self, planned: Planned, may_retry: MayRetry, *, is_last: bool = False) -> Turn:
        """Fit a request into the context window; raises `ContextOverflow` if that is impossible.

        With `is_last`, the turn is the last of a run: the model may not call tools.
        """
        fitted = await planned.service.fitting.fit(
            planned.plan, planned.known, planned.headers, planned.mode
        )
        new_id = planned.answering.new_call_id
        begins = partial(begin, planned.plan, new_id, may_retry, fitted, is_last=is_last)
        return await asyncio.to_thread(begins) if planned.is_slow else begins()

    async def shorten(
        self,
        planned: Planned,
        may_retry: MayRetry,
        overflow: ContextOverflow,
        *,
        is_last: bool = False,
    ) -> Turn | None:
        """Fit a request again after the backend rejected its prompt.

        Returns None if nothing more can be removed.
        """
        # the window that the backend reports takes precedence over any setting
        known = replace(planned.known, window=overflow.window or planned.known.window)
        narrowed = structs.replace(planned, known=known)
        try:
            turn = await self.fit(narrowed, may_retry, is_last=is_last)
        except ContextOverflow:  # the caller returns the backend's error, which is more precise
            return None
        return turn if turn.is_shortened else None

    async def count(self, planned: Planned) -> TokenCount:
        """Count the tokens of the prompt that would be sent."""
        upstream_request = (await self.fit(planned, lambda: False)).next_request()
        assert upstream_request is not None  # noqa: S101 - the first request of a turn exists
        fitting = planned.service.fitting
        return await fitting.count(upstream_request, planned.known, planned.headers)

    async def rules_for(
        self, request: Request, service: Service, known: KnownModel
    ) -> tuple[Workflow, tuple[RuleSkipped, ...]]:
        """Return the rules that the request's tools can satisfy, and an event per skipped rule."""
        if not request.tools or request.workflow != NO_RULES:
            return NO_RULES, ()
        rules = await self._workflow_of(request.model, service, known)
        offered = [tool.name for tool in request.tools]
        rules, missing = drop_infeasible(rules, offered, list_completed_calls(request.messages))
        return rules, tuple(map(RuleSkipped, missing))

    async def _workflow_of(self, model: str, service: Service, known: KnownModel) -> Workflow:
        """Return the rules of a model; the settings may use another name of the same model."""
        if model in self.workflows:
            return self.workflows[model]
        for name, rules in self.workflows.items():
            with suppress(UnknownModel):
                if self.services.find(name) is service:
                    other = known if service.name else await service.look_up(name)
                    if other.identity == known.identity:
                        return rules
        return NO_RULES

    def _policy_for(self, client: Client, known: KnownModel, *, accepts_prose: bool) -> Policy:
        """Combine the operator's settings, the tuned settings of the model, and the headers."""
        tuned = known.tuned.get("guardrails")
        policy = structs.replace(self.policy, **tuned) if tuned else self.policy
        if text_policy := _read_choice(client, TextPolicy, _TEXT_POLICY):
            policy = structs.replace(policy, text_policy=text_policy)
        elif accepts_prose:
            policy = structs.replace(policy, text_policy=TextPolicy.ACCEPT)
        if mode := _read_choice(client, Mode, GUARDRAILS_HEADER):
            policy = structs.replace(policy, mode=mode)
        return policy


def takes_long(*documents: bytes) -> bool:
    """Return whether processing JSON would noticeably delay other requests.

    For medium sizes, the number of objects decides: a single long text is processed faster than a
    thread is started.
    """
    size = sum(map(len, documents))
    if not bounds.LARGE_BYTES < size <= bounds.HUGE_BYTES:
        return size > bounds.HUGE_BYTES
    return sum(document.count(b"{") for document in documents) > bounds.OBJECTS


def _without_order(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    """Drop the fields with which a client could bypass the operator's priorities."""
    return {name: raw for name, raw in fields.items() if name not in _ORDER_FIELDS}


def _with_thinking(request: Request, known: KnownModel) -> Request:
    """Add the operator's reasoning settings, in the model's format, where a request has none."""
    effort = known.overrides.effort
    effort = "" if effort and effort_in(request) else effort
    thinking = request.thinking.or_else(known.overrides.thinking, effort)
    if thinking is not request.thinking:
        request = structs.replace(request, thinking=thinking)
    quirks = known.quirks
    return fit_thinking(request, quirks.efforts, quirks.effort_variable, quirks.kept_by)


def _plan_large_request(request: Request, policy: Policy) -> RequestPlan:
    """Compile the schemas, which takes seconds for a large schema, then plan the request.

    Called in a thread, so that the later checks in the event loop find compiled schemas.
    """
    for schema in (*(tool.parameters for tool in request.tools), request.answer_schema):
        if schema is not None:
            prepare_checks(schema)
    return plan_request(request, policy)


def _quirks_for(request: Request, known: KnownModel) -> Quirks:
    """Return the quirks, with `opens_thoughts` as earlier replies and the request suggest."""
    opens = known.habit.expected_replies > 0 and request.thinking.is_on is not False
    is_known = known.quirks.opens_thoughts is opens
    return known.quirks if is_known else replace(known.quirks, opens_thoughts=opens)


def fitting_mode(client: Client, decoded: Decoded) -> FittingMode | None:
    """Return the client's choice for a long conversation: from its header, else from its body."""
    header = _read_choice(client, FittingMode, _COMPACTION)
    if header is not None or decoded.compaction is None:
        return header
    return FittingMode.AUTO if decoded.compaction else FittingMode.OFF


def _must_hide_images(decoded: Decoded, known: KnownModel) -> bool:
    """Return whether notes must replace images, because the model does not accept images.

    Raises `InvalidRequest` if the user's latest message has an image, because an answer that
    ignores the image would be misleading. Images in earlier messages are accepted, because clients
    send the whole history with every request.
    """
    if not (decoded.image_error and known.rejects_images):
        return False
    if find_new_picture(decoded.request.messages) is not None:
        raise InvalidRequest(decoded.image_error)
    return True


def _read_choice(client: Client, kind: type[Choice], header: str) -> Choice | None:
    """Parse a header whose value is a member of `kind`; None if it was not sent."""
    if not (value := client.headers.get(header)):
        return None
    try:
        return kind(value.strip().lower())
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise InvalidRequest(f"use one of: {allowed}", header) from None
