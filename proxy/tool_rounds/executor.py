"""The contract of whoever runs tools: functions of a program, or servers of tools."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool, ToolCall
from proxy.tool_rounds.outcomes import Outcome


def _unnoted(_: Outcome) -> None:
    pass


class RoundContext(msgspec.Struct, frozen=True):
    """Where in a run calls are made: the number of the `round`, from 1, and what was said so far.

    `result_chars` is the most characters that one result may have. `finished` is told of each call
    that is over while others go on: what it came to is known then, even if those are cancelled.
    """

    round: int = 1
    messages: tuple[Message, ...] = ()
    result_chars: int = 16_000
    finished: Callable[[Outcome], None] = _unnoted


class Executor(Protocol):
    """Runs the tools that it offers."""

    def specs(self) -> Sequence[Tool]:
        """Return the tools there are, always in the same order and the same bytes."""
        ...

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Run the calls of one reply and return an outcome for each, in their order.

        Nothing that a tool does raises. Cancelling it cancels the calls.
        """
        ...
