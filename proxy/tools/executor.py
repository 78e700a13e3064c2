"""The contract of whoever runs tools, what becomes of the calls, and what a run tells meanwhile."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from proxy import bounds
from proxy.conversation.messages import Message, tool_result
from proxy.conversation.tools import Tool, ToolCall


class Status(Enum):
    """How a call ended.

    `REFUSED`: it was not run, because a person or a rule said no. `LOST`: whether it had an effect
    is unknown, because whoever ran it disappeared.
    """

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a call: the `text` that the model reads.

    `value` is what the tool returned and `display` how people see it, None where there is nothing
    of the kind; `seconds` is how long it ran, and `error` what it raised. A failure that is not
    `counted` says that the call was right and there is nothing there: the step is not taken, but
    nobody did anything wrong.
    """

    call: ToolCall
    text: str
    status: Status = Status.DONE
    value: object = None
    display: str | None = None
    seconds: float = 0.0
    counted: bool = True
    error: Exception | None = None

    @property
    def is_failure(self) -> bool:
        """Whether the call does not count as a completed step."""
        return self.status is not Status.DONE

    @property
    def message(self) -> Message:
        return tool_result(self.call.id, self.text, failed=self.is_failure)


class Round(msgspec.Struct, frozen=True):
    """One reply whose calls were run: what was said before them, and their outcomes."""

    text: str
    outcomes: tuple[Outcome, ...]


class ToolStarted(msgspec.Struct, frozen=True):
    """A call is about to be run, in the round with that number."""

    call: ToolCall
    round: int


class ToolFinished(msgspec.Struct, frozen=True):
    """A call has ended."""

    outcome: Outcome
    round: int


class Added(msgspec.Struct, frozen=True):
    """A message was added to the history for good."""

    message: Message


RoundEvent: TypeAlias = ToolStarted | ToolFinished | Added


class RoundContext(msgspec.Struct, frozen=True):
    """Where in a run calls are made: the number of the `round`, from 1, and what was said so far.

    `result_chars` is the most characters that one result may have. `finished` is told of each call
    that is over while others go on: what it came to is known then, even if those are cancelled.
    """

    round: int = 1
    messages: tuple[Message, ...] = ()
    result_chars: int = bounds.RESULT_CHARACTERS
    finished: Callable[[Outcome], None] = lambda _outcome: None


class Executor(Protocol):
    """Runs the tools that it offers."""

    def specs(self) -> Sequence[Tool]:
        """Return the available tools, always in the same order and the same bytes."""
        ...

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Run the calls of one reply and return an outcome for each, in order.

        Nothing that a tool does raises. Cancelling this cancels the calls.
        """
        ...
