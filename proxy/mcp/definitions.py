"""The tools that a server defines, and the selection of those that models may call. No I/O.

Equal definitions give equal bytes in every request, so that engines can reuse the prompt cache.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from proxy.mcp.specification import ALL, ServerSpec

LONGEST_DESCRIPTION = 2000  # characters; some servers send manuals, which are in every prompt
_LONGEST_NAME = 64  # the limit of the OpenAI API
_DIGEST_LENGTH = 32
_INVALID_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


class Definition(msgspec.Struct, frozen=True):
    """A tool as its server defines it."""

    name: str
    description: str
    parameters: JsonObject
    is_read_only: bool = False

    @property
    def digest(self) -> str:
        """A digest of the members that models receive: name, description and parameters."""
        content = {"name": self.name, "description": self.description, "schema": self.parameters}
        return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


class ServedTool(msgspec.Struct, frozen=True):
    """A tool as models see it; `server` executes it under the name `upstream_name`.

    With `needs_approval`, a person must approve each call.
    """

    server: str
    upstream_name: str
    tool: Tool
    digest: str
    needs_approval: bool = False


class Selection(msgspec.Struct, frozen=True):
    """The offered tools of a server, and warnings for the operator."""

    tools: tuple[ServedTool, ...] = ()
    warnings: tuple[str, ...] = ()


def select(definitions: Sequence[Definition], spec: ServerSpec) -> Selection:
    """Select the tools that the operator listed, in the order of the settings."""
    by_name = {definition.name: definition for definition in definitions}
    listed = tuple(by_name) if ALL in spec.tools else spec.tools
    mentioned = dict.fromkeys((*listed, *(name for name in spec.ask if name != ALL)))
    warnings = [f"has no tool {name!r}" for name in mentioned if name not in by_name]
    chosen = [by_name[name] for name in listed if name in by_name]
    # Descriptions are part of the prompt, so a changed description may be a prompt injection. The
    # digest in the settings is that of the definitions that the operator has reviewed.
    if spec.digest and spec.digest != digest_of(chosen):
        problem = (
            f"defines its tools differently than when they were reviewed ({digest_of(chosen)})"
        )
        return Selection((), (*warnings, f"{problem}: none of them is offered"))
    served: dict[str, ServedTool] = {}
    for definition in chosen:
        name = sanitize_name(definition.name, spec.prefix)
        if not definition.name:
            warnings.append("has a tool without a name: it is skipped")
            continue
        if name in served:
            warnings.append(f"has two tools with the name {name!r}: the second tool is skipped")
            continue
        if len(definition.description) > LONGEST_DESCRIPTION:
            warnings.append(
                f"has a description of {definition.name!r} that is too long: it is truncated"
            )
        needs_approval = not {ALL, definition.name}.isdisjoint(spec.ask)
        served[name] = ServedTool(
            spec.name, definition.name, _tool(definition, name), definition.digest, needs_approval
        )
    return Selection(tuple(served.values()), tuple(warnings))


def digest_of(definitions: Iterable[Definition]) -> str:
    """Return a digest of several definitions, independent of their order."""
    digests = "\n".join(sorted(definition.digest for definition in definitions))
    return hashlib.sha256(digests.encode()).hexdigest()[:_DIGEST_LENGTH]


def find_changed_tools(before: Iterable[ServedTool], now: Iterable[Definition]) -> frozenset[str]:
    """Return the names of offered tools that their server now defines differently."""
    digests = {definition.name: definition.digest for definition in now}
    return frozenset(
        tool.tool.name for tool in before if digests.get(tool.upstream_name) != tool.digest
    )


def sanitize_name(name: str, prefix: str) -> str:
    """Return the name for the model, with only the characters that all engines accept."""
    return _INVALID_IN_NAME.sub("_", prefix + name)[:_LONGEST_NAME]


def _tool(definition: Definition, name: str) -> Tool:
    # `$schema`, the version of JSON Schema, is of no use to a model
    parameters = {name: value for name, value in definition.parameters.items() if name != "$schema"}
    function: JsonObject = {"name": name}
    if description := definition.description:
        is_long = len(description) > LONGEST_DESCRIPTION
        function["description"] = (
            description[: LONGEST_DESCRIPTION - 1] + "…" if is_long else description
        )
    function["parameters"] = parameters
    source = json.dump({"type": "function", "function": function})
    return Tool(name, parameters, source)
