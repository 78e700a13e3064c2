"""Whether a valid call may be made now: loops, prerequisites and terminal tools."""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.guardrails import nudges
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.steps import unmet_prerequisites
from proxy.guardrails.verdict import Defect


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a call must wait, and what to tell the model."""

    defect: Defect
    problem: str


def object_to(
    name: str, arguments: JsonObject, offer: OfferedTools, *, insistence: int = 0
) -> Objection | None:
    """Judge the order of a call; `insistence` counts the objections made in this turn before."""
    loop = offer.loop
    if loop is not None and (loop.name, loop.arguments) == (name, arguments):
        return Objection(Defect.LOOP, nudges.describe_loop(loop.name, loop.times))
    unmet = unmet_prerequisites(name, arguments, offer.workflow, offer.completed)
    if unmet:
        needs = [one.needs for one in unmet]
        return Objection(
            Defect.STEP_MISSING, nudges.describe_missing_steps(name, needs, insistence)
        )
    if name in offer.workflow.terminal_tools:
        steps = offer.missing_steps
        if steps:
            return Objection(
                Defect.STEP_MISSING, nudges.describe_missing_steps(name, steps, insistence)
            )
    return None


def is_free(name: str, offer: OfferedTools) -> bool:
    """Return whether no rule of order can object to a call of this tool, whatever its arguments."""
    is_looping = offer.loop is not None and offer.loop.name == name
    has_prerequisites = any(one.tool == name for one in offer.workflow.prerequisites)
    is_early = name in offer.workflow.terminal_tools and bool(offer.missing_steps)
    return not (is_looping or has_prerequisites or is_early)
