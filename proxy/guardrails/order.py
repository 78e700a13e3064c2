"""Whether a valid call may be made now: loops, prerequisites and terminal tools."""

from proxy.conversation.json import JsonObject
from proxy.conversation.workflows import NO_RULES
from proxy.guardrails import nudges
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.steps import unmet_prerequisites
from proxy.guardrails.verdict import Defect


def object_to(
    name: str, arguments: JsonObject, offer: OfferedTools, *, insistence: int = 0
) -> tuple[Defect, str] | None:
    """Return why a call must wait and what to tell the model; None if it need not.

    `insistence` counts the earlier objections in this turn.
    """
    loop = offer.loop
    if loop is not None and (loop.name, loop.arguments) == (name, arguments):
        return Defect.LOOP, nudges.describe_loop(loop.name, loop.times)
    if offer.workflow is NO_RULES:
        return None
    unmet = unmet_prerequisites(name, arguments, offer.workflow, offer.completed)
    steps = tuple(one.needs for one in unmet)
    if not steps and name in offer.workflow.terminal_tools:
        steps = offer.missing_steps
    if not steps:
        return None
    return Defect.STEP_MISSING, nudges.describe_missing_steps(name, steps, insistence)


def is_free(name: str, offer: OfferedTools) -> bool:
    """Return whether no rule of order can object to a call of this tool."""
    is_looping = offer.loop is not None and offer.loop.name == name
    has_prerequisites = any(one.tool == name for one in offer.workflow.prerequisites)
    is_early = name in offer.workflow.terminal_tools and bool(offer.missing_steps)
    return not (is_looping or has_prerequisites or is_early)
