"""Temper's own tools in the loop of the operator's: a call is answered from the request itself."""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import CallSource
from proxy.mcp.specification import GONE, CallLimits, Ended
from proxy.tools.on_demand import ToolsOnDemand

BUILT_IN = "temper"  # in headers, logs and metrics, where other tools have their server


@dataclass(frozen=True, slots=True)
class BuiltInTools:
    """The tool servers of `servers`, and the tools of Temper for one request."""

    servers: CallSource
    on_demand: ToolsOnDemand

    def protocol_of(self, server: str) -> tuple[str, str]:
        return ("", "") if server == BUILT_IN else self.servers.protocol_of(server)

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> Ended:
        if tool.server != BUILT_IN or tool.tool.name != self.on_demand.name:
            return await self.servers.call(tool, arguments, limits, meta)
        return Ended(self.on_demand.find(arguments.get("query"))[: limits.result_chars])


class NoToolServers:
    """The tool servers of an operator without any."""

    names = tuple[str, ...]()

    def tools_of(self, _server: str) -> None:
        return None

    def is_ready(self, _server: str) -> bool:
        return False

    def protocol_of(self, _server: str) -> tuple[str, str]:
        return "", ""

    def condition_of(self, _server: str) -> tuple[str, str]:
        return "", ""

    async def call(
        self, _tool: ServedTool, _arguments: JsonObject, _limits: CallLimits, _meta: JsonObject
    ) -> Ended:
        return GONE
