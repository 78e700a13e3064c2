"""What a run tells of its tools and its history while it goes on."""

from typing import TypeAlias

import msgspec

from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall
from proxy.tool_rounds.outcomes import Outcome


class ToolStarted(msgspec.Struct, frozen=True):
    """A call is about to be run, in the round of that number."""

    call: ToolCall
    round: int


class ToolFinished(msgspec.Struct, frozen=True):
    """A call has come to an end."""

    outcome: Outcome
    round: int


class Added(msgspec.Struct, frozen=True):
    """A message was added to the history for good."""

    message: Message


RoundEvent: TypeAlias = ToolStarted | ToolFinished | Added
