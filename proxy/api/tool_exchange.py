"""One request whose model may call tools of the operator: several replies, one answer.

What a run asks is asked as for any other request; its tools run here, between the replies.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from proxy.api.exchange import Exchange, ExchangeParts
from proxy.backends.client import ReplyEvents
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.front import Sender
from proxy.dialects.openai_chat.tool_rounds import told
from proxy.engine import converse
from proxy.errors import ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, ToolRan, WindowFilled, outcome
from proxy.inference.audience import Audience
from proxy.inference.turn import MayRetry, Turn
from proxy.observability.record import ToolRecord
from proxy.rounds.run import Run
from proxy.rounds.steps import Ask
from proxy.rounds.terms import Stop, Terms
from proxy.runner import carry_out
from proxy.serving.request_preparation import (
    MOST_SHORTENINGS,
    ParsedRequest,
    PreparedRequest,
    RequestPreparation,
)
from proxy.serving.tool_hosting import ToolHosting
from proxy.toolservers.calling import Called
from proxy.toolservers.confirmations import Decision, RequestConfirmations, Requester
from proxy.toolservers.definitions import ServedTool
from proxy.toolservers.execution import OwnedTools

_CALL_EVENTS = (ToolCallStarted, ToolCallArgumentsDelta, ToolCalled)


@dataclass(slots=True)
class RunTurns:
    """Makes the turns of a run behind the first; `prepared` is what was asked last.

    Each is prepared and fitted as the request of its own that it is.
    """

    preparation: RequestPreparation
    parsed: ParsedRequest
    sender: Sender
    upstream: dict[str, str]
    may_retry: MayRetry
    prepared: PreparedRequest
    is_last: bool = False

    async def begin(self, ask: Ask) -> Turn:
        """Prepare and fit what is asked; raises `ContextOverflow` if nothing fits."""
        parsed = replace(self.parsed, request=ask.request)
        self.prepared = await self.preparation.prepare(parsed, self.sender, self.upstream)
        self.is_last = ask.is_last
        return await self.preparation.turn(self.prepared, self.may_retry, is_last=ask.is_last)

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn of a prompt that proved too long; None if that is no help."""
        return await self.preparation.shorter(
            self.prepared, self.may_retry, overflow, is_last=self.is_last
        )


def tool_exchange(
    first: Exchange, hosting: ToolHosting, owned: tuple[ServedTool, ...], turns: RunTurns
) -> "ToolExchange":
    """Have the run whose first turn is that of `first` answer the request."""
    plan, request = turns.prepared.plan, turns.parsed.request
    terms = Terms(
        frozenset(one.tool.name for one in owned),
        plan.offer.workflow if plan.offer is not None else NO_RULES,
        rounds=hosting.rounds,
        result_chars=hosting.limits.result_chars,
        window=turns.prepared.known.window,
    )
    return ToolExchange(first.parts, Run(request, terms), turns, hosting=hosting, owned=owned)


