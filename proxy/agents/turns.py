"""Asks a served model what a run wants to know, as the proxy would for a client."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs

from proxy.agents.results import Usage, usage_of
from proxy.agents.tracing import Spans
from proxy.backends.client import ReplyEvents
from proxy.conversation.requests import Request
from proxy.dialects.front import Sender
from proxy.engine import Headers, converse
from proxy.errors import BackendTimedOut
from proxy.facts import Fact, RejectedReply
from proxy.inference.turn import Turn
from proxy.serving.request_preparation import PreparedRequest
from proxy.serving.run_turns import RunTurns


@dataclass(slots=True, kw_only=True)
class ModelTurns(RunTurns):
    """The turns of one run, whose place in the waiting line is `key`.

    `aliases` are further names of its tools. A turn may take `deadline` seconds. Whenever a model
    is asked again, `on_retry` is told the defect; all attempts are told to `spans`.
    """

    key: str
    deadline: float
    on_retry: Callable[[str], None]
    spans: Spans
    aliases: Mapping[str, str] = field(default_factory=dict)
    sender: Sender = field(default_factory=Sender)
    upstream: dict[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(fact for turn in self.turns for fact in turn.facts)

    @property
    def usage(self) -> Usage:
        return usage_of(one for turn in self.turns for one in turn.spent)

    async def prepare(self, request: Request) -> PreparedRequest:
        # without arguments `super` finds the class as it was before it had slots
        prepared = await RunTurns.prepare(self, request)
        plan = prepared.plan
        if plan.offer is None or not self.aliases:
            return prepared
        offer = structs.replace(plan.offer, aliases={**plan.offer.aliases, **self.aliases})
        return replace(prepared, plan=structs.replace(plan, offer=offer))

    async def answer(self, turn: Turn) -> ReplyEvents:
        prepared = self.prepared
        service, known = prepared.service, prepared.known
        backend = service.fitting.learning_backend(known.model, known.window)
        async with service.admission.slot(self.key):
            asking = converse(turn, backend, prepared.headers, partial(self._attempt, turn))
            async with aclosing(_within(asking, self.deadline, backend.name)) as batches:
                async for batch in batches:
                    self.note(batch)
                    yield batch

    def _attempt(self, turn: Turn, headers: Headers) -> AbstractContextManager[Headers]:
        defects = [fact.defect for fact in turn.facts if isinstance(fact, RejectedReply)]
        defect = defects[-1] if defects else None
        if defect is not None:
            self.on_retry(defect)
        return self.spans.attempt(headers, len(self.turns), defect)


async def _within(batches: ReplyEvents, seconds: float, backend: str) -> ReplyEvents:
    """Bound a reply in time; raises `BackendTimedOut` beyond it.

    The time runs only while something is waited for: whoever reads it may not be cancelled.
    """
    end = asyncio.get_running_loop().time() + seconds
    async with aclosing(batches):
        while True:
            try:
                async with asyncio.timeout_at(end):
                    batch = await anext(batches)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                problem = f"did not finish within {seconds:g} s"
                raise BackendTimedOut(backend, problem, is_overall=True) from error
            yield batch
