"""How a client lets the model use tools: at will, not at all, one by name, or some of them."""

from typing import TypeAlias

from proxy.conversation.tools import NamedTool, Tool, ToolChoice, ToolUse
from proxy.dialects.openai_chat.schema import Choice, ChosenTool, SeveralTools
from proxy.errors import InvalidRequest

_PARAM = "tool_choice"

# How tools may be used, and the only ones that may be called, where the client says so.
ReadChoice: TypeAlias = tuple[ToolChoice, frozenset[str] | None]


def read_choice(wanted: Choice | None, tools: tuple[Tool, ...]) -> ReadChoice:
    """Read a choice among these tools; raises `InvalidRequest` for one that they do not leave."""
    choice = wanted or "auto"
    if not tools and choice not in ("auto", "none"):
        raise InvalidRequest("It asks for a tool call, but `tools` is empty.", _PARAM)
    match choice:
        case ChosenTool():
            return NamedTool(_name_in(choice, tools, _PARAM)), None
        case SeveralTools(allowed_tools=some):
            param = f"{_PARAM}.allowed_tools.tools"
            names = [
                _name_in(one, tools, f"{param}.{place}") for place, one in enumerate(some.tools)
            ]
            return ToolUse(some.mode), frozenset(names)
        case _:
            return ToolUse(choice), None


def _name_in(choice: ChosenTool, tools: tuple[Tool, ...], param: str) -> str:
    name = choice.function.name
    names = [tool.name for tool in tools]
    if name not in names:
        known = ", ".join(names)
        problem = f"There is no tool {name!r} among the offered ones: {known}."
        raise InvalidRequest(problem, f"{param}.function.name")
    return name
