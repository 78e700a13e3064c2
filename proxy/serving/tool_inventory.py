"""Lists the tools of the configured tool servers, for `temper tools` and the doctor."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.mcp.definitions import Definition, Selection, ServedTool, digest_of, select
from proxy.mcp.specification import ALL, CallLimits, ServerSpec
from proxy.serving.tool_hosting import specs_of
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.mcp.server import McpServer

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class InspectedServer:
    """A tool server: its state, its tool definitions, and the tools that are offered to models."""

    spec: ServerSpec
    state: str
    protocol: str = ""
    problem: str = ""
    definitions: tuple[Definition, ...] = ()
    offered: tuple[ServedTool, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the offered tools, or of all tools if the settings name none."""
        names = {tool.own_name for tool in self.offered}
        offered = [tool for tool in self.definitions if tool.name in names]
        return digest_of(offered or self.definitions)

    def offer_of(self, name: str) -> str:
        """Describe the name and the condition under which a tool is offered."""
        served = next((tool for tool in self.offered if tool.own_name == name), None)
        if served is None:
            return "not offered"
        return f"offered as {served.tool.name}" + (", if a person says yes" * served.needs_yes)

    def document(self) -> JsonObject:
        names = {served.own_name: served.tool.name for served in self.offered}
        confirmed = {served.own_name for served in self.offered if served.needs_yes}
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
                    "name": tool.name,
                    "offered_as": names.get(tool.name),
                    "needs_yes": tool.name in confirmed,
                    "says_read_only": tool.is_read_only,
                    "description": tool.description,
                }
                for tool in self.definitions
            ],
        }


async def inspect_servers(settings: Settings) -> tuple[InspectedServer, ...]:
    from proxy.mcp.fleet import open_fleet

    async with open_fleet(specs_of(settings)) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        return tuple(map(_inspect, fleet.servers))


async def call_once(settings: Settings, target: str, arguments: JsonObject) -> tuple[str, bool]:
    """Call SERVER.TOOL, even if it is not offered; return the result and whether it succeeded."""
    from proxy.mcp.fleet import open_fleet

    name, _, tool = target.partition(".")
    specs = [replace(spec, tools=(ALL,), prefix="", digest="") for spec in specs_of(settings)]
    matching = [spec for spec in specs if spec.name == name]
    if not matching:
        known = ", ".join(spec.name for spec in specs) or "none"
        raise InvalidConfiguration("mcp", f"there is no tool server {name!r}; there are: {known}")
    async with open_fleet(matching) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        (server,) = fleet.servers
        if not fleet.is_ready(name):
            raise InvalidConfiguration(f"mcp.{name}", server.problem or "does not answer")
        tools = {served.own_name: served for served in fleet.tools_of(name) or ()}
        if tool not in tools:
            problem = f"has no tool {tool!r}; there are: {', '.join(tools)}"
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
