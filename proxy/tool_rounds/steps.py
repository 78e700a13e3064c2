"""What a run asks of whoever carries it out."""

from typing import TypeAlias

import msgspec

from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall
from proxy.tool_rounds.executor import RoundContext


class Ask(msgspec.Struct, frozen=True):
    """Put this to the model; when it `is_last`, tools may no longer be called."""

    request: Request
    is_last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Execute these calls."""

    calls: tuple[ToolCall, ...]
    context: RoundContext


Step: TypeAlias = Ask | Execute
