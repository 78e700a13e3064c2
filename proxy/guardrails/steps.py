"""Required steps, prerequisites and terminal tools: which call may be made when.

All of it is derived from the transcript: a step is completed by a call whose result is no error.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.guardrails.transcript import CompletedCall


def missing_steps(workflow: Workflow, completed: Sequence[CompletedCall]) -> tuple[str, ...]:
    """List the required steps that are still to be taken, in the workflow's order."""
    done = {call.name for call in completed if not call.has_failed}
    return tuple(step for step in workflow.required_steps if step not in done)


def drop_infeasible(
    workflow: Workflow, offered: Collection[str], completed: Sequence[CompletedCall]
) -> tuple[Workflow, tuple[str, ...]]:
    """Leave out the rules that wait for tools which are not offered; returns these as well.

    A tool that was called before is no longer waited for. Rules that hold back neither a tool that
    is offered nor, where no tool ends the work, the answer are left out without a word.
    """
    there = {*offered, *(call.name for call in completed if not call.has_failed)}
    holding = [one for one in workflow.prerequisites if one.tool in offered]
    awaited = [one.needs for one in holding]
    if not workflow.terminal_tools or any(name in offered for name in workflow.terminal_tools):
        awaited += workflow.required_steps
    left = replace(
        workflow,
        required_steps=tuple(step for step in workflow.required_steps if step in there),
        prerequisites=tuple(one for one in holding if one.needs in there),
    )
    return left, tuple(dict.fromkeys(name for name in awaited if name not in there))


def unmet_prerequisites(
    name: str, arguments: JsonObject, workflow: Workflow, completed: Sequence[CompletedCall]
) -> tuple[Prerequisite, ...]:
    """List what has to be called before this call may be made."""
    return tuple(
        needed
        for needed in workflow.prerequisites
        if needed.tool == name and not _is_met(needed, arguments, completed)
    )


def _is_met(
    needed: Prerequisite, arguments: JsonObject, completed: Sequence[CompletedCall]
) -> bool:
    return any(
        call.name == needed.needs
        and not call.has_failed
        and _agrees(needed.argument, arguments, call.arguments)
        for call in completed
    )


def _agrees(argument: str | None, wanted: JsonObject, made: JsonObject | None) -> bool:
    """Compare the one argument that has to be the same in both calls, if there is one."""
    if argument is None:
        return True
    return made is not None and argument in wanted and made.get(argument) == wanted[argument]
