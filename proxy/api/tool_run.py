"""One request whose model may call tools of the operator: several replies, one answer.

Each turn is sent like any other request; the tools run here, between the replies.
"""

from collections.abc import Sequence
from contextlib import aclosing

from proxy.api.answer_source import AnswerSource, SlotTerms
from proxy.api.streaming import AnswerStream
from proxy.backends.client import ReplyEvents
from proxy.conversation import replies
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import RoundReports
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.openai_chat.tool_rounds import describe_rounds
from proxy.errors import ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, ToolRan
from proxy.inference.driver import run_turn
from proxy.inference.turn import Turn
from proxy.mcp.confirmations import Decision, RequestConfirmations, Requester
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import OwnedTools
from proxy.mcp.hosting import ToolHosting
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import LiveRequest
from proxy.observability.record import ToolRecord
from proxy.serving.request_preparation import RunTurns
from proxy.tools.run import Ask, Run, RunTerms, Stop
from proxy.tools.runner import carry_out

_CALL_EVENTS = (replies.ToolCallStarted, replies.ToolCallArgumentsDelta, replies.ToolCalled)


class ToolRun(AnswerSource):
    """An answer of a run, whose first turn is the one that `turns` begins with.

    What happens to it is noted in `live`, and for a `recorder`.
    """

    def __init__(
        self,
        turns: RunTurns,
        terms: SlotTerms,
        live: LiveRequest,
        hosting: ToolHosting,
        *,
        owned: tuple[ServedTool, ...],
        recorder: ExchangeRecorder | None = None,
    ) -> None:
        prepared = turns.prepared
        super().__init__(
            turns.turns[-1],
            terms,
            live,
            prepared.answering,
            upstream=prepared.headers,
            recorder=recorder,
        )
        self._turns = turns
        plan = prepared.plan
        run_terms = RunTerms(
            frozenset(one.tool.name for one in owned),
            plan.offer.workflow if plan.offer is not None else NO_RULES,
            rounds=hosting.rounds,
            result_chars=hosting.limits.result_chars,
            window=prepared.known.window,
        )
        self._run = Run(turns.parsed.request, run_terms)
        self._narrates = hosting.narrates
        self._tools = OwnedTools(
            hosting.offer.source,
            owned,
            hosting.limits,
            meta=lambda call: live.begin_call(call.id, call.name),
            notice=self._note_call,
            confirm=self._confirm,
        )
        requester = Requester(live.client or "", live.row_name, turns.client.request_id)
        self._person = RequestConfirmations(
            hosting.confirmations, requester, hosting.confirm_seconds
        )
        self._owned, self._shown_rounds = owned, 0
        self._ran: list[ToolRan] = []
        self._narrated: list[replies.ReplyEvent] = []

    @property
    def is_done(self) -> bool:
        return self._run.stop not in (None, Stop.CANCELLED)

    async def begin(self, ask: Ask) -> Turn:
        self.live.round += 1
        if self.recorder is not None:
            self.recorder.begin_round()
        self.turn = await self._turns.begin(ask)
        self.live.prefix_broken = self.live.prefix_broken or self._turns.prefix_broken
        return self.turn

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        turn = await self._turns.shorter(overflow)
        self.turn = turn or self.turn
        return turn

    async def answer(self, turn: Turn) -> ReplyEvents:
        """Stream what the turn lets out, while a slot of the backend is held."""
        live = self.live
        live.wait(self.terms.load)
        async with self.terms.slot():
            live.admit(self.terms.share(turn))
            terms = self.terms
            replying = run_turn(
                turn, terms.backend, self.upstream, live.attempt, policies=terms.policies
            )
            try:
                async with aclosing(replying) as batches:
                    async for batch in batches:
                        self._turns.note(batch)
                        yield batch
            finally:
                live.release()

    async def _confirm(self, tool: ServedTool, call: ToolCall, arguments: JsonObject) -> Decision:
        self.live.ask_person(call.id, tool.server, tool.own_name)
        return await self._person.ask(tool, arguments)

    def _note_call(self, record: ToolRecord) -> None:
        self._ran.append(ToolRan(record.server, record.name, record.status, record.round))
        self.live.end_call(record)
        if self._narrates:
            line = f"[{record.server}.{record.name}: {record.status}, {record.seconds:.1f} s]\n"
            self._narrated.append(replies.ReasoningDelta(line))

    async def events(self, stream: AnswerStream | None) -> ReplyEvents:
        """Yield the run's events; it has to see all, so none goes to the stream directly."""
        del stream
        try:
            async with aclosing(carry_out(self._run, self, self._tools)) as batches:
                async for batch in batches:
                    narrated, self._narrated = self._narrated, []
                    shown = [*narrated, *self._fresh_rounds(), *self._with_rounds(batch)]
                    self._note_shown(shown)
                    yield shown
        finally:
            if self.recorder is not None:
                self.recorder.end_run(self._run.terms, self._run.rounds)

    @property
    def _reports(self) -> RoundReports:
        return self._turns.parsed.request.round_reports

    def _fresh_rounds(self) -> Sequence[replies.ReplyEvent]:
        """Report the rounds since the last report, to a client that is shown each of them."""
        fresh = self._run.added[self._shown_rounds :]
        self._shown_rounds += len(fresh)
        rounds = tuple(one for one in fresh if one.calls or one.role == "tool")
        if not (rounds and self._reports is RoundReports.AS_MADE):
            return ()
        servers = {one.tool.name: one.server for one in self._owned}
        return (describe_rounds(rounds, servers),)

    def _with_rounds(self, batch: Sequence[replies.ReplyEvent]) -> Sequence[replies.ReplyEvent]:
        """Report the rounds before the end, if the client wants to send them back."""
        is_end = bool(batch) and isinstance(batch[-1], replies.ReplyFinished)
        if not (is_end and self._run.rounds and self._reports is RoundReports.AT_END):
            return batch
        added = self._run.added
        last = added[-1]
        is_answer = last.role == "assistant" and not last.calls
        return [*batch[:-1], describe_rounds(added[:-1] if is_answer else added), batch[-1]]

    def cut_off(self, failure: TemperError) -> Sequence[replies.ReplyEvent]:
        """Return the final events without any call."""
        return [one for one in super().cut_off(failure) if not isinstance(one, _CALL_EVENTS)]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What happened to all turns, and to calls; only the last prompt counts as the context."""
        earlier = (fact for turn in self._turns.turns[:-1] for fact in turn.facts)
        facts: list[Fact] = [fact for fact in earlier if not isinstance(fact, Compacted)]
        return (*facts, *self.turn.facts, *self._run.facts, *self._ran, *self._window_facts)
