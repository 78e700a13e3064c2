"""Drives a `Run`: sends its prompts as turns, and passes its calls to an `Executor`.

It does not depend on HTTP, tool servers or the functions of a program.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import ReplyEvent, ReplyFinished
from proxy.errors import ContextOverflow, GuardrailsExhausted
from proxy.facts import last_defect
from proxy.inference.turn import Turn
from proxy.tools.executor import Added, Executor, RoundEvent, ToolFinished, ToolStarted
from proxy.tools.run import Ask, Execute, Run

logger = logging.getLogger("proxy.runner")  # the name that the guides document

Notice: TypeAlias = Callable[[RoundEvent], Awaitable[None]]


class TurnSource(Protocol):
    """Makes turns from the prompts of a run, and sends them to a backend."""

    async def begin(self, ask: Ask) -> Turn:
        """Prepare and fit the next request; raises `ContextOverflow` if nothing fits."""

    async def shorten(self, overflow: ContextOverflow) -> Turn | None:
        """Return a turn with a shorter prompt, None if the prompt cannot be shortened further."""

    def answer(self, turn: Turn) -> ReplyEvents:
        """Stream the released events of a turn; closing the iterator cancels the upstream request.

        Waits for a slot of the backend, and releases the slot at the end of the turn, so that the
        run occupies no slot while its tools run.
        """


async def ignore_event(_: RoundEvent) -> None: ...


async def carry_out(
    run: Run, turns: TurnSource, executor: Executor, notice: Notice = ignore_event
) -> ReplyEvents:
    """Stream the events of a run for the client, until the run ends.

    `notice` receives every call and every committed message. An error, or closing the iterator,
    cancels the generation or the tools. `run.added` then has all completed rounds, and the
    unfinished round with notes in place of the missing results. Raises `BackendFailed`,
    `InvalidRequest`, `GuardrailsExhausted` and their subclasses.
    """
    notified = 0  # the number of messages that `notice` has received
    try:
        while (step := run.next_step()) is not None:
            match step:
                case Ask():
                    async with aclosing(_answer(run, turns, step)) as batches:
                        async for batch in batches:
                            yield batch
                case Execute():
                    if events := await _execute(run, executor, step, notice):
                        yield events
            for message in run.added[notified:]:
                notified += 1
                await notice(Added(message, len(run.rounds)))
    finally:
        run.cancel()  # completes an unfinished round with notes; no effect on a finished run


async def _answer(run: Run, turns: TurnSource, ask: Ask) -> ReplyEvents:
    """Send a prompt, and shorten it while it is too long."""
    turn: Turn | None = await turns.begin(ask)
    while turn is not None:
        try:
            async with aclosing(turns.answer(turn)) as batches:
                async for batch in batches:
                    # a defect after the last event means that the last retry was rejected as well
                    is_end = bool(batch) and isinstance(batch[-1], ReplyFinished)
                    defect = last_defect(turn.facts) if is_end else None
                    if events := run.receive(batch, defect=defect):
                        yield events
            return
        except ContextOverflow as overflow:
            turn = await turns.shorten(overflow)
            if turn is None:
                raise
        except GuardrailsExhausted as failure:
            run.fail(failure.defect, turn.explanation)
            raise


async def _execute(
    run: Run, executor: Executor, step: Execute, notice: Notice
) -> Sequence[ReplyEvent]:
    number = step.context.round
    for call in step.calls:
        await notice(ToolStarted(call, number))
    clock = asyncio.get_running_loop().time
    started = clock()
    outcomes = await executor.execute(step.calls, replace(step.context, finished=run.finish))
    events = run.finish_round(outcomes)
    calls = ", ".join(
        f"{outcome.call.name} {outcome.status.value} {outcome.seconds:.1f} s"
        for outcome in outcomes
    )
    logger.info("tool round %d took %.1f s: %s", number, clock() - started, calls)
    for outcome in outcomes:
        await notice(ToolFinished(outcome, number))
    return events
