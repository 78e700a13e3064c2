"""One request whose model may call tools of the operator: several replies, one answer.

What a run asks is asked as for any other request; its tools run here, between the replies.
"""

from collections.abc import Sequence
from contextlib import aclosing

from proxy.api.exchange import Exchange, ExchangeParts
from proxy.backends.client import ReplyEvents
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.openai_chat.tool_rounds import told
from proxy.engine import converse
from proxy.errors import ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, ToolRan, WindowFilled, outcome
from proxy.inference.event_sink import Audience
from proxy.inference.turn import Turn
from proxy.mcp.confirmations import Decision, RequestConfirmations, Requester
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import OwnedTools
from proxy.mcp.specification import Called
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.record import ToolRecord
from proxy.runner import carry_out
from proxy.serving.run_turns import RunTurns
from proxy.serving.tool_hosting import ToolHosting
from proxy.tool_rounds.run import Ask, Run
from proxy.tool_rounds.terms import RunTerms, Stop

_CALL_EVENTS = (ToolCallStarted, ToolCallArgumentsDelta, ToolCalled)


def tool_exchange(
    first: Exchange, hosting: ToolHosting, owned: tuple[ServedTool, ...], turns: RunTurns
) -> "ToolExchange":
    """Have the run whose first turn is that of `first` answer the request."""
    plan, request = turns.prepared.plan, turns.parsed.request
    terms = RunTerms(
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
        self._ran: list[ToolRan] = []
        self._told: list[ReplyEvent] = []
        self._upstream: dict[str, str] = {}
        self._recorder: ExchangeRecorder | None = None

    def close(self) -> None:
        """Note what happened to the run."""
        super().close()
        if self._recorder is not None:
            self._recorder.end_run(self._run.terms, self._run.rounds)
        ended = self._run.stop not in (None, Stop.CANCELLED)
        self._live.outcome = outcome(self._live.facts) if ended else None

    async def begin(self, ask: Ask) -> Turn:
        """Prepare and fit what is to be asked; raises `ContextOverflow` if nothing fits."""
        self._live.round += 1
        if self._recorder is not None:
            self._recorder.begin_round()
        self._turn = await self._source.begin(ask)
        self._live.prefix_broken = self._live.prefix_broken or self._source.prefix_broken
        return self._turn

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn of a prompt that proved too long; None if that is no help.

        It is too late once something of this reply was shown.
        """
        turn = await self._source.shorter(overflow)
        self._turn = turn or self._turn
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
                        self._source.note(batch)
                        yield batch
            finally:
                live.release()

    def _events(
        self,
        headers: dict[str, str],
        recorder: ExchangeRecorder | None,
        audience: Audience | None = None,
    ) -> ReplyEvents:
        self._recorder = recorder
        return super()._events(headers, recorder, audience)

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
        earlier = (fact for turn in self._source.turns[:-1] for fact in turn.facts)
        facts: list[Fact] = [fact for fact in earlier if not isinstance(fact, Compacted)]
        facts += [*self._turn.facts, *self._run.facts, *self._ran]
        if self._is_filled and self._terms.window is not None:
            facts.append(WindowFilled(self._terms.window))
        return tuple(facts)
