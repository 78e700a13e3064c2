"""Whether a valid call may be made now: loops, prerequisites and terminal tools."""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.guardrails import nudges
from proxy.guardrails.offer import Offer
from proxy.guardrails.steps import missing_steps, unmet_prerequisites
from proxy.guardrails.verdict import Defect


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a call must wait, and what to tell the model."""

    defect: Defect
    problem: str


def object_to(
    name: str, arguments: JsonObject, offer: Offer, *, insistence: int = 0
) -> Objection | None:
    """Judge the order of a call; `insistence` counts the objections made in this turn before."""
    loop = offer.loop
    if loop is not None and (loop.name, loop.arguments) == (name, arguments):
        return Objection(Defect.LOOP, nudges.looping(loop.name, loop.times))
    unmet = unmet_prerequisites(name, arguments, offer.workflow, offer.completed)
    if unmet:
        needs = [one.needs for one in unmet]
        return Objection(Defect.STEP_MISSING, nudges.steps_first(name, needs, insistence))
    if name in offer.workflow.terminal_tools:
        steps = missing_steps(offer.workflow, offer.completed)
        if steps:
            return Objection(Defect.STEP_MISSING, nudges.steps_first(name, steps, insistence))
    return None
