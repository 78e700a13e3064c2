"""The Python API of Temper: `from temper import Agent, Model, tool`.

A module is imported when one of its names is first used, so `import temper` takes no time. The
names in `__all__` are stable between versions; their modules, in the package `proxy`, are not.
`__main__` is the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.agents.agent import Agent
    from proxy.agents.background import LocalServer, local_server
    from proxy.agents.foreign import GuardedAnswer, GuardedTurn, Guardrails
    from proxy.agents.guard_parts import Checked, ErrorTracker, ReplyValidator, StepEnforcer
    from proxy.agents.model import Model
    from proxy.agents.results import (
        AskedAgain,
        CallDelta,
        Finished,
        Progress,
        RunEvent,
        RunResult,
        Text,
        Thought,
        Usage,
    )
    from proxy.agents.stream import Hooks, RunStream
    from proxy.conversation.messages import Message
    from proxy.conversation.tools import ToolCall
    from proxy.conversation.workflows import Prerequisite, Workflow
    from proxy.errors import (
        BackendFailed,
        BackendRefused,
        BackendReplyInvalid,
        BackendSpokeNonsense,
        BackendTimedOut,
        BackendUnavailable,
        ContextOverflow,
        GuardrailsExhausted,
        InvalidConfiguration,
        InvalidRequest,
        NoValidReply,
        ProcessFailed,
        RoundsExhausted,
        RunCancelled,
        RunStopped,
        StepsSkipped,
        TemperError,
        ToolFailed,
        ToolRetry,
        ToolsFailed,
    )
    from proxy.facts import Compacted
    from proxy.hardware.snapshot import detect_hardware
    from proxy.tools.execution import Limits
    from proxy.tools.executor import (
        Added,
        Executor,
        Outcome,
        Round,
        Status,
        ToolFinished,
        ToolStarted,
    )
    from proxy.tools.function import FunctionTool, ToolContext, respond_tool, tool
    from proxy.tools.run import Stop
    from proxy.tools.toolset import Toolset
    from proxy.tools.transcript import Conversation

__all__ = [
    "Added",
    "Agent",
    "AskedAgain",
    "BackendFailed",
    "BackendRefused",
    "BackendReplyInvalid",
    "BackendSpokeNonsense",
    "BackendTimedOut",
    "BackendUnavailable",
    "CallDelta",
    "Checked",
    "Compacted",
    "ContextOverflow",
    "Conversation",
    "ErrorTracker",
    "Executor",
    "Finished",
    "FunctionTool",
    "GuardedAnswer",
    "GuardedTurn",
    "Guardrails",
    "GuardrailsExhausted",
    "Hooks",
    "InvalidConfiguration",
    "InvalidRequest",
    "Limits",
    "LocalServer",
    "Message",
    "Model",
    "NoValidReply",
    "Outcome",
    "Prerequisite",
    "ProcessFailed",
    "Progress",
    "ReplyValidator",
    "Round",
    "RoundsExhausted",
    "RunCancelled",
    "RunEvent",
    "RunResult",
    "RunStopped",
    "RunStream",
    "Status",
    "StepEnforcer",
    "StepsSkipped",
    "Stop",
    "TemperError",
    "Text",
    "Thought",
    "ToolCall",
    "ToolContext",
    "ToolFailed",
    "ToolFinished",
    "ToolRetry",
    "ToolStarted",
    "ToolsFailed",
    "Toolset",
    "Usage",
    "Workflow",
    "detect_hardware",
    "local_server",
    "respond_tool",
    "tool",
]

# public names by the module of `proxy` that defines them
_MODULES = {
    "agents.agent": "Agent",
    "agents.background": "LocalServer local_server",
    "agents.foreign": "GuardedAnswer GuardedTurn Guardrails",
    "agents.guard_parts": "Checked ErrorTracker ReplyValidator StepEnforcer",
    "agents.model": "Model",
    "agents.results": (
        "AskedAgain CallDelta Finished Progress RunEvent RunResult Text Thought Usage"
    ),
    "agents.stream": "Hooks RunStream",
    "conversation.messages": "Message",
    "conversation.tools": "ToolCall",
    "conversation.workflows": "Prerequisite Workflow",
    "errors": (
        "BackendFailed BackendRefused BackendReplyInvalid BackendSpokeNonsense BackendTimedOut "
        "BackendUnavailable ContextOverflow GuardrailsExhausted InvalidConfiguration "
        "InvalidRequest NoValidReply ProcessFailed RoundsExhausted RunCancelled "
        "RunStopped StepsSkipped TemperError ToolFailed "
        "ToolRetry ToolsFailed"
    ),
    "facts": "Compacted",
    "hardware.snapshot": "detect_hardware",
    "tools.execution": "Limits",
    "tools.executor": "Added Executor Outcome Round Status ToolFinished ToolStarted",
    "tools.function": "FunctionTool ToolContext respond_tool tool",
    "tools.run": "Stop",
    "tools.toolset": "Toolset",
    "tools.transcript": "Conversation",
}
_MODULE_OF = {
    name: f"proxy.{module}" for module, names in _MODULES.items() for name in names.split()
}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
