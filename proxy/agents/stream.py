"""A run as an async iterator of events; afterwards, `result` contains the result."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, cast

import msgspec

from proxy.agents.results import Finished, Output, Progress, RunEvent, RunResult
from proxy.agents.running import Running, Task
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall
from proxy.facts import Compacted
from proxy.tools.executor import Added


class Hooks(msgspec.Struct, frozen=True):
    """Callbacks of a program, async or not; their exceptions end the run.

    `on_message` receives each message that is added to the conversation, `on_chunk` each event, and
    `on_compact` each compaction of a prompt. `approve` decides about calls of tools that need
    approval; without `approve`, these calls are refused. `on_progress` receives the progress of
    each generation; it must not be async.
    """

    on_message: Callable[[Message], object] | None = None
    on_chunk: Callable[[RunEvent], object] | None = None
    approve: Callable[[ToolCall], Awaitable[bool]] | None = None
    on_compact: Callable[[Compacted], object] | None = None
    on_progress: Callable[[Progress], object] | None = None

    async def show(self, event: RunEvent) -> None:
        if self.on_chunk is not None:
            await _await_if_needed(self.on_chunk(event))

    async def compact(self, cut: Compacted) -> None:
        if self.on_compact is not None:
            await _await_if_needed(self.on_compact(cut))

    async def add_message(self, message: Message) -> None:
        if self.on_message is not None:
            await _await_if_needed(self.on_message(message))


async def _await_if_needed(outcome: object) -> None:
    if inspect.isawaitable(outcome):
        await outcome


class RunStream(AsyncIterable[RunEvent], Generic[Output]):
    """The events of a run; the run does not wait for the program to read them.

    Events are never retracted. If an exception ends the run, iterating raises it.
    """

    def __init__(self, task: Task[Output], hooks: Hooks) -> None:
        self._running = Running(task, self._emit, hooks.on_progress or (lambda _: None))
        self._hooks = hooks
        # unbounded, because the run must not wait for a program that does not read its events
        self._queue: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        self._work = asyncio.create_task(self._work_to_end())
        # `None` ends the queue. A `finally` in the task could not add it, because a task that is
        # canceled before it starts executes no code.
        self._work.add_done_callback(lambda _: self._queue.put_nowait(None))

    async def __aiter__(self) -> AsyncIterator[RunEvent]:
        while (event := await self._queue.get()) is not None:
            yield event
        self._queue.put_nowait(None)  # a second iteration ends at once
        await asyncio.wait((self._work,))
        self._work.result()

    @property
    def result(self) -> RunResult[Output]:
        """The result; raises RuntimeError before the run has ended."""
        if not self._work.done():
            raise RuntimeError("the run has not finished: read all its events first")
        return self._work.result()

    def cancel(self) -> None:
        """End the run after its current step; its last events and its result remain available."""
        self._running.cancel()

    async def close(self) -> None:
        """End the run at once."""
        self._work.cancel()
        await asyncio.wait((self._work,))
        if not self._work.cancelled():
            # otherwise asyncio would log the exception, although iterating raises it
            self._work.exception()

    async def _work_to_end(self) -> RunResult[Output]:
        result = await self._running.work()
        await self._emit(Finished(cast("RunResult[object]", result)))
        return result

    async def _emit(self, event: RunEvent) -> None:
        """Deliver an event to the hooks and to the iterator; raises exceptions of hooks."""
        if isinstance(event, Added):
            await self._hooks.add_message(event.message)
        elif isinstance(event, Compacted):
            await self._hooks.compact(event)
        await self._hooks.show(event)
        self._queue.put_nowait(event)


@asynccontextmanager
async def open_stream(
    task: Task[Output], hooks: Hooks, cancel: asyncio.Event | None
) -> AsyncGenerator[RunStream[Output], None]:
    """Start a run; leaving the block ends it."""
    stream = RunStream(task, hooks)

    async def cancel_when_set(cancel: asyncio.Event) -> None:
        await cancel.wait()
        stream.cancel()

    waiting = asyncio.create_task(cancel_when_set(cancel or asyncio.Event()))
    try:
        yield stream
    finally:
        waiting.cancel()
        await stream.close()
