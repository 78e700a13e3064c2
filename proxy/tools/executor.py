"""The executor protocol, the outcome of a call, and the events of a run."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from proxy import bounds
from proxy.conversation.messages import Message, tool_result
from proxy.conversation.tools import Tool, ToolCall


class Status(Enum):
    """The end of a call.

    `REFUSED`: a person or a rule did not allow the execution of the call. `LOST`: the connection to
    the tool server ended, so it is unknown whether the call had an effect.
    """

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a call; `text` is the result that the model reads.

    `value` is the return value of the tool. `display` is a text for people, None if the tool has no
    format for it. `seconds` is the duration of the call, and `error` is the exception that the tool
    raised. If a correct call finds nothing, such as a search without hits, it is a failure that is
    not `counted`: the call does not complete a step of the workflow, but it does not count towards
    the limit of failed rounds either.
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
    """A reply with calls that were executed: the text before the calls, and their outcomes."""

    text: str
    outcomes: tuple[Outcome, ...]


class ToolStarted(msgspec.Struct, frozen=True):
    """A call is about to be executed, in the round with this number."""

    call: ToolCall
    round: int


class ToolFinished(msgspec.Struct, frozen=True):
    """A call has ended."""

    outcome: Outcome
    round: int


class Added(msgspec.Struct, frozen=True):
    """A message was added to the conversation.

    `round` is the number of tool rounds so far, including the round of this message; 0 for the
    prompt.
    """

    message: Message
    round: int = 0


RoundEvent: TypeAlias = ToolStarted | ToolFinished | Added


class RoundContext(msgspec.Struct, frozen=True):
    """The position of calls in a run: the `round`, counted from 1, and the earlier messages.

    `result_chars` is the maximum length of a result. `finished` is called after each call, while
    other calls may still run, so that its outcome is not lost if the run is canceled.
    """

    round: int = 1
    messages: tuple[Message, ...] = ()
    result_chars: int = bounds.RESULT_CHARACTERS
    finished: Callable[[Outcome], None] = lambda _outcome: None


class Executor(Protocol):
    """An object that offers tools and executes their calls."""

    def specs(self) -> Sequence[Tool]:
        """Return the available tools, always in the same order and with the same bytes."""
        ...

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Execute the calls of one reply and return an outcome for each, in order.

        The failure of a tool is an outcome, not an exception. Canceling this coroutine cancels the
        calls.
        """
        ...
