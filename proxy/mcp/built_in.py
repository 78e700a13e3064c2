"""Tools that Temper executes itself, without a server: `find_tools` and `recall`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import CallSource
from proxy.mcp.specification import TOOL_WITHDRAWN, CallLimits, ToolCallResult
from proxy.tools.built_in import BuiltInTools
from proxy.tools.recall import Archive

BUILT_IN = "temper"  # the server name of these tools in headers, logs and metrics


@dataclass(frozen=True, slots=True)
class BuiltInCalls:
    """The tool servers, plus the built-in tools for one request.

    `archive` returns all messages of the request, and those that the latest prompt contains.
    """

    servers: CallSource
    tools: BuiltInTools
    archive: Callable[[], Archive]

    def protocol_of(self, server: str) -> tuple[str, str]:
        return ("", "") if server == BUILT_IN else self.servers.protocol_of(server)

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> ToolCallResult:
        if tool.server != BUILT_IN or tool.tool.name not in self.tools.names:
            return await self.servers.call(tool, arguments, limits, meta)
        query, limit = arguments.get("query"), limits.result_chars
        # in a thread: a search in a megabyte takes 0.2 s, which would delay all other requests
        text = await asyncio.to_thread(
            self.tools.answer, tool.upstream_name, query, self.archive(), limit
        )
        return ToolCallResult(text)


class NoToolServers:
    """A `ToolSource` for settings without tool servers."""

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
    ) -> ToolCallResult:
        return TOOL_WITHDRAWN
