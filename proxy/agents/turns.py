"""Asks a served model what a run wants to know, as the proxy would for a client."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace

from msgspec import structs

from proxy.agents.tracing import Spans
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import TextDelta
from proxy.conversation.requests import Request
from proxy.dialects.front import Sender
from proxy.engine import Headers, converse
from proxy.errors import BackendTimedOut, ContextOverflow
from proxy.facts import Fact, RejectedReply
from proxy.inference.budget import Ticket
from proxy.inference.turn import Turn
from proxy.rounds.steps import Ask
from proxy.serving.request_preparation import (
    MOST_SHORTENINGS,
    ParsedRequest,
    PreparedRequest,
    RequestPreparation,
)

_TEXT_POLICY = "x-temper-text-policy"


@dataclass(slots=True)
class ModelTurns:
    """The turns of one run: `parsed` is its first request, `key` its place in the waiting line.

    `aliases` are further names of its tools. With `demands_calls` prose is no answer. A turn may
    take `deadline` seconds. Whenever a model is asked again, `on_retry` is told the defect; all
    attempts are told to `spans`.
    """

    preparation: RequestPreparation
    parsed: ParsedRequest
    ticket: Ticket
    key: str
    deadline: float
    on_retry: Callable[[str], None]
    spans: Spans
    aliases: Mapping[str, str] = field(default_factory=dict)
    demands_calls: bool = False
    _turns: list[Turn] = field(default_factory=list)
    _prepared: PreparedRequest | None = None
    _is_last: bool = False
    _shortenings: int = 0
    _is_seen: bool = False

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What happened in all turns so far."""
        return tuple(fact for turn in self._turns for fact in turn.facts)

    async def prepare(self, request: Request) -> PreparedRequest:
        """Prepare a request of the run by what is known of its model now."""
        parsed = replace(self.parsed, request=request)
        headers = {_TEXT_POLICY: "require"} if self.demands_calls else {}
        prepared = await self.preparation.prepare(parsed, Sender(headers=headers), {})
        plan = prepared.plan
        if plan.offer is None or not self.aliases:
            return prepared
        offer = structs.replace(plan.offer, aliases={**plan.offer.aliases, **self.aliases})
        return replace(prepared, plan=structs.replace(plan, offer=offer))

    async def begin(self, ask: Ask) -> Turn:
        """Prepare and fit what is to be asked; raises `ContextOverflow` if nothing fits."""
        prepared = self._prepared = await self.prepare(ask.request)
        self._is_last, self._shortenings, self._is_seen = ask.is_last, 0, False
        service, known = prepared.service, prepared.known
        service.resize(known, 1)
        service.fitting.watch_prefix(known.model, prepared.plan)
        turn = await self.preparation.turn(prepared, self.ticket.may_retry, is_last=self._is_last)
        self._turns.append(turn)
        return turn

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn of a prompt that proved too long; None if that is no help.

        It is too late once something of the answer was shown.
        """
        if self._is_seen or self._shortenings == MOST_SHORTENINGS or self._prepared is None:
            return None
        self._shortenings += 1
        turn = await self.preparation.shorter(
            self._prepared, self.ticket.may_retry, overflow, is_last=self._is_last
        )
        if turn is not None:
            self._turns[-1] = turn
        return turn

    async def answer(self, turn: Turn) -> ReplyEvents:
        """Stream what the turn lets out, while a slot of the backend is held."""
        assert self._prepared is not None  # noqa: S101 - it has begun
        service, known = self._prepared.service, self._prepared.known
        backend = service.fitting.learning(known.model, known.window)
        attempts = _Attempts(turn, len(self._turns), self.on_retry, self.spans)
        async with service.admission.slot(self.key):
            asking = converse(turn, backend, self._prepared.headers, attempts.begin)
            async with aclosing(_within(asking, self.deadline, backend.name)) as batches:
                async for batch in batches:
                    self._is_seen |= any(isinstance(one, TextDelta) for one in batch)
                    yield batch


@dataclass(slots=True)
class _Attempts:
    """Tells of the attempts at a turn, the one of that `number`."""

    turn: Turn
    number: int
    on_retry: Callable[[str], None]
    spans: Spans

    @contextmanager
    def begin(self, headers: Headers) -> Iterator[Headers]:
        """Note that an attempt begins."""
        defects = [fact.defect for fact in self.turn.facts if isinstance(fact, RejectedReply)]
        defect = defects[-1] if defects else None
        if defect is not None:
            self.on_retry(defect)
        with self.spans.attempt(headers, self.number, defect) as sent:
            yield sent


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
