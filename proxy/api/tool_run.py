"""An answer in which the model calls tools of the operator; Temper executes them between turns.

    turn 1    wait for a slot, generate, release the slot: the reply calls operator's tools
              execute the tools
    turn 2    wait for a slot, generate, release the slot: the reply is the answer

Each turn waits for a slot like a separate request. A slot is not held while tools run, because a
tool may take minutes.
"""

from collections.abc import Sequence
from contextlib import aclosing

from proxy.api.answer import Answer, Received, slot_share
from proxy.api.streaming import AnswerStream
from proxy.backends.client import ReplyEvents
from proxy.conversation import replies
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, Messages
from proxy.conversation.requests import RoundReports
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.openai_chat.tool_rounds import describe_rounds
from proxy.errors import ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, ToolRan
from proxy.inference.turn import Turn
from proxy.mcp.built_in import BUILT_IN, BuiltInCalls
from proxy.mcp.confirmations import Decision, RequestConfirmations, Requester
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import CallSource, OperatorTools
from proxy.mcp.hosting import ToolHosting
from proxy.observability.record import Load, ToolRecord
from proxy.serving.request_preparation import Planned
from proxy.serving.run_turns import RunTurns
from proxy.tools.recall import Archive
from proxy.tools.run import Ask, Run, RunConfig, Stop
from proxy.tools.runner import carry_out

_CALL_EVENTS = (replies.ToolCallStarted, replies.ToolCallArgumentsDelta, replies.ToolCalled)


