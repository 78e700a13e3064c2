"""In which order a client wants tools to be called."""

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


NO_RULES = Workflow()
