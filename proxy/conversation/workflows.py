"""Rules for the order of tool calls, and a search for contradictions in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import ClassVar

# Unknown members in the rules of clients and operators are errors, because they may be misspelled.
FORBID_OTHERS = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """`tool` may be called only after a call of the tool `needs`.

    If `argument` is set, both calls must have the same value for that argument.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_OTHERS

    tool: str
    needs: str
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """The rules of a request; a terminal tool may be called only after every required step."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_OTHERS

    required_steps: tuple[str, ...] = ()
    prerequisites: tuple[Prerequisite, ...] = ()
    terminal_tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_rules("required_steps", self.required_steps, str, "tool names")
        _check_rules("prerequisites", self.prerequisites, Prerequisite, "Prerequisite(tool, needs)")
        _check_rules("terminal_tools", self.terminal_tools, str, "tool names")

    def tools(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the name of each tool in the rules."""
        for position, step in enumerate(self.required_steps):
            yield f"required_steps.{position}", step
        for position, rule in enumerate(self.prerequisites):
            yield f"prerequisites.{position}.tool", rule.tool
            yield f"prerequisites.{position}.needs", rule.needs
        for position, name in enumerate(self.terminal_tools):
            yield f"terminal_tools.{position}", name


def _check_rules(name: str, rules: object, kind: type, expected: str) -> None:
    """Raise `TypeError` for rules of a wrong type, such as `("step")` without its comma."""
    if isinstance(rules, kind):
        raise TypeError(f"{name} must be a tuple, not {rules!r}: write {name}=({rules!r},)")
    if not isinstance(rules, tuple | list) or not all(isinstance(rule, kind) for rule in rules):
        raise TypeError(f"{name} must be a tuple of {expected}, not {rules!r:.80}")


NO_RULES = Workflow()


def contradictions(rules: Workflow) -> Iterator[tuple[str, str]]:
    """Yield path and description of each duplicate rule, and of the first tool in a cycle."""
    lists = {
        "required_steps": rules.required_steps,
        "prerequisites": rules.prerequisites,
        "terminal_tools": rules.terminal_tools,
    }
    for member, member_rules in lists.items():
        seen: set[object] = set()
        for position, rule in enumerate(member_rules):
            if rule in seen:
                yield f"{member}.{position}", "it is listed twice"
            seen.add(rule)
    # No tool of a cycle may ever be called, so every request would cost three generations
    # (decision 0021).
    cycle = _find_cycle(rules)
    for path, name in rules.tools():
        if name in cycle and not path.endswith(".needs"):
            start = cycle.index(name)
            chain = " needs ".join((*cycle[start:], *cycle[:start], name))
            yield path, f"{name!r} can never be called, because {chain}"
            return  # the other tools of the cycle have the same problem


def _find_cycle(rules: Workflow) -> list[str]:
    """Return the tools of a cycle of rules, [] if there is none.

    Each tool of the cycle needs the next tool, and the last tool needs the first tool. Every
    terminal tool needs every required step. The graph has a node None between these two groups, so
    that it does not need an edge for each pair of a terminal tool and a step.
    """
    order: TopologicalSorter[str | None] = TopologicalSorter()
    order.add(None, *rules.required_steps)
    for name in rules.terminal_tools:
        order.add(name, None)
    for rule in rules.prerequisites:
        order.add(rule.tool, rule.needs)
    try:
        order.prepare()
    except CycleError as error:
        cycle: list[str | None] = error.args[1]
        return [name for name in reversed(cycle[1:]) if name is not None]
    return []
