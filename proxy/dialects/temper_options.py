"""What clients say to Temper itself, in every language: the member `temper` of a request.

Operators write the rules of order in the same form.
"""

from pydantic import BaseModel, ConfigDict, StrictBool, StrictStr

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow, contradictions
from proxy.dialects.wire_schema import check_offered
from proxy.errors import InvalidRequest


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NeededCall(_Strict):
    """`tool` may only be called after `needs`, with the same `argument` if one is named."""

    tool: StrictStr
    needs: StrictStr
    argument: StrictStr | None = None


class WorkflowRules(_Strict):
    """In which order tools may be called."""

    required_steps: list[StrictStr] = []
    prerequisites: list[NeededCall] = []
    terminal_tools: list[StrictStr] = []


class TemperOptions(_Strict):
    """What a client tells Temper and no backend."""

    workflow: WorkflowRules | None = None
    tool_rounds: StrictBool | None = None


_MEMBER = "temper.workflow"


def workflow_of(rules: WorkflowRules) -> Workflow:
    """Read rules; they may speak of tools that are not offered this time."""
    return Workflow(
        tuple(rules.required_steps),
        tuple(Prerequisite(one.tool, one.needs, one.argument) for one in rules.prerequisites),
        tuple(rules.terminal_tools),
    )


def workflow_in(
    options: TemperOptions | None, messages: tuple[Message, ...], tools: tuple[Tool, ...]
) -> Workflow:
    """Read a request's own rules; raises `InvalidRequest` where its model cannot keep them."""
    if options is None or options.workflow is None:
        return NO_RULES
    rules = workflow_of(options.workflow)
    for place, problem in contradictions(rules):
        raise InvalidRequest(f"These rules cannot be kept: {problem}.", f"{_MEMBER}.{place}")
    offered = dict.fromkeys(tool.name for tool in tools)
    called = {call.name for message in messages for call in message.calls}
    for place, name in rules.tools():
        if offered and name not in called:
            check_offered(name, offered, f"{_MEMBER}.{place}")
    return rules
