"""In which order a client wants tools to be called, and what nobody could keep of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """Before `tool` may be called, `needs` must have been; with the same `argument`, if given."""

    tool: str
    needs: str
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """Rules of order: a terminal tool may only be called when every required step was taken."""

    required_steps: tuple[str, ...] = ()
    prerequisites: tuple[Prerequisite, ...] = ()
    terminal_tools: tuple[str, ...] = ()

    def tools(self) -> Iterator[tuple[str, str]]:
        """Yield each place of the rules that names a tool, and its name."""
        for position, step in enumerate(self.required_steps):
            yield f"required_steps.{position}", step
        for position, rule in enumerate(self.prerequisites):
            yield f"prerequisites.{position}.tool", rule.tool
            yield f"prerequisites.{position}.needs", rule.needs
        for position, name in enumerate(self.terminal_tools):
            yield f"terminal_tools.{position}", name


NO_RULES = Workflow()


def contradictions(rules: Workflow) -> Iterator[tuple[str, str]]:
    """Yield what is listed twice or waits for itself: its place in the rules, and what is wrong."""
    lists = {
        "required_steps": rules.required_steps,
        "prerequisites": rules.prerequisites,
        "terminal_tools": rules.terminal_tools,
    }
    for member, listed in lists.items():
        for position, one in enumerate(listed):
            if one in listed[:position]:
                yield f"{member}.{position}", "it is listed twice"
    before = {name: list(rules.required_steps) for name in rules.terminal_tools}
    for rule in rules.prerequisites:
        before.setdefault(rule.tool, []).append(rule.needs)
    for place, name in rules.tools():
        if not place.endswith(".needs") and (circle := _circle(name, before)):
            yield place, f"nobody can call {circle[0]!r}: {' needs '.join(circle)}"
            return  # the others of the circle are in it by its fault


def _circle(name: str, before: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return the way from a tool through all that has to be called before it, back to the tool."""
    ways: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for needed in before.get(way[-1], ()):
            if needed == name:
                return (*way, name)
            if needed not in seen:
                seen.add(needed)
                ways.append((*way, needed))
    return ()
