"""The member `temper` of a request, the same in every dialect: options for Temper itself."""

from pydantic import BaseModel, ConfigDict, StrictBool

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.conversation.workflows import NO_RULES, Workflow, contradictions
from proxy.dialects.wire_schema import check_offered
from proxy.errors import InvalidRequest


class TemperOptions(BaseModel):
    """Options for Temper, which are not sent to engines."""

    model_config = ConfigDict(extra="forbid")

    workflow: Workflow | None = None
    tool_rounds: StrictBool | None = None


_MEMBER = "temper.workflow"


def workflow_in(
    options: TemperOptions | None, messages: tuple[Message, ...], tools: tuple[Tool, ...]
) -> Workflow:
    """Return the rules of a request; raises `InvalidRequest` for contradictory rules.

    Rules may name tools that are not offered in this request but were called earlier.
    """
    if options is None or options.workflow is None:
        return NO_RULES
    rules = options.workflow
    for path, problem in contradictions(rules):
        raise InvalidRequest(f"These rules cannot be satisfied: {problem}.", f"{_MEMBER}.{path}")
    offered = dict.fromkeys(tool.name for tool in tools)
    called = {call.name for message in messages for call in message.calls}
    for path, name in rules.tools():
        if offered and name not in called:
            check_offered(name, offered, f"{_MEMBER}.{path}")
    return rules
