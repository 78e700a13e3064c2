"""Temper in a program: `from temper import Agent, Model, tool`.

What is behind a name is imported when it is first used, so `import temper` costs nothing. The names
of `__all__` stay from version to version; the package `proxy` behind them may change. `__main__`
is the command.
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
        Finished,
        Progress,
        RunEvent,
        RunResult,
        Text,
        Thought,
        Usage,
    )
    from proxy.agents.stream import Hooks, RunStream
    from proxy.conversation.tools import ToolCall
    from proxy.conversation.workflows import Prerequisite, Workflow
    from proxy.errors import (
        BackendFailed,
        ContextOverflow,
        GuardrailsExhausted,
        InvalidConfiguration,
        InvalidRequest,
        NoValidReply,
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
    from proxy.tools.function import FunctionTool, ToolContext, tool
    from proxy.tools.run import Stop
    from proxy.tools.toolset import Toolset
    from proxy.tools.transcript import Conversation

__all__ = [
    "Added",
    "Agent",
    "AskedAgain",
    "BackendFailed",
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
    "Model",
    "NoValidReply",
    "Outcome",
    "Prerequisite",
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
    "local_server",
    "tool",
]

# module of `proxy`: its public names
_HOMES = {
    "agents.agent": "Agent",
    "agents.background": "LocalServer local_server",
    "agents.foreign": "GuardedAnswer GuardedTurn Guardrails",
    "agents.guard_parts": "Checked ErrorTracker ReplyValidator StepEnforcer",
    "agents.model": "Model",
    "agents.results": "AskedAgain Finished Progress RunEvent RunResult Text Thought Usage",
    "agents.stream": "Hooks RunStream",
    "conversation.tools": "ToolCall",
    "conversation.workflows": "Prerequisite Workflow",
    "errors": (
        "BackendFailed ContextOverflow GuardrailsExhausted InvalidConfiguration "
        "InvalidRequest NoValidReply RoundsExhausted RunCancelled "
        "RunStopped StepsSkipped TemperError ToolFailed "
        "ToolRetry ToolsFailed"
    ),
    "facts": "Compacted",
    "tools.execution": "Limits",
    "tools.executor": "Added Executor Outcome Round Status ToolFinished ToolStarted",
    "tools.function": "FunctionTool ToolContext tool",
    "tools.run": "Stop",
    "tools.toolset": "Toolset",
    "tools.transcript": "Conversation",
}
_HOME_OF = {name: f"proxy.{home}" for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # or any name at all would be there for type checkers

    def __getattr__(name: str) -> object:
        """Import what a public name stands for (PEP 562)."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
