"""The configuration of one tool server, and the result of one call; independent of the protocol."""

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
    """One server: a `url`, with the `headers` that it needs, or a `command` that starts it.

    `tools` are the offered ones, `ALL` stands for each; those in `ask` need the consent of a
    person. `prefix` is put before their names. With a `digest`, tools are offered only if it is
    that of their definitions.
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
        """The transport, in the terms of OpenTelemetry."""
        return "tcp" if self.url is not None else "pipe"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of calls: `parallel` for one reply, `seconds` and `result_chars` for each."""

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


class Ended(msgspec.Struct, frozen=True):
    """The result of a call: the text for the model, the status, and a label of the failure."""

    text: str
    status: Status = Status.DONE
    error: str | None = None
    is_counted: bool = True

    def outcome(self, call: ToolCall, seconds: float) -> Outcome:
        """Return the outcome of `call`."""
        return Outcome(call, self.text, self.status, seconds=seconds, counted=self.is_counted)


GONE = Ended(WITHDRAWN, Status.FAILED, "withdrawn", is_counted=False)
