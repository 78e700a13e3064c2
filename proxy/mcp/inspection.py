"""The tools of the configured servers, for `temper tools` and the doctor; and single calls."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.mcp.definitions import Definition, Selection, ServedTool, digest_of, select
from proxy.mcp.hosting import specs_of
from proxy.mcp.specification import ALL, CallLimits, ServerSpec
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.mcp.server import McpServer

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class InspectedServer:
    """A tool server: its state, its definitions, and the offered tools among them."""

    spec: ServerSpec
    state: str
    protocol: str = ""
    problem: str = ""
    definitions: tuple[Definition, ...] = ()
    offered: tuple[ServedTool, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the offered tools, or of all if none was named yet."""
        offered_names = {definition.own_name for definition in self.offered}
        return digest_of(
            [definition for definition in self.definitions if definition.name in offered_names]
            or self.definitions
        )

    def offer_of(self, name: str) -> str:
        """Describe the name and the condition under which a tool is offered."""
        served = next((tool for tool in self.offered if tool.own_name == name), None)
        if served is None:
            return "not offered"
        return f"offered as {served.tool.name}" + (", after approval" * served.needs_yes)

    def document(self) -> JsonObject:
        names = {tool.own_name: tool.tool.name for tool in self.offered}
        asking = {tool.own_name for tool in self.offered if tool.needs_yes}
        return {
            "server": self.spec.name,
            "state": self.state,
            "transport": self.spec.transport,
            "protocol": self.protocol or None,
            "problem": self.problem or None,
            "digest": self.digest if self.definitions else None,
            "warnings": [*self.warnings],
            "tools": [
                {
                    "name": definition.name,
                    "offered_as": names.get(definition.name),
                    "needs_yes": definition.name in asking,
                    "says_read_only": definition.is_read_only,
                    "description": definition.description,
                }
                for definition in self.definitions
            ],
        }


async def inspect_servers(settings: Settings) -> tuple[InspectedServer, ...]:
    """Connect to all tool servers; raises `InvalidConfiguration` if the extra is missing."""
    specs = specs_of(settings)
    if not specs:
        return ()
    from proxy.mcp.fleet import open_fleet

    async with open_fleet(specs) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        return tuple(map(_inspect, fleet.servers))


async def call_once(settings: Settings, target: str, arguments: JsonObject) -> tuple[str, bool]:
    """Call SERVER.TOOL, offered or not; return the result and whether the call succeeded."""
    name, _, tool = target.partition(".")
    # A person tries a tool before offering it, so the operator's selection does not apply.
    specs = [replace(spec, tools=(ALL,), prefix="", digest="") for spec in specs_of(settings)]
    matching = [spec for spec in specs if spec.name == name]
    if not matching:
        known = ", ".join(spec.name for spec in specs) or "none"
        raise InvalidConfiguration("mcp", f"unknown tool server {name!r}; available: {known}")
    from proxy.mcp.fleet import open_fleet

    async with open_fleet(matching) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        (server,) = fleet.servers
        if not fleet.is_ready(name):
            raise InvalidConfiguration(f"mcp.{name}", server.problem or "does not respond")
        tools = {served.own_name: served for served in fleet.tools_of(name) or ()}
        if tool not in tools:
            problem = f"has no tool {tool!r}; available: {', '.join(tools)}"
            raise InvalidConfiguration(f"mcp.{name}", problem)
        limits = CallLimits(1, settings.tools.call_seconds, settings.tools.result_chars)
        ended = await fleet.call(tools[tool], arguments, limits, {})
        return ended.text, ended.error is None


def _inspect(server: "McpServer") -> InspectedServer:
    selection = select(server.definitions, server.spec) if server.definitions else Selection()
    return InspectedServer(
        server.spec,
        server.state.value,
        server.protocol,
        server.problem,
        server.definitions,
        selection.tools,
        selection.warnings,
    )
