"""Temper: an OpenAI-compatible proxy that makes tool calling with local models reliable.

`__main__` is the command. The rooms, from the edge inwards: cli; doctor, agents and scaling; api;
serving; settings; mcp; processes and state; observability; profiles and hardware; backends; tools;
inference and tool_rounds; guardrails, context and dialects; conversation.
`engine` puts a turn's questions to a backend, `runner` carries out rounds of tools, `errors` is
everything that can go wrong, `facts` what happened to a request. docs/architecture.md is the map.

Programs import from here, and by the names of `__all__` only; what is behind a name is imported
when it is first used, so that `import proxy` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.agents.agent import Agent as Agent
    from proxy.agents.background import LocalServer as LocalServer
    from proxy.agents.background import local_server as local_server
    from proxy.agents.foreign import GuardedAnswer as GuardedAnswer
    from proxy.agents.foreign import GuardedTurn as GuardedTurn
    from proxy.agents.foreign import Guardrails as Guardrails
    from proxy.agents.model import Model as Model
    from proxy.agents.results import AskedAgain as AskedAgain
    from proxy.agents.results import Finished as Finished
    from proxy.agents.results import RunEvent as RunEvent
    from proxy.agents.results import RunResult as RunResult
    from proxy.agents.results import Text as Text
    from proxy.agents.results import Thought as Thought
    from proxy.agents.results import Usage as Usage
    from proxy.agents.stream import Hooks as Hooks
    from proxy.agents.stream import RunStream as RunStream
    from proxy.conversation.tools import ToolCall as ToolCall
    from proxy.conversation.workflows import Prerequisite as Prerequisite
    from proxy.conversation.workflows import Workflow as Workflow
    from proxy.errors import BackendFailed as BackendFailed
    from proxy.errors import ContextOverflow as ContextOverflow
    from proxy.errors import GuardrailsExhausted as GuardrailsExhausted
    from proxy.errors import InvalidConfiguration as InvalidConfiguration
    from proxy.errors import InvalidRequest as InvalidRequest
    from proxy.errors import NoValidReply as NoValidReply
    from proxy.errors import RoundsExhausted as RoundsExhausted
    from proxy.errors import RunCancelled as RunCancelled
    from proxy.errors import RunStopped as RunStopped
    from proxy.errors import StepsSkipped as StepsSkipped
    from proxy.errors import TemperError as TemperError
    from proxy.errors import ToolFailed as ToolFailed
    from proxy.errors import ToolRetry as ToolRetry
    from proxy.errors import ToolsFailed as ToolsFailed
    from proxy.tool_rounds.executor import Added as Added
    from proxy.tool_rounds.executor import Executor as Executor
    from proxy.tool_rounds.executor import Outcome as Outcome
    from proxy.tool_rounds.executor import Round as Round
    from proxy.tool_rounds.executor import Status as Status
    from proxy.tool_rounds.executor import ToolFinished as ToolFinished
    from proxy.tool_rounds.executor import ToolStarted as ToolStarted
    from proxy.tool_rounds.terms import Stop as Stop
    from proxy.tool_rounds.transcript import Conversation as Conversation
    from proxy.tools.execution import Limits as Limits
    from proxy.tools.function import FunctionTool as FunctionTool
    from proxy.tools.function import ToolContext as ToolContext
    from proxy.tools.function import tool as tool
    from proxy.tools.toolset import Toolset as Toolset

_HOMES = {
    "agents.agent": ("Agent",),
    "agents.background": ("LocalServer", "local_server"),
    "agents.foreign": ("GuardedAnswer", "GuardedTurn", "Guardrails"),
    "agents.model": ("Model",),
    "agents.results": (
        *("AskedAgain", "Finished", "RunEvent", "RunResult", "Text", "Thought", "Usage"),
    ),
    "agents.stream": ("Hooks", "RunStream"),
    "conversation.tools": ("ToolCall",),
    "conversation.workflows": ("Prerequisite", "Workflow"),
    "errors": (
        *("BackendFailed", "ContextOverflow", "GuardrailsExhausted", "InvalidConfiguration"),
        *(
            "InvalidRequest",
            "NoValidReply",
            "RoundsExhausted",
            "RunCancelled",
            "RunStopped",
            "StepsSkipped",
        ),
        *("TemperError", "ToolFailed", "ToolRetry", "ToolsFailed"),
    ),
    "tool_rounds.executor": (
        *("Added", "Executor", "Outcome", "Round", "Status", "ToolFinished", "ToolStarted"),
    ),
    "tool_rounds.terms": ("Stop",),
    "tool_rounds.transcript": ("Conversation",),
    "tools.execution": ("Limits",),
    "tools.function": ("FunctionTool", "ToolContext", "tool"),
    "tools.toolset": ("Toolset",),
}
_HOME_OF = {name: f"proxy.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


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
