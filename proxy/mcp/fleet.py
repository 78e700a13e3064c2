"""All tool servers: starts and closes them concurrently, and passes calls to them.

The set of servers can be replaced while requests use it; unchanged servers are not interrupted.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from proxy.conversation.json import JsonObject
from proxy.mcp.definitions import ServedTool
from proxy.mcp.server import McpServer, ServerTimeouts
from proxy.mcp.specification import TOOL_WITHDRAWN, CallLimits, ServerSpec, ToolCallResult
from proxy.processes.restarts import RestartState

# Loggers that are silenced, because Temper itself logs failures. The SDK would log every request,
# and a traceback for every line of output that is not a message.
_SILENCED = ("mcp", "httpx2", "httpcore2")


class ToolServerFleet:
    """The configured tool servers, in the order of the settings."""

    def __init__(self, timeouts: ServerTimeouts | None = None) -> None:
        for name in _SILENCED:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._timeouts = timeouts
        self._servers: dict[str, McpServer] = {}
        self._retiring: dict[asyncio.Task[None], McpServer] = {}

    def renew(self, specs: Sequence[ServerSpec]) -> None:
        """Replace the set of servers; returns without waiting.

        A server with an unchanged specification continues, unless it is down; if it had withdrawn
        tools, it offers them again with their current definitions. All other servers of the old set
        end after their running calls.
        """
        before = self._servers
        self._servers = {spec.name: self._server(before.get(spec.name), spec) for spec in specs}
        for name, server in before.items():
            if self._servers.get(name) is not server:
                retiring = asyncio.create_task(server.retire(), name=f"end of {name}")
                self._retiring[retiring] = server
                retiring.add_done_callback(self._retiring.pop)

    def _server(self, known: McpServer | None, spec: ServerSpec) -> McpServer:
        if known is not None and known.spec == spec and known.state is not RestartState.DOWN:
            known.accept()
            return known
        return McpServer(spec, self._timeouts)

    @property
    def servers(self) -> tuple[McpServer, ...]:
        return tuple(self._servers.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._servers)

    def tools_of(self, server: str) -> tuple[ServedTool, ...] | None:
        return self._servers[server].tools

    def is_ready(self, server: str) -> bool:
        return self._servers[server].state is RestartState.READY

    def protocol_of(self, server: str) -> tuple[str, str]:
        known = self._servers.get(server)
        return (known.spec.transport, known.protocol) if known is not None else ("", "")

    def condition_of(self, server: str) -> tuple[str, str]:
        known = self._servers[server]
        return known.state.value, known.problem

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> ToolCallResult:
        """Call a tool once if its definition is unchanged; a failure is returned as a result."""
        server = self._servers.get(tool.server)
        if server is None:  # the settings were reloaded during the request
            return TOOL_WITHDRAWN
        return await server.call(tool.tool.name, arguments, limits, meta, digest=tool.digest)

    async def wait_settled(self, seconds: float) -> None:
        """Wait until each server is ready or down, but at most `seconds`."""
        await asyncio.gather(*(server.wait_settled(seconds) for server in self.servers))

    async def close(self) -> None:
        """Close all servers concurrently; an unresponsive program is killed after four seconds."""
        all_servers = (*self.servers, *self._retiring.values())
        for server in all_servers:
            server.stop()
        await asyncio.gather(*(server.wait_closed() for server in all_servers), *self._retiring)


@asynccontextmanager
async def open_fleet(
    specs: Sequence[ServerSpec], timeouts: ServerTimeouts | None = None
) -> AsyncGenerator[ToolServerFleet, None]:
    """Start tool servers without waiting for them, and close them after the block."""
    fleet = ToolServerFleet(timeouts)
    fleet.renew(specs)
    try:
        yield fleet
    finally:
        await fleet.close()
