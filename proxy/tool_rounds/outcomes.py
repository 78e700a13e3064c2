"""What became of the calls of one reply."""

from enum import Enum

import msgspec

from proxy.conversation.messages import Message, tool_result
from proxy.conversation.tools import ToolCall


class Status(Enum):
    """How a call ended.

    `REFUSED`: it was not run, because a person or a rule said no. `LOST`: whether it had an effect
    is not known, as whoever ran it went away.
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
    of the kind; `seconds` is how long it ran. A failure that is not `counted` says that the call
    was right and there is nothing there: the step is not taken, but nobody did anything wrong.
    """

    call: ToolCall
    text: str
    status: Status = Status.DONE
    value: object = None
    display: str | None = None
    seconds: float = 0.0
    counted: bool = True

    @property
    def is_failure(self) -> bool:
        """Whether the step that the call is was not taken."""
        return self.status is not Status.DONE

    @property
    def message(self) -> Message:
        """The result as the model reads it."""
        return tool_result(self.call.id, self.text, failed=self.is_failure)


class Round(msgspec.Struct, frozen=True):
    """One reply with calls that were run: what was said before them, and what came of them."""

    text: str
    outcomes: tuple[Outcome, ...]