class ToolExchange(Exchange):
    """Answers one request by a run, whose first turn is that of the exchange it goes on with."""

    def __init__(
        self,
        parts: ExchangeParts,
        run: Run,
        turns: RunTurns,
        *,
        hosting: ToolHosting,
        owned: tuple[ServedTool, ...],
    ) -> None:
        super().__init__(
            parts.answering,
            parts.turn,
            parts.backend,
            parts.timeouts,
            terms=parts.terms,
            live=parts.live,
        )
        self._run = run
        self._source = turns
        self._narrates = hosting.narrates
        self._tools = OwnedTools(
            hosting.source,
            owned,
            hosting.limits,
            meta=lambda call: parts.live.call(call.id, call.name),
            notice=self._note_call,
            confirm=self._confirm,
        )
        requester = Requester(parts.live.client or "", parts.live.row_name, turns.sender.request_id)
        self._person = RequestConfirmations(
            hosting.confirmations, requester, hosting.confirm_seconds
        )
        self._turns: list[Turn] = []
        self._ran: list[ToolRan] = []
        self._told: list[ReplyEvent] = []
        self._upstream: dict[str, str] = {}
        self._restarts = 0
        self._has_text = False

    def close(self) -> None:
        """Note what happened to the run."""
        super().close()
        ended = self._run.stop not in (None, Stop.CANCELLED)
        self._live.outcome = outcome(self._live.facts) if ended else None

    async def begin(self, ask: Ask) -> Turn:
        """Prepare and fit what is to be asked; the first turn is there already."""
        if self._turns:
            self._turn = await self._source.begin(ask)
        self._turns.append(self._turn)
        self._restarts, self._has_text = 0, False
        return self._turn

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn of a prompt that proved too long; None if that is no help.

        It is too late once something of this reply was shown.
        """
        if self._has_text or self._restarts == MOST_SHORTENINGS:
            return None
        self._restarts += 1
        turn = await self._source.shorter(overflow)
        if turn is not None:
            self._turn = self._turns[-1] = turn
        return turn

    async def answer(self, turn: Turn) -> ReplyEvents:
        """Stream what the turn lets out, while a slot of the backend is held."""
        live = self._live
        live.wait(self._terms.load)
        async with self._terms.slot():
            live.admit(self._share)
            try:
                replying = converse(turn, self._backend, self._upstream, live.attempt)
                async with aclosing(replying) as batches:
                    async for batch in batches:
                        self._has_text |= any(isinstance(one, TextDelta) for one in batch)
                        yield batch
            finally:
                live.release()

    async def _confirm(self, tool: ServedTool, call: ToolCall, arguments: JsonObject) -> Decision:
        """Have a person decide whether a call is made."""
        self._live.ask_person(call.id, tool.server, tool.own_name)
        return await self._person.ask(tool, arguments)

    def _note_call(self, called: Called) -> None:
        """Note a call that is over."""
        number, status = len(self._run.rounds) + 1, called.status.value
        self._ran.append(ToolRan(called.server, called.own_name, status, number))
        self._live.ran(
            ToolRecord(
                called.server,
                called.own_name,
                called.call_id,
                number,
                called.begun,
                called.seconds,
                status,
                called.error,
                called.transport,
                called.protocol,
                waited=called.waited,
            )
        )
        if self._narrates:
            line = f"[{called.server}.{called.own_name}: {status}, {called.seconds:.1f} s]\n"
            self._told.append(ReasoningDelta(line))

    async def _watched(
        self, headers: dict[str, str], audience: Audience | None = None
    ) -> ReplyEvents:
        """Stream the run's events; nobody is shown anything past it, as it has to see all."""
        del audience
        self._upstream = headers
        running = carry_out(self._run, self, self._tools)
        async with aclosing(running) as batches:
            async for batch in batches:
                narrated, self._told = self._told, []
                shown = [*narrated, *self._with_rounds(batch)]
                self._notice(shown)
                yield shown

    def _with_rounds(self, batch: Sequence[ReplyEvent]) -> Sequence[ReplyEvent]:
        """Tell of the rounds before the end, where the client wants to send them back."""
        is_end = bool(batch) and isinstance(batch[-1], ReplyFinished)
        if not (is_end and self._run.rounds and self._source.parsed.request.wants_rounds):
            return batch
        added = self._run.added
        last = added[-1]
        is_answer = last.role == "assistant" and not last.calls
        return [*batch[:-1], told(added[:-1] if is_answer else added), batch[-1]]

    def _cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        """Return the end of an answer that flowed until its time was over, without any call."""
        rest = super()._cut_off(failure)
        return [event for event in rest if not isinstance(event, _CALL_EVENTS)]

    @property
    def _facts(self) -> tuple[Fact, ...]:
        """What happened to all turns, and to calls; only the last prompt counts as the context."""
        earlier = (fact for turn in self._turns[:-1] for fact in turn.facts)
        facts: list[Fact] = [fact for fact in earlier if not isinstance(fact, Compacted)]
        facts += [*self._turn.facts, *self._run.facts, *self._ran]
        if self._is_filled and self._terms.window is not None:
            facts.append(WindowFilled(self._terms.window))
        return tuple(facts)
