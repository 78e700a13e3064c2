"""What clients say to Temper itself, in every language: the member `temper` of a request."""

from pydantic import BaseModel, ConfigDict, StrictBool

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.conversation.workflows import NO_RULES, Workflow, contradictions
from proxy.dialects.wire_schema import check_offered
from proxy.errors import InvalidRequest


class TemperOptions(BaseModel):
    """What a client tells Temper and no backend."""

    model_config = ConfigDict(extra="forbid")

    workflow: Workflow | None = None
    tool_rounds: StrictBool | None = None


_MEMBER = "temper.workflow"


def workflow_in(
    options: TemperOptions | None, messages: tuple[Message, ...], tools: tuple[Tool, ...]
) -> Workflow:
    """Return a request's own rules; raises `InvalidRequest` where its model cannot keep them.

    They may speak of tools that are not offered this time, if these were called before.
    """
    if options is None or options.workflow is None:
        return NO_RULES
    rules = options.workflow
    for path, problem in contradictions(rules):
        raise InvalidRequest(f"These rules cannot be kept: {problem}.", f"{_MEMBER}.{path}")
    offered = dict.fromkeys(tool.name for tool in tools)
    called = {call.name for message in messages for call in message.calls}
    for path, name in rules.tools():
        if offered and name not in called:
            check_offered(name, offered, f"{_MEMBER}.{path}")
    return rules
