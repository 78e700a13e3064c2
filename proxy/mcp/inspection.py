"""What the configured tool servers offer, for `temper tools` and the doctor; and one call."""

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
    """A tool server: its state, what it defines, and what of that is offered."""

    spec: ServerSpec
    state: str
    protocol: str = ""
    problem: str = ""
    definitions: tuple[Definition, ...] = ()
    offered: tuple[ServedTool, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of what is offered, or of everything if no tools were named yet."""
        own = {one.own_name for one in self.offered}
        return digest_of([one for one in self.definitions if one.name in own] or self.definitions)

    def offer_of(self, name: str) -> str:
        """Describe under which name and condition a tool is offered."""
        found = next((one for one in self.offered if one.own_name == name), None)
        if found is None:
            return "not offered"
        return f"offered as {found.tool.name}" + (", if a person says yes" * found.needs_yes)

    def document(self) -> JsonObject:
        names = {one.own_name: one.tool.name for one in self.offered}
        asking = {one.own_name for one in self.offered if one.needs_yes}
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
                    "name": one.name,
                    "offered_as": names.get(one.name),
                    "needs_yes": one.name in asking,
                    "says_read_only": one.is_read_only,
                    "description": one.description,
                }
                for one in self.definitions
            ],
        }


async def inspect_servers(settings: Settings) -> tuple[InspectedServer, ...]:
    from proxy.mcp.fleet import open_fleet

    async with open_fleet(specs_of(settings)) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        return tuple(map(_inspect, fleet.servers))


async def call_once(settings: Settings, target: str, arguments: JsonObject) -> tuple[str, bool]:
    """Call a tool as SERVER.TOOL, offered or not; return its result and whether it succeeded."""
    from proxy.mcp.fleet import open_fleet

    name, _, tool = target.partition(".")
    specs = [replace(one, tools=(ALL,), prefix="", digest="") for one in specs_of(settings)]
    found = [one for one in specs if one.name == name]
    if not found:
        known = ", ".join(one.name for one in specs) or "none"
        raise InvalidConfiguration("mcp", f"there is no tool server {name!r}; there are: {known}")
    async with open_fleet(found) as fleet:
        await fleet.wait_settled(_START_SECONDS)
        (server,) = fleet.servers
        if not fleet.is_ready(name):
            raise InvalidConfiguration(f"mcp.{name}", server.problem or "does not answer")
        tools = {one.own_name: one for one in fleet.tools_of(name) or ()}
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
