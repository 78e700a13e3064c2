"""The configuration of one tool server, and the result of one call; without details of MCP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from proxy import bounds
from proxy.conversation.tools import ToolCall
from proxy.tools.executor import Outcome, Status

ALL = "*"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server: a `url` with `headers`, or a `command` that starts it.

    `tools` are the names of the offered tools, or `ALL`. Calls of the tools in `ask` need approval.
    `prefix` is added to the names of all tools. With a `digest`, the tools are offered only while
    their definitions have this digest.
    """

    name: str
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    cwd: str = ""
    tools: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    prefix: str = ""
    digest: str = ""

    @property
    def transport(self) -> str:
        """The value of OpenTelemetry's attribute `network.transport`."""
        return "tcp" if self.url is not None else "pipe"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits: `parallel` concurrent calls of a reply; `seconds` and `result_chars` of each call."""

    parallel: int = 8
    seconds: float = 60.0
    result_chars: int = bounds.RESULT_CHARACTERS


LOST = "Error: the tool server went away; whether the call had an effect is not known"
DISCONNECTED = (
    "Error: the tool server was disconnected, because it {}; "
    "whether the call had an effect is not known"
)
UNREACHABLE = "Error: the tool server cannot be reached; the call was not made"
WITHDRAWN = "Error: this tool is no longer offered; the call was not made"


class ToolCallResult(msgspec.Struct, frozen=True):
    """The result of a call: the text for the model, the status, and the kind of a failure.

    A failure with `is_counted` False does not count as a failed round, because its cause is not the
    call itself, for example a lost connection.
    """

    text: str
    status: Status = Status.DONE
    error: str | None = None
    is_counted: bool = True

    def outcome(self, call: ToolCall, seconds: float) -> Outcome:
        """Combine the result with its call and duration."""
        return Outcome(call, self.text, self.status, seconds=seconds, counted=self.is_counted)


TOOL_WITHDRAWN = ToolCallResult(WITHDRAWN, Status.FAILED, "withdrawn", is_counted=False)
