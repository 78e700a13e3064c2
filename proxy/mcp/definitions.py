"""From what a server says of its tools to the tools that a model is offered. Pure.

The same definitions give the same bytes, in every request: the prompt cache lives on that.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from proxy.mcp.specification import ALL, ServerSpec

LONGEST_DESCRIPTION = 2000  # characters
_LONGEST_NAME = 64
_DIGEST_LENGTH = 32
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")


class Definition(msgspec.Struct, frozen=True):
    """A tool in its server's own words."""

    name: str
    description: str
    parameters: JsonObject
    is_read_only: bool = False

    @property
    def digest(self) -> str:
        """A word for all that a model would read of it."""
        said = {"name": self.name, "description": self.description, "schema": self.parameters}
        return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


class ServedTool(msgspec.Struct, frozen=True):
    """A tool as it is offered, and the server that runs it under the name `own_name`.

    With `needs_yes` it is run only if a person says so.
    """

    server: str
    own_name: str
    tool: Tool
    digest: str
    needs_yes: bool = False


class Selection(msgspec.Struct, frozen=True):
    """What is offered of a server, and what an operator should know about that."""

    tools: tuple[ServedTool, ...] = ()
    warnings: tuple[str, ...] = ()


def select(definitions: Sequence[Definition], spec: ServerSpec) -> Selection:
    """Choose the tools that the operator named, in the order of their names in the settings."""
    by_name = {one.name: one for one in definitions}
    wanted = tuple(by_name) if ALL in spec.tools else spec.tools
    named = dict.fromkeys((*wanted, *(name for name in spec.ask if name != ALL)))
    warnings = [f"has no tool {name!r}" for name in named if name not in by_name]
    chosen = [by_name[name] for name in wanted if name in by_name]
    if spec.digest and spec.digest != digest_of(chosen):
        told = f"defines its tools otherwise than was looked at ({digest_of(chosen)})"
        return Selection((), (*warnings, f"{told}: none of them is offered"))
    served: dict[str, ServedTool] = {}
    for one in chosen:
        name = sanitise_name(one.name, spec.prefix)
        if not one.name:
            warnings.append("has a tool without a name: it is left out")
            continue
        if name in served:
            warnings.append(f"has two tools that would be called {name!r}: one is left out")
            continue
        if len(one.description) > LONGEST_DESCRIPTION:
            warnings.append(f"has a description of {one.name!r} that is too long: it is cut")
        needs_yes = not {ALL, one.name}.isdisjoint(spec.ask)
        served[name] = ServedTool(spec.name, one.name, _tool(one, name), one.digest, needs_yes)
    return Selection(tuple(served.values()), tuple(warnings))


def digest_of(definitions: Iterable[Definition]) -> str:
    """Return a word for several definitions, in whatever order they come."""
    together = "\n".join(sorted(one.digest for one in definitions))
    return hashlib.sha256(together.encode()).hexdigest()[:_DIGEST_LENGTH]


def find_changed_tools(before: Iterable[ServedTool], now: Iterable[Definition]) -> frozenset[str]:
    """Name the tools, as they are offered, that their server no longer defines as it did."""
    digests = {one.name: one.digest for one in now}
    return frozenset(one.tool.name for one in before if digests.get(one.own_name) != one.digest)


def sanitise_name(name: str, prefix: str) -> str:
    """Return the name under which a model knows a tool: what all engines and clients take."""
    return _UNUSUAL.sub("_", prefix + name)[:_LONGEST_NAME]


def _tool(definition: Definition, name: str) -> Tool:
    parameters = {key: one for key, one in definition.parameters.items() if key != "$schema"}
    function: JsonObject = {"name": name}
    if description := definition.description:
        is_long = len(description) > LONGEST_DESCRIPTION
        function["description"] = (
            description[: LONGEST_DESCRIPTION - 1] + "…" if is_long else description
        )
    function["parameters"] = parameters
    source = json.dump({"type": "function", "function": function})
    return Tool(name, parameters, source)
