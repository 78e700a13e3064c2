"""The rules of order that a client or an operator writes: read, and checked against the request."""

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow, contradictions
from proxy.dialects.openai_chat.schema import TemperOptions, WorkflowRules
from proxy.errors import InvalidRequest

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
    offered = [tool.name for tool in tools]
    called = {call.name for message in messages for call in message.calls}
    for place, name in rules.tools():
        if offered and name not in offered and name not in called:
            problem = f"There is no tool {name!r} among the offered ones: {', '.join(offered)}."
            raise InvalidRequest(problem, f"{_MEMBER}.{place}")
    return rules
