"""Rules for the order of tool calls, and their contradictions."""

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import ClassVar

# Unknown members in rules of clients and operators are errors.
FORBID_OTHERS = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """`tool` may be called only after `needs`, with the same `argument` if one is given."""

    __pydantic_config__: ClassVar[dict[str, str]] = FORBID_OTHERS

    tool: str
    needs: str
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """Rules of order: a terminal tool may be called only after every required step."""

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


def _check_rules(name: str, given: object, kind: type, form: str) -> None:
    """Raise `TypeError` for a rule of another type, such as a tuple without its comma."""
    if isinstance(given, kind):
        raise TypeError(f"{name} must be a tuple, not {given!r}: write {name}=({given!r},)")
    if not isinstance(given, tuple | list) or not all(isinstance(rule, kind) for rule in given):
        raise TypeError(f"{name} must be a tuple of {form}, not {given!r:.80}")


NO_RULES = Workflow()


def contradictions(rules: Workflow) -> Iterator[tuple[str, str]]:
    """Yield duplicates and cycles, each as a path in the rules and a problem."""
    lists = {
        "required_steps": rules.required_steps,
        "prerequisites": rules.prerequisites,
        "terminal_tools": rules.terminal_tools,
    }
    for member, listed in lists.items():
        seen: set[object] = set()
        for position, rule in enumerate(listed):
            if rule in seen:
                yield f"{member}.{position}", "it is listed twice"
            seen.add(rule)
    circle = _find_circle(rules)
    for path, name in rules.tools():
        if name in circle and not path.endswith(".needs"):
            at = circle.index(name)
            way = " needs ".join((*circle[at:], *circle[:at], name))
            yield path, f"{name!r} can never be called, because {way}"
            return  # the other tools of the cycle have the same problem


def _find_circle(rules: Workflow) -> list[str]:
    """Return a cycle of tools, each of which needs the next; [] without one.

    Every terminal tool needs every step. The node None between them saves an edge for each pair.
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
        circle: list[str | None] = error.args[1]
        return [name for name in reversed(circle[1:]) if name is not None]
    return []