class ToolRun(Answer):
    """An answer of several turns; the first turn is already in `turns`.

    `offered` are the operator's tools that this request may call.
    """

    def __init__(
        self,
        received: Received,
        turns: RunTurns,
        load: Load | None,
        *,
        hosting: ToolHosting,
        offered: tuple[ServedTool, ...],
    ) -> None:
        planned, live = turns.planned, received.live
        super().__init__(received, planned, turns.turns[-1], load, turns.preparation)
        self._turns = turns
        offer = planned.plan.offer
        config = RunConfig(
            frozenset(served.tool.name for served in offered),
            offer.workflow if offer is not None else NO_RULES,
            rounds=hosting.rounds,
            result_chars=hosting.limits.result_chars,
            window=planned.known.window,
            built_in=frozenset(tool.tool.name for tool in offered if tool.server == BUILT_IN),
        )
        self._run = Run(planned.resolved.request, config)
        self._narrates = hosting.narrates
        self._built_in = planned.resolved.built_in
        source: CallSource = hosting.offer.source
        if self._built_in is not None:
            source = BuiltInCalls(source, self._built_in, self._archive)
        self._tools = OperatorTools(
            source,
            offered,
            hosting.limits,
            meta=lambda call: live.begin_call(call.id, call.name),
            notice=self._note_call,
            confirm=self._confirm,
        )
        requester = Requester(live.client or "", live.row_name, received.client.request_id)
        self._person = RequestConfirmations(
            hosting.confirmations, requester, hosting.confirm_seconds
        )
        self._offered, self._shown_messages = offered, 0
        self._executed: list[ToolRan] = []
        self._narration: list[replies.ReplyEvent] = []

    @property
    def is_done(self) -> bool:
        return self._run.stop not in (None, Stop.CANCELLED)

    @property
    def latest(self) -> Planned:
        return self._turns.planned

    async def begin(self, ask: Ask) -> Turn:
        if self._reread is not None:  # in the previous turn, the engine read the prompt again
            await self.explain()
        self.live.round += 1
        if self.received.recorder is not None:
            self.received.recorder.begin_round()
        self.turn = await self._turns.begin(ask)
        if (watched := self._turns.watched) is not None:
            self.received.watched = watched
            self.live.prefix_broken = self.live.prefix_broken or watched.broken
        # Temper will insert the calls of its own tools into the history of the client's next
        # request. So the reasoning of the answer must be stored for the history with these calls.
        if self._built_in is not None:
            self.reasoning = self._turns.planned.reasoning
        return self.turn

    async def shorten(self, overflow: ContextOverflow) -> Turn | None:
        turn = await self._turns.shorten(overflow)
        self.turn = turn or self.turn
        return turn

    async def answer(self, turn: Turn) -> ReplyEvents:
        """Wait for a slot of the backend, and yield the turn's events while the slot is in use."""
        live, self.fallback_backend = self.live, ""
        live.wait(self.load)
        async with self._slot():
            live.admit(slot_share(turn, self.planned.known))
            try:
                async with aclosing(self._run_turn(turn)) as batches:
                    async for batch in batches:
                        self._turns.note(batch)
                        yield batch
            finally:
                self._record_reading(turn)
                live.release()  # the record reports the time of the tools separately
        if self.send_to_fallback is not None and turn.is_spent:
            async with aclosing(self.send_to_fallback(self)) as batches:
                async for batch in batches:
                    self._turns.note(batch)
                    yield batch

    def _archive(self) -> Archive:
        """Return the messages of the latest prompt before and after compaction."""
        all_messages = self.latest.plan.messages
        return Archive(all_messages, self.turn.messages, self._run.config.built_in)

    async def _confirm(self, tool: ServedTool, call: ToolCall, arguments: JsonObject) -> Decision:
        self.live.wait_for_person(call.id, tool.server, tool.upstream_name)
        return await self._person.ask(tool, arguments)

    def _note_call(self, record: ToolRecord) -> None:
        self._executed.append(ToolRan(record.server, record.name, record.status, record.round))
        self.live.end_call(record)
        if self._narrates:
            line = f"[{record.server}.{record.name}: {record.status}, {record.seconds:.1f} s]\n"
            self._narration.append(replies.ReasoningDelta(line))

    async def events(self, stream: AnswerStream | None) -> ReplyEvents:
        """Yield the run's events; `stream` is not used, because the run must see all events."""
        del stream
        try:
            async with aclosing(carry_out(self._run, self, self._tools)) as batches:
                async for batch in batches:
                    narration, self._narration = self._narration, []
                    visible = [
                        *narration,
                        *self._report_new_rounds(),
                        *self._report_all_rounds(batch),
                    ]
                    self._record_sent(visible)
                    self._store_rounds(visible)
                    yield visible
        finally:
            if self.received.recorder is not None:
                self.received.recorder.end_run(self._run.config, self._run.rounds)

    @property
    def _reports(self) -> RoundReports:
        return self.planned.resolved.request.round_reports

    def _report_new_rounds(self) -> Sequence[replies.ReplyEvent]:
        """Report the rounds since the last report, if the client requested a report per round."""
        new_messages = self._run.added[self._shown_messages :]
        self._shown_messages += len(new_messages)
        new_messages = self._without_built_in(new_messages)
        rounds = tuple(
            message for message in new_messages if message.calls or message.role == "tool"
        )
        if not (rounds and self._reports is RoundReports.AS_MADE):
            return ()
        servers = {served.tool.name: served.server for served in self._offered}
        return (describe_rounds(rounds, servers),)

    def _report_all_rounds(
        self, batch: Sequence[replies.ReplyEvent]
    ) -> Sequence[replies.ReplyEvent]:
        """Add all rounds before the final event, if the client requested one report at the end."""
        if not (_is_end(batch) and self._reports is RoundReports.AT_END):
            return batch
        added = self._without_built_in(self._run.added)
        if not any(message.calls for message in added):
            return batch
        last = added[-1]
        is_answer = last.role == "assistant" and not last.calls
        return [*batch[:-1], describe_rounds(added[:-1] if is_answer else added), batch[-1]]

    def _without_built_in(self, messages: Messages) -> Messages:
        """Remove replies that call only Temper's own tools, and the results of these calls."""
        names = self._run.config.built_in
        internal = [message for message in messages if _calls_only(message, names)]
        ids = {call.id for message in internal for call in message.calls}
        return tuple(
            message
            for message in messages
            if not _calls_only(message, names) and message.tool_call_id not in ids
        )

    def _store_rounds(self, batch: Sequence[replies.ReplyEvent]) -> None:
        """Store the rounds of a run, if it called only Temper's own tools.

        Rounds with other tools are reported to the client, and the client stores them.
        """
        if self._built_in is None:
            return
        self._built_in.rounds.collect(batch)
        if not _is_end(batch):
            return
        rounds, names = self._run.rounds, self._run.config.built_in
        if all(outcome.call.name in names for round_ in rounds for outcome in round_.outcomes):
            self._built_in.rounds.keep(self._run.added)

    def cut_off(self, failure: TemperError) -> Sequence[replies.ReplyEvent]:
        """Return the final events without calls: the client cannot run the operator's tools."""
        return [event for event in super().cut_off(failure) if not isinstance(event, _CALL_EVENTS)]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of all turns and calls, but `Compacted` only for the last turn's prompt."""
        earlier = (fact for turn in self._turns.turns[:-1] for fact in turn.facts)
        facts: list[Fact] = [fact for fact in earlier if not isinstance(fact, Compacted)]
        return (*facts, *self.turn.facts, *self._run.facts, *self._executed, *self._window_facts)


def _is_end(batch: Sequence[replies.ReplyEvent]) -> bool:
    return bool(batch) and isinstance(batch[-1], replies.ReplyFinished)


def _calls_only(message: Message, names: frozenset[str]) -> bool:
    return bool(message.calls) and all(call.name in names for call in message.calls)
