"""Carries runs out: puts their questions as turns, and has their calls executed.

The sibling of `engine`. It knows neither HTTP nor Python functions nor tool servers.
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

logger = logging.getLogger(__name__)

Notice: TypeAlias = Callable[[RoundEvent], Awaitable[None]]


class TurnSource(Protocol):
    """Makes turns of what a run asks, and sends them to a backend."""

    async def begin(self, ask: Ask) -> Turn:
        """Prepare and fit the next request; raises `ContextOverflow` if nothing fits."""

    async def shorter(self, overflow: ContextOverflow) -> Turn | None:
        """Make another turn after a prompt proved too long; None if that does not help."""

    def answer(self, turn: Turn) -> ReplyEvents:
        """Stream what the turn lets out; closing the iterator cancels the work upstream.

        A slot of the backend is waited for, and held until it ends: no run has one while its tools
        run.
        """


async def ignore_event(_: RoundEvent) -> None: ...


async def carry_out(
    run: Run, turns: TurnSource, executor: Executor, notice: Notice = ignore_event
) -> ReplyEvents:
    """Stream the client's events of a run, to its end.

    What its tools do and what it commits is told to `notice`. Closing the iterator closes the
    generation, or cancels the tools, and so does an error; then the run is over, with all rounds
    that it had, and `run.added` may have grown by the notes for the calls of the last one.
    Raises what asking raises: `BackendFailed`, `InvalidRequest` and `GuardrailsExhausted` kinds.
    """
    told = 0
    try:
        while (step := run.next_step()) is not None:
            match step:
                case Ask():
                    async with aclosing(_answer(run, turns, step)) as batches:
                        async for batch in batches:
                            yield batch
                case Execute():
                    if shown := await _execute(run, executor, step, notice):
                        yield shown
            for message in run.added[told:]:
                told += 1
                await notice(Added(message))
    finally:
        run.cancel()


async def _answer(run: Run, turns: TurnSource, ask: Ask) -> ReplyEvents:
    """Ask until there is an answer; a prompt that proves too long is shortened."""
    turn: Turn | None = await turns.begin(ask)
    while turn is not None:
        try:
            async with aclosing(turns.answer(turn)) as batches:
                async for batch in batches:
                    # the defect with which the ladder ended, if the reply is the last one
                    is_end = bool(batch) and isinstance(batch[-1], ReplyFinished)
                    defect = last_defect(turn.facts) if is_end else None
                    if shown := run.receive(batch, defect=defect):
                        yield shown
            return
        except ContextOverflow as overflow:
            turn = await turns.shorter(overflow)
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
    begun = clock()
    outcomes = await executor.execute(step.calls, replace(step.context, finished=run.finish))
    shown = run.finish_round(outcomes)
    ran = ", ".join(f"{one.call.name} {one.status.value} {one.seconds:.1f} s" for one in outcomes)
    logger.info("round %d of tools took %.1f s: %s", number, clock() - begun, ran)
    for outcome in outcomes:
        await notice(ToolFinished(outcome, number))
    return shown
