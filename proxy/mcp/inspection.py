"""Lists the tools of the configured servers (`temper tools`, doctor), and makes single calls."""

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
    """A tool server with its state, all its definitions, and the tools that it offers."""

    spec: ServerSpec
    state: str
    protocol: str = ""
    problem: str = ""
    definitions: tuple[Definition, ...] = ()
    offered: tuple[ServedTool, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the offered tools, or of all tools if no tool is offered."""
        offered_names = {definition.upstream_name for definition in self.offered}
        return digest_of(
            [definition for definition in self.definitions if definition.name in offered_names]
            or self.definitions
        )

    def describe_offer(self, name: str) -> str:
        """Describe how a tool is offered, e.g. `offered as files_read, after approval`."""
        served = next((tool for tool in self.offered if tool.upstream_name == name), None)
        if served is None:
            return "not offered"
        return f"offered as {served.tool.name}" + (", after approval" * served.needs_approval)

    def document(self) -> JsonObject:
        names = {tool.upstream_name: tool.tool.name for tool in self.offered}
        need_approval = {tool.upstream_name for tool in self.offered if tool.needs_approval}
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
                    "needs_yes": definition.name in need_approval,
                    "says_read_only": definition.is_read_only,
                    "description": definition.description,
                }
                for definition in self.definitions
            ],
        }


async def inspect_servers(settings: Settings) -> tuple[InspectedServer, ...]:
    """Connect to all tool servers; raises `InvalidConfiguration` if the MCP SDK is missing."""
    specs = specs_of(settings)
    if not specs:
        return ()
    from proxy.mcp.fleet import open_fleet

    async with open_fleet(specs) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        return tuple(map(_inspect, fleet.servers))


async def call_once(settings: Settings, target: str, arguments: JsonObject) -> tuple[str, bool]:
    """Call SERVER.TOOL; return the result, and whether the call succeeded."""
    name, _, tool = target.partition(".")
    # every tool may be called, because an operator may want to try a tool before configuring it
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
        tools = {served.upstream_name: served for served in fleet.tools_of(name) or ()}
        if tool not in tools:
            problem = f"has no tool {tool!r}; available: {', '.join(tools)}"
            raise InvalidConfiguration(f"mcp.{name}", problem)
        limits = CallLimits(1, settings.tools.call_seconds, settings.tools.result_chars)
        result = await fleet.call(tools[tool], arguments, limits, {})
        return result.text, result.error is None


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
