"""Applies the rules of a workflow: required steps, prerequisites and terminal tools.

A call completes a step if its result is not an error. `review` rejects a call that comes too early.
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
    """Remove the rules that require tools that are not offered; return these tools as well.

    The model could not comply with such a rule: three attempts would fail, and the turn would end
    as `exhausted` (decision 0021). A required tool that was called successfully before need not be
    offered. Rules without effect, such as a prerequisite of a tool that is not offered, are also
    removed, but not reported.
    """
    available = {*offered, *(call.name for call in completed if not call.has_failed)}
    rules = [rule for rule in workflow.prerequisites if rule.tool in offered]
    needed = [rule.needs for rule in rules]
    if not workflow.terminal_tools or any(name in offered for name in workflow.terminal_tools):
        needed += workflow.required_steps
    feasible = replace(
        workflow,
        required_steps=tuple(step for step in workflow.required_steps if step in available),
        prerequisites=tuple(rule for rule in rules if rule.needs in available),
    )
    return feasible, tuple(dict.fromkeys(name for name in needed if name not in available))


def steps_before(
    name: str, arguments: JsonObject, workflow: Workflow, completed: Sequence[CompletedCall]
) -> tuple[str, ...]:
    """Return the tools to call first: unmet prerequisites, or all steps before a terminal tool."""
    if workflow is NO_RULES:
        return ()
    rules = [rule for rule in workflow.prerequisites if rule.tool == name]
    unmet = tuple(rule.needs for rule in rules if not _is_met(rule, arguments, completed))
    is_terminal = name in workflow.terminal_tools
    return unmet or (missing_steps(workflow, completed) if is_terminal else ())


def _is_met(rule: Prerequisite, arguments: JsonObject, completed: Sequence[CompletedCall]) -> bool:
    """Return whether the needed tool was called, with an equal value of the rule's argument."""
    calls = [call for call in completed if call.name == rule.needs and not call.has_failed]
    key = rule.argument
    if key is None:
        return bool(calls)
    return key in arguments and any(
        call.arguments is not None and call.arguments.get(key) == arguments[key] for call in calls
    )
