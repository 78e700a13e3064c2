"""What a program has called while its agent runs."""

import inspect
from collections.abc import Awaitable, Callable

import msgspec

from proxy.agents.results import RunEvent
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall


class Hooks(msgspec.Struct, frozen=True):
    """Functions of a program, async or not; what they raise ends the run.

    `on_message` gets each message that is committed, `on_chunk` all that is shown. `approve`
    decides about calls of tools that need it; without it they are refused.
    """

    on_message: Callable[[Message], object] | None = None
    on_chunk: Callable[[RunEvent], object] | None = None
    approve: Callable[[ToolCall], Awaitable[bool]] | None = None

    async def show(self, event: RunEvent) -> None:
        """Hand on what is shown."""
        if self.on_chunk is not None:
            await _finished(self.on_chunk(event))

    async def committed(self, message: Message) -> None:
        """Hand on a message."""
        if self.on_message is not None:
            await _finished(self.on_message(message))


async def _finished(outcome: object) -> None:
    if inspect.isawaitable(outcome):
        await outcome
