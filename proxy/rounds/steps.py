"""What a run asks of whoever carries it out."""

from typing import TypeAlias

import msgspec

from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall


class Ask(msgspec.Struct, frozen=True):
    """Put this to the model; when it `is_last`, tools may no longer be called."""

    request: Request
    is_last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Execute these calls, of the round of that number."""

    calls: tuple[ToolCall, ...]
    round: int


Step: TypeAlias = Ask | Execute
