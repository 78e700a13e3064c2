"""Required steps, prerequisites and terminal tools: which call may be made when.

A workflow has the rules, and the transcript decides: a step is completed by a call whose result is
no error. `review` objects to a call that comes too early.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow
from proxy.guardrails.transcript import CompletedCall


def missing_steps(workflow: Workflow, completed: Sequence[CompletedCall]) -> tuple[str, ...]:
    if not workflow.required_steps:
        return ()
    done = {call.name for call in completed if not call.has_failed}
    return tuple(step for step in workflow.required_steps if step not in done)


def drop_infeasible(
    workflow: Workflow, offered: Collection[str], completed: Sequence[CompletedCall]
) -> tuple[Workflow, tuple[str, ...]]:
    """Remove the rules that wait for tools which are not offered; return these tools as well.

    A tool that was called before is not waited for. Rules that restrict neither an offered tool
    nor, if no tool ends the work, the answer are removed silently.
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


def steps_before(
    name: str, arguments: JsonObject, workflow: Workflow, completed: Sequence[CompletedCall]
) -> tuple[str, ...]:
    """Return the tools to call first: unmet prerequisites, or all steps before a terminal tool."""
    if workflow is NO_RULES:
        return ()
    needed = [one for one in workflow.prerequisites if one.tool == name]
    unmet = tuple(one.needs for one in needed if not _is_met(one, arguments, completed))
    is_terminal = name in workflow.terminal_tools
    return unmet or (missing_steps(workflow, completed) if is_terminal else ())


def _is_met(
    needed: Prerequisite, arguments: JsonObject, completed: Sequence[CompletedCall]
) -> bool:
    made = [one.arguments for one in completed if one.name == needed.needs and not one.has_failed]
    key = needed.argument
    if key is None:
        return bool(made)
    return key in arguments and any(
        one is not None and one.get(key) == arguments[key] for one in made
    )
